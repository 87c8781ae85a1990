"""The rule by which hard negatives are mined: its values, their ranges, and what it excludes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stillhouse.core.errors import require
from stillhouse.core.type_casts import check_types

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Mining:
    """The rule by which passages become hard negatives of a pair.

    The names are those of sentence-transformers' ``mine_hard_negatives``. A positive of the query, and a
    passage with the text of one, is never a negative, and counts in no rank.

    Attributes:
        range_min: Rank from which negatives are taken, after the other rules.
        range_max: Number of nearest passages that are considered, before the other rules; 0 considers all.
        relative_margin: Share of the positive's cosine by which a negative's must be lower; a negative value
            lifts the rule.
        absolute_margin: Amount by which a negative's cosine must be lower than the positive's; a negative
            value lifts the rule.
        max_score: Highest cosine of a negative with the query; 1 allows all.
        min_score: Lowest cosine of a negative with the query; -1 allows all.
        sampling: ``top`` takes the nearest passages that the rules leave, ``random`` any of them.
        seed: Seed for sampling negatives.
        index: ``exact``, or a FAISS index (see ``evaluate --index``) that finds the ``range_max`` nearest and
            may miss some.
    """

    range_min: int = 0
    range_max: int = 0
    relative_margin: float = 0.05
    absolute_margin: float = -1.0
    max_score: float = 1.0
    min_score: float = -1.0
    sampling: str = "top"
    seed: int = 0
    index: str = "exact"

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_types(self, "pairs.mining")
        low, high = self.range_min, self.range_max
        require(low >= 0, "range_min >= 0", range_min=low)
        require(high >= 0, "range_max >= 0", range_max=high)
        require(high == 0 or low < high, "range_min < range_max", range_min=low, range_max=high)
        require(self.relative_margin < 1, "relative_margin < 1", relative_margin=self.relative_margin)
        require(self.absolute_margin < 2, "absolute_margin < 2", absolute_margin=self.absolute_margin)
        require(
            -1 <= self.min_score < self.max_score <= 1,
            "-1 <= min_score < max_score <= 1",
            min_score=self.min_score,
            max_score=self.max_score,
        )
        require(self.sampling in ("top", "random"), "sampling in (top, random)", sampling=self.sampling)
        require(0 <= self.seed < 2**32, "0 <= seed < 2**32", seed=self.seed)
        require(
            self.index == "exact" or high > 0,
            "range_max > 0 with an index",
            index=self.index,
            range_max=high,
            remedy="Give the number of passages that the index finds.",
        )

    def check(self, negatives: int) -> None:
        """Refuse a rule that never leaves that many negatives.

        Raises:
            BadInput: The ranks that it allows are fewer.
        """
        require(
            self.range_max == 0 or negatives <= self.range_max - self.range_min,
            "negatives <= range_max - range_min",
            negatives=negatives,
            range_min=self.range_min,
            range_max=self.range_max,
        )

    def excluded(self, cosine_QN: "Tensor", positive_Q1: "Tensor") -> "Iterator[Tensor]":
        """Yield one mask per rule of the passages that may not be negatives, whatever their rank.

        It takes the cosines of each query with the passages, and with its positive.
        """
        if self.relative_margin >= 0:
            # A fraction of a negative cosine itself would raise the limit above it.
            yield cosine_QN >= positive_Q1 - self.relative_margin * positive_Q1.abs()
        if self.absolute_margin >= 0:
            yield cosine_QN >= positive_Q1 - self.absolute_margin
        # In floating point a cosine of 1 may be slightly more, so the ends of the range exclude nothing.
        if self.max_score < 1:
            yield cosine_QN > self.max_score
        if self.min_score > -1:
            yield cosine_QN < self.min_score
