"""Speed of reading pairs of texts: the cost of serving a pair, whatever the pair is for."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.types import BatchedModel, ColumnScorer, Encoder, PairReader


@dataclass(frozen=True)
class TextPairs:
    """Pairs of texts in the order in which they are read."""

    first: Sequence[str]
    second: Sequence[str]

    def __len__(self) -> int:
        return len(self.first)


def pair_speed(model: Any, pairs: TextPairs, *, at_once: int) -> dict[str, float]:
    """Measure one pass over all pairs, in batches, after a batch that is not timed; tokenisation included.

    A model that was trained on pairs scores them; of any other, the vectors of both texts are computed. A
    text that occurs several times in a batch may be read once, as it would be when serving. Where the model
    batches by itself, ``at_once`` is also the number of texts per forward pass.
    """
    require(
        len(pairs) >= 1 and at_once >= 1, "pairs and pairs per batch >= 1", pairs=len(pairs), at_once=at_once
    )
    read = reader_of(model, at_once)
    read(pairs.first[:at_once], pairs.second[:at_once])
    began = time.perf_counter()
    for start in range(0, len(pairs), at_once):
        read(pairs.first[start : start + at_once], pairs.second[start : start + at_once])
    seconds = time.perf_counter() - began
    return {
        "pairs": float(len(pairs)),
        "pairs_per_batch": float(at_once),
        "seconds": seconds,
        "pairs_per_second": len(pairs) / seconds,
    }


def reader_of(model: Any, at_once: int) -> Callable[[Sequence[str], Sequence[str]], object]:
    """Return what reads a batch of pairs: the model's scores, or its vectors of both sides."""
    batched = model.in_batches(at_once) if isinstance(model, BatchedModel) else model
    if isinstance(batched, PairReader) or (isinstance(batched, ColumnScorer) and len(batched.columns) == 2):
        return lambda first, second: batched.score(list(first), list(second))
    encode = _encode(batched, at_once)
    return lambda first, second: (encode(list(first)), encode(list(second)))


def _encode(model: Encoder, at_once: int) -> Callable[[list[str]], object]:
    """Return the encoding of a batch; sentence-transformers is told the size of its batches."""
    from sentence_transformers import SentenceTransformer

    if isinstance(model, SentenceTransformer):
        return lambda texts: model.encode(texts, batch_size=at_once, show_progress_bar=False)
    return model.encode


def seconds_to_open(open_model: Callable[[], object]) -> float:
    """Measure how long it takes to open a model again: its files have been read, and libraries imported."""
    began = time.perf_counter()
    open_model()
    return time.perf_counter() - began
