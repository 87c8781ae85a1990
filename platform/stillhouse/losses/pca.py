"""A fitted projection of teacher vectors: the regression target of HPD's small students.

Zhao et al., Compressing Sentence Representation for Semantic Retrieval via Homomorphic Projective
Distillation, Findings of ACL 2022, arXiv:2203.07687. The published code fits scikit-learn's PCA, which
subtracts the mean, to the first 40 000 vectors, and applies its components to the vectors as they are.

N  rows    E  teacher's dimension    D  dimension after the projection
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.losses.numerics import full_precision, widen

Vectors = npt.NDArray[np.float32]
Moments = npt.NDArray[np.float64]

PUBLISHED_ROWS = 40_000


def fit_pca(blocks: Iterable[Vectors], dim: int, *, rows: int = PUBLISHED_ROWS) -> tuple[Vectors, Vectors]:
    """Compute the principal components of vectors that arrive in blocks; only an E × E matrix is held.

    Args:
        blocks: Blocks (n, E), always in the same order. No block past ``rows`` is read.
        dim: D.
        rows: Number of rows to fit to, the first ones; 0 uses all.

    Returns:
        The mean (E,) and the components (D, E), orthonormal, by decreasing variance around the mean.
        The entry of each component that is largest in absolute value is positive.

    Raises:
        BadInput: ``dim`` is not in 1…E, there are too few rows, the dimensions of the blocks differ, or a
            value is not finite.
    """
    require(dim >= 1, "dim >= 1", dim=dim)
    require(rows >= 0, "rows >= 0", rows=rows)
    count, shift_E, sum_E, moment_EE = _moments(blocks, rows)
    require(dim <= len(sum_E), "dim <= dimension of the vectors", dim=dim, dimension=len(sum_E))
    require(count > dim, "number of rows > number of components", rows=count, dim=dim)
    mean_E = sum_E / count
    moment_EE = moment_EE / count - np.outer(mean_E, mean_E)
    # eigh sorts by rising eigenvalue.
    components_DE = np.linalg.eigh(moment_EE)[1].T[::-1][:dim]
    largest_D = np.abs(components_DE).argmax(axis=1)
    components_DE = components_DE * np.sign(components_DE[np.arange(dim), largest_D])[:, None]
    return (shift_E + mean_E).astype(np.float32), np.ascontiguousarray(components_DE, dtype=np.float32)


class Projection(nn.Module):
    """A fitted projection ``(v − mean) Cᵀ``. Both are buffers: saved with the module, never trained.

    Args:
        mean_E: What is subtracted first: the mean that was fitted, or zeros.
        components_DE: C.
    """

    mean_E: Tensor
    components_DE: Tensor

    def __init__(self, mean_E: Vectors, components_DE: Vectors) -> None:
        super().__init__()
        self.register_buffer("mean_E", torch.tensor(mean_E))
        self.register_buffer("components_DE", torch.tensor(components_DE))

    def forward(self, vectors_NE: Tensor) -> Tensor:
        """Project vectors, (N, D), in float32 or wider.

        Raises:
            BadInput: The vectors have another dimension than those that were fitted.
        """
        require(
            vectors_NE.shape[-1] == len(self.mean_E),
            "dimension of the vectors = dimension that was fitted",
            vectors=tuple(vectors_NE.shape),
            fitted=len(self.mean_E),
        )
        with full_precision(vectors_NE):
            return (widen(vectors_NE) - self.mean_E) @ self.components_DE.T


def _moments(blocks: Iterable[Vectors], rows: int) -> tuple[int, Moments, Moments, Moments]:
    """Return the number of rows, a shift c near the mean, Σ (v − c) and Σ (v − c)(v − c)ᵀ.

    Moments around the first block's mean lose no digits to a mean that is large compared with the spread.
    """
    count, width, shift_E, sum_E, moment_EE = 0, 0, np.zeros(0), np.zeros(0), np.zeros((0, 0))
    for block in blocks:
        part_NE = np.asarray(block[: rows - count] if rows else block, dtype=np.float64)
        if not len(part_NE):
            continue
        if not count:
            width = part_NE.shape[-1]
            shift_E = part_NE.mean(axis=0)
            sum_E, moment_EE = np.zeros(width), np.zeros((width, width))
        require(
            part_NE.ndim == 2 and part_NE.shape[1] == width,
            "shape of every block = (rows, dimension)",
            block=part_NE.shape,
            dimension=width,
        )
        require(bool(np.isfinite(part_NE).all()), "all vectors are finite", block_from_row=count)
        part_NE = part_NE - shift_E
        sum_E += part_NE.sum(axis=0)
        moment_EE += part_NE.T @ part_NE
        count += len(part_NE)
        if count == rows:
            break
    require(count >= 1, "number of vectors to fit to >= 1", rows=count)
    return count, shift_E, sum_E, moment_EE
