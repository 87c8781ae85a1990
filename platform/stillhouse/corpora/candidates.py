"""The candidates of a claim: its nearest documents, which of them are relevant, and how many are missed.

Shakeri et al., Knowledge Distillation in Document Retrieval, §2.1.

Q  claims    C  candidates a claim    K  depth of a ranking, at least C
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stillhouse.core.errors import require
from stillhouse.core.types import IntArray

Gold = Sequence[Collection[int]]
"""The ids of the relevant documents of every claim."""


@dataclass(frozen=True)
class Candidates:
    """C documents for every claim.

    Attributes:
        ids_QC: int64 document ids, nearest first; none twice in a row.
        labels_QC: Whether a candidate is relevant.
        gold_counts_Q: int64, relevant documents of a claim, those that are no candidate included.
        forced: Relevant documents that were put in although they are not among the C nearest.
    """

    ids_QC: npt.NDArray[np.int64]
    labels_QC: npt.NDArray[np.bool_]
    gold_counts_Q: npt.NDArray[np.int64]
    forced: int


def pick_candidates(ids_QK: IntArray, gold: Gold, c: int, *, force_gold: bool) -> Candidates:
    """Take the C nearest documents of every claim and label them.

    Args:
        ids_QK: Document ids, nearest first.
        gold: The relevant documents.
        c: C.
        force_gold: Put in the relevant documents that are missing, in the place of the furthest irrelevant
            ones, by id; of more than C relevant ones as many as fit. For training: in an evaluation it would
            take the misses of the first search out of the figures.

    Raises:
        BadInput: Another number of rankings than of claims, or C beyond their depth.
    """
    _require_ranking(ids_QK, gold, (c,))
    ids_QC = np.array(ids_QK[:, :c], np.int64)
    forced = 0
    for row, wanted in enumerate(gold):
        missing = sorted(set(wanted) - set(ids_QC[row].tolist()))
        if not force_gold or not missing:
            continue
        free = np.flatnonzero(~np.isin(ids_QC[row], list(wanted)))[-len(missing) :]
        ids_QC[row, free] = missing[: len(free)]
        forced += len(free)
    labels_QC = np.array([np.isin(ids, list(wanted)) for ids, wanted in zip(ids_QC, gold, strict=True)])
    counts_Q = np.array([len(set(wanted)) for wanted in gold], np.int64)
    return Candidates(ids_QC, labels_QC.reshape(ids_QC.shape), counts_Q, forced)


def coverage(ids_QK: IntArray, gold: Gold, depths: Sequence[int]) -> dict[int, float]:
    """The share of the claims whose relevant documents are all among the C nearest, by C (Table 1).

    Args:
        ids_QK: Document ids, nearest first.
        gold: The relevant documents, at least one a claim.
        depths: Values of C.

    Raises:
        BadInput: No claims, a claim without a relevant document, or C beyond the ranking.
    """
    _require_ranking(ids_QK, gold, depths)
    require(len(gold) > 0 and all(gold), "there are claims, each with a relevant document", claims=len(gold))
    deepest = [_depth_of_all(ids, wanted) for ids, wanted in zip(ids_QK.tolist(), gold, strict=True)]
    return {c: sum(depth <= c for depth in deepest) / len(deepest) for c in depths}


def _depth_of_all(ids: list[int], wanted: Collection[int]) -> float:
    places = {document: rank for rank, document in enumerate(ids, start=1)}
    return max(places.get(document, float("inf")) for document in wanted)


def _require_ranking(ids_QK: IntArray, gold: Gold, depths: Sequence[int]) -> None:
    require(
        ids_QK.ndim == 2 and len(ids_QK) == len(gold),
        "a ranking for every claim",
        rankings=ids_QK.shape,
        claims=len(gold),
    )
    require(
        all(1 <= c <= ids_QK.shape[1] for c in depths),
        "1 <= C <= depth of the ranking",
        C=list(depths),
        depth=ids_QK.shape[1],
        remedy="Search deeper, or over more documents.",
    )
