"""By which rule hard negatives are mined."""

from dataclasses import asdict, dataclass
from typing import Any

from stillhouse.plan.mining_rule import check_mining


@dataclass(frozen=True)
class Mining:
    """Which passages may be hard negatives of a pair.

    Attributes:
        range_min: Rank from which negatives are taken, after the other rules.
        range_max: Number of nearest passages that are looked at; 0 looks at all.
        relative_margin: Share of the positive's cosine by which a negative's must be lower; a negative value
            lifts the rule.
        absolute_margin: Amount by which a negative's cosine must be lower than the positive's; a negative
            value lifts the rule.
        max_score: Highest cosine of a negative with the query.
        min_score: Lowest cosine of a negative with the query.
        sampling: ``top`` takes the nearest passages that the rules leave, ``random`` any of them.
        seed: Seed for sampling negatives.
        index: ``exact``, or a FAISS index (see ``evaluate --index``) that finds the ``range_max`` nearest.
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

    def check(self, negatives: int) -> None:
        """Refuse a rule by which that many negatives cannot be mined.

        Raises:
            BadInput: A value is out of its range, or no negative can obey all of them.
        """
        check_mining(negatives=negatives, **self.rule())
        if self.index != "exact":
            from stillhouse.evaluation.search.indexes import parse_index

            parse_index(self.index)

    def rule(self) -> dict[str, Any]:
        """The fields of `Mined` that say which passages may be negatives."""
        return asdict(self)
