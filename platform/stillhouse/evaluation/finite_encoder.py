"""A model under measurement: no vector reaches a figure that is not a finite number."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import FloatArray
from stillhouse.students.cpu.products import quick_products

_SHOWN = 60


class Checked:
    """A model as an `Encoder` whose vectors are looked at before they are used.

    Attributes:
        model: The model itself, for what asks for more than vectors.
        identity: All that decides a vector: vectors that are kept are never those of another model.
    """

    def __init__(self, model: Any, identity: str = "") -> None:
        self.model, self.identity = model, identity

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """Vectors of texts, (N, D), in their order.

        Raises:
            BadInput: A vector with NaN or infinity, or not one vector a text.
        """
        # Published models encode by themselves; their float32 products on a CPU take the quick way too.
        with quick_products("cpu", "float32"):
            vectors_ND: FloatArray = np.asarray(self.model.encode(list(texts)))
        require(
            vectors_ND.ndim == 2 and len(vectors_ND) == len(texts),
            "a model gives one vector a text",
            vectors=vectors_ND.shape,
            texts=len(texts),
        )
        bad_N = ~np.isfinite(vectors_ND).all(axis=1)
        if bad_N.any():
            text = texts[int(bad_N.argmax())]
            raise BadInput(
                f"the model's vectors must be finite, but {int(bad_N.sum())} of {len(texts)} hold NaN or "
                f"infinity, the first that of {text[:_SHOWN]!r}. No figure is made of such a model."
            )
        return vectors_ND
