"""A model under measurement, whose vectors are checked to be finite before they reach a figure."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stillhouse.core.console import Progress
from stillhouse.core.errors import BadInput
from stillhouse.core.types import Encoder, FloatArray, InRoles, encode_as
from stillhouse.students.cpu.products import quick_products

PIECE = 1024
"""Texts that `Piecewise` gives to a model at once."""
_SHOWN = 60


class FiniteEncoder(InRoles):
    """A model as an `Encoder` whose vectors are checked.

    Attributes:
        model: The model itself, for measurements that need more than vectors.
        identity: All that determines a vector, so that stored vectors are never those of another model.
        title: The model's name with its form and runtime, for tables.
        megabytes_on_disk: 10^6 bytes of the files that its runtime reads; None if it is not deployed so.
        reopen: Opens the model once more; None if that is not known.
    """

    def __init__(
        self,
        model: Any,
        identity: str = "",
        title: str = "",
        megabytes_on_disk: float | None = None,
        reopen: Callable[[], Any] | None = None,
    ) -> None:
        self.model, self.identity, self.reopen = model, identity, reopen
        self.title, self.megabytes_on_disk = title, megabytes_on_disk

    def encoded(self, role: str, texts: Sequence[str]) -> FloatArray:
        """Encode texts of a role as vectors, (N, D), in their order.

        Raises:
            BadInput: If a vector contains NaN or infinity, or there is not one vector per text.
        """
        # Published models encode by themselves; the faster float32 products on a CPU apply to them too.
        with quick_products("cpu", "float32"):
            vectors_ND: FloatArray = np.asarray(encode_as(self.model, role, list(texts)))
        if vectors_ND.ndim != 2 or len(vectors_ND) != len(texts):
            raise BadInput(
                f"a model must return one vector per text, but returned {vectors_ND.shape} for "
                f"{len(texts)} texts."
            )
        bad_N = ~np.isfinite(vectors_ND).all(axis=1)
        if bad_N.any():
            text = texts[int(bad_N.argmax())]
            raise BadInput(
                f"the model's vectors must be finite, but {int(bad_N.sum())} of {len(texts)} contain NaN or "
                f"infinity; the first is that of {text[:_SHOWN]!r}. Such a model is not measured."
            )
        return vectors_ND


class Piecewise:
    """Encodes many texts piece by piece, and shows how many there were so far.

    A piece always has the same number of texts, since a model may round differently in another batch. Lines
    name the work, such as ``encoding cacm``, and count its units. ``total`` is None if it is not known.
    """

    def __init__(self, model: Encoder, role: str, what: str, unit: str, total: int | None = None) -> None:
        self.model, self.role, self.total = model, role, total
        self.done = 0
        self._progress = Progress(what, unit)

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        """Encode the next texts as vectors, (N, D), in their order."""
        self._progress(self.done, self.total)
        pieces = [self._encoded(texts[first : first + PIECE]) for first in range(0, len(texts), PIECE)]
        return np.concatenate(pieces) if pieces else encode_as(self.model, self.role, texts)

    def _encoded(self, texts: Sequence[str]) -> FloatArray:
        vectors_ND = encode_as(self.model, self.role, texts)
        self.done += len(texts)
        if self.done != self.total:  # What is done at once needs no line.
            self._progress(self.done, self.total)
        return vectors_ND
