"""The candidates of a claim: its nearest documents, which of them are relevant, and how many are missing.

Shakeri et al., Knowledge Distillation in Document Retrieval, §2.1.

Q  claims    C  candidates per claim    K  depth of a ranking, at least C
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import IntArray

Gold = Sequence[Collection[int]]
"""Ids of the relevant documents of each claim."""


@dataclass(frozen=True)
class Candidates:
    """C documents for every claim.

    Attributes:
        ids_QC: int64 document ids, nearest first; distinct within a claim.
        labels_QC: Whether each candidate is relevant.
        gold_counts_Q: int64 number of relevant documents per claim, including those outside the candidates.
    """

    ids_QC: npt.NDArray[np.int64]
    labels_QC: npt.NDArray[np.bool_]
    gold_counts_Q: npt.NDArray[np.int64]


def pick_candidates(ids_QK: IntArray, gold: Gold, c: int, *, force_gold: bool) -> Candidates:
    """Take the C nearest documents of every claim and label them.

    Args:
        ids_QK: Document ids, nearest first.
        gold: The relevant documents.
        c: Number of candidates per claim (C).
        force_gold: Insert missing relevant documents, by id, instead of the furthest irrelevant ones; at most
            C. Meant for training: in an evaluation it would hide the misses of the first search.

    Raises:
        BadInput: If there is not one ranking per claim, or C exceeds the depth of the rankings.
    """
    _require_ranking(ids_QK, gold, (c,))
    ids_QC = np.array(ids_QK[:, :c], np.int64)
    for row, relevant in enumerate(gold):
        missing = sorted(set(relevant) - set(ids_QC[row].tolist()))
        if not force_gold or not missing:
            continue
        free = np.flatnonzero(~np.isin(ids_QC[row], list(relevant)))[-len(missing) :]
        ids_QC[row, free] = missing[: len(free)]
    labels_QC = np.array([np.isin(ids, list(relevant)) for ids, relevant in zip(ids_QC, gold, strict=True)])
    counts_Q = np.array([len(set(relevant)) for relevant in gold], np.int64)
    return Candidates(ids_QC, labels_QC.reshape(ids_QC.shape), counts_Q)


def coverage(ids_QK: IntArray, gold: Gold, depths: Sequence[int]) -> dict[int, float]:
    """Compute the share of claims whose relevant documents are all among the C nearest, by C (Table 1).

    Raises:
        BadInput: If there are no claims, a claim has no relevant document, or C exceeds the depth.
    """
    _require_ranking(ids_QK, gold, depths)
    if not len(gold) or not all(gold):
        lacking = sum(not relevant for relevant in gold)
        raise BadInput(
            f"coverage needs claims with a relevant document each, but {lacking} of {len(gold)} claims "
            "have none."
        )
    deepest = [_depth_of_all(ids, relevant) for ids, relevant in zip(ids_QK.tolist(), gold, strict=True)]
    return {c: sum(depth <= c for depth in deepest) / len(deepest) for c in depths}


def _depth_of_all(ids: list[int], relevant: Collection[int]) -> float:
    ranks = {document: rank for rank, document in enumerate(ids, start=1)}
    return max(ranks.get(document, float("inf")) for document in relevant)


def _require_ranking(ids_QK: IntArray, gold: Gold, depths: Sequence[int]) -> None:
    if ids_QK.ndim != 2 or len(ids_QK) != len(gold):
        raise BadInput(
            f"there must be one ranking for every claim, but rankings have the shape {ids_QK.shape} and "
            f"there are {len(gold)} claims."
        )
    require(
        all(1 <= c <= ids_QK.shape[1] for c in depths),
        "1 <= C <= depth of the ranking",
        C=list(depths),
        depth=ids_QK.shape[1],
        remedy="Search deeper, or over more documents.",
    )
