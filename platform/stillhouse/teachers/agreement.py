"""Whether a runtime's vectors are those of PyTorch: compared on texts of the store before any is kept."""

from pathlib import Path

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.tokenizing import FastTokenizer, Ids, Offsets
from stillhouse.corpora.tables import sample_of
from stillhouse.teachers.forward import Vectors
from stillhouse.teachers.weights import on_this_machine
from stillhouse.values.data import Model, Store

FLOOR = 0.9999
"""Cosine to PyTorch's vectors that every vector of another runtime must reach in float32."""


def tokenised_sample(store: Store, workspace: Workspace, count: int) -> tuple[Ids, Offsets, FastTokenizer]:
    """Tokenise some of a store's texts, evenly spread over its table, with the store's prompt.

    Args:
        store: A store of a model; its texts have been read.
        workspace: Holds its texts.
        count: Number of texts, or as many as there are.
    """
    assert isinstance(store.teacher, Model), "only a model has a tokenizer"
    tokenizer = FastTokenizer(Path(on_this_machine(store.teacher).path), store.max_length)
    _, texts = sample_of(workspace, store.texts, count)
    return *tokenizer([store.prompt + text for text in texts]), tokenizer


def lowest_cosine(first_NE: Vectors, second_NE: Vectors) -> float:
    """Return the lowest cosine of corresponding rows; NaN if a vector is not finite, or dimensions differ."""
    if first_NE.shape != second_NE.shape:
        return float("nan")
    one_NE, other_NE = first_NE.astype(np.float64), second_NE.astype(np.float64)
    lengths_N = np.linalg.norm(one_NE, axis=1) * np.linalg.norm(other_NE, axis=1)
    return float(((one_NE * other_NE).sum(axis=1) / np.maximum(lengths_N, 1e-30)).min())


def least_cosine(of_torch: float, compute: str) -> float:
    """Return the cosine to PyTorch's float32 vectors that a runtime must reach.

    In bfloat16 rounding is not the runtime's fault: it may be twice as far away as PyTorch itself.

    Args:
        of_torch: Lowest cosine of PyTorch's own vectors in that precision to those in float32.
        compute: ``float32`` or ``bfloat16``.
    """
    return FLOOR if compute == "float32" else min(FLOOR, 1.0 - 2.0 * (1.0 - of_torch))


class Unfit(BadInput):
    """A runtime that cannot compute a teacher's vectors; the message has no remedy."""


def require_agreement(store: Store, found: float, of_torch: float) -> None:
    """Refuse a runtime that computes something else than PyTorch.

    Args:
        store: Its runtime and precision count.
        found: Lowest cosine of the runtime's vectors to PyTorch's in float32.
        of_torch: Lowest cosine of PyTorch's own vectors in the store's precision.

    Raises:
        Unfit: The cosine is too low, or not a number.
    """
    least = least_cosine(of_torch, store.compute)
    if not found >= least:
        raise Unfit(
            f"the vectors of the runtime {store.runtime} must have a cosine of at least {least:.5f} to "
            f"PyTorch's, but one has {found:.5f}."
        )
