"""The geometry of vectors, and the checks that detect a collapsed model.

Effective rank: Roy & Vetterli, EUSIPCO 2007. Alignment and uniformity: Wang & Isola, ICML 2020, as
printed in IBKD (eq. 12, 13).

The limits are far from healthy models, measured on 512 sentences (mean cosine; effective rank of the
variances out of min(N - 1, D)): all-MiniLM-L6-v2 0.05, 146 of 384; its layers 0, 2, 4 untrained 0.59, 82;
layers 0, 1, 2 0.53, 72; randomly initialised BERTs of 2 to 12 layers, mean pooling, 0.91-0.95, from 89 of 384
and 24 of 32. Published models without any sentence training may reach 0.99. One exception is known: the [CLS]
vector of a few untrained layers hardly depends on the text (0.9999), so a [CLS]-pooled student is only judged
after its first steps.
"""

import numpy as np
import numpy.typing as npt

from stillhouse.core.types import FloatArray

COSINE_LIMIT = 0.999
"""Upper limit of the mean cosine of random pairs."""
RANK_SHARE, RANK_FLOOR = 0.02, 2.5
"""Lower limits of the effective rank of the variances: a share of min(N - 1, D), and a number."""
GEOMETRY = ("alignment", "uniformity")
"""Suffixes of the geometry figures: they are plotted, and left out of the tables of a sweep."""

_BLOCK = 1024

_Vectors = npt.NDArray[np.float64]


def random_pair_cosine(vectors_ND: FloatArray) -> float:
    """Compute the mean cosine over all pairs of different rows."""
    unit = _unit(vectors_ND)
    rows = len(unit)
    return float(((unit.sum(axis=0) ** 2).sum() - (unit**2).sum()) / (rows * (rows - 1)))


def effective_rank(vectors_ND: FloatArray, *, power: int = 1, centre: bool = False) -> float:
    """Compute the effective number of directions: exp of the entropy of the normalised singular values.

    Args:
        vectors_ND: Vectors of any length.
        power: 1 weights a direction by its singular value, as in Roy & Vetterli; 2 by its variance, which is
            less sensitive to noise in the other directions.
        centre: Subtract the mean vector first.
    """
    vectors = np.asarray(vectors_ND, np.float64)
    vectors = vectors - vectors.mean(axis=0) if centre else vectors
    rows, dim = vectors.shape
    gram = vectors.T @ vectors if dim <= rows else vectors @ vectors.T
    weights = np.linalg.eigvalsh(gram).clip(min=0.0) ** (power / 2)
    if weights.sum() == 0:
        return 0.0
    shares = weights[weights > 0] / weights.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def alignment(a_ND: FloatArray, b_ND: FloatArray) -> float:
    """Compute the mean squared distance of positive pairs on the unit sphere, E ‖x - y‖² (eq. 12)."""
    return float(((_unit(a_ND) - _unit(b_ND)) ** 2).sum(axis=1).mean())


def uniformity(vectors_ND: FloatArray) -> float:
    """Compute log E exp(-2 ‖x - y‖²) over pairs of different unit rows (eq. 13); lower is better."""
    unit = _unit(vectors_ND)
    rows, total = len(unit), 0.0
    for start in range(0, rows, _BLOCK):
        squares = 2 - 2 * unit[start : start + _BLOCK] @ unit.T
        kernel = np.exp(-2.0 * squares.clip(min=0.0))
        here = np.arange(len(kernel))
        kernel[here, start + here] = 0.0
        total += float(kernel.sum())
    return float(np.log(total / (rows * (rows - 1))))


def collapse(vectors_ND: FloatArray, *, few_directions: bool = False) -> str | None:
    """Explain in a sentence why vectors of different texts are useless; None if they are not.

    Args:
        vectors_ND: Vectors of at least two different texts; the rank is only judged with at least 16 rows and
            15 dimensions.
        few_directions: Do not judge the rank, because separating C classes takes only C − 1 directions.
    """
    vectors = np.asarray(vectors_ND)
    bad = int((~np.isfinite(vectors).all(axis=1)).sum())
    if bad:
        return f"diverged: {bad} of {len(vectors)} vectors contain NaN or infinity"
    zero = int((~vectors.any(axis=1)).sum())
    if 2 * zero > len(vectors):
        return f"collapsed: {zero} of {len(vectors)} vectors are zero"
    cosine = random_pair_cosine(vectors)
    if cosine > COSINE_LIMIT:
        return f"collapsed: the mean cosine of random pairs is {cosine:.5f} (limit {COSINE_LIMIT})"
    full = min(len(vectors) - 1, vectors.shape[1])
    if few_directions or full < 15:
        return None
    limit = max(RANK_FLOOR, RANK_SHARE * full)
    rank = effective_rank(_unit(vectors), power=2, centre=True)
    if rank < limit:
        return f"collapsed: the vectors use {rank:.1f} of {full} dimensions (limit {limit:.1f})"
    return None


def _unit(vectors_ND: FloatArray) -> _Vectors:
    vectors = np.asarray(vectors_ND, np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)
