"""The rule by which hard negatives are mined: its parameters and their checks."""

from stillhouse.core.errors import require

MINING_RULE = (
    *("range_min", "range_max", "relative_margin", "absolute_margin"),
    *("max_score", "min_score", "sampling", "seed", "index"),
)


def check_mining(
    *,
    negatives: int,
    range_min: int,
    range_max: int,
    relative_margin: float,
    absolute_margin: float,
    max_score: float,
    min_score: float,
    sampling: str,
    seed: int,
    index: str,
) -> None:
    """Refuse a rule that cannot yield negatives.

    Raises:
        BadInput: A value is out of range, or no negative can satisfy all of them.
    """
    require(range_min >= 0, "range_min >= 0", range_min=range_min)
    require(range_max >= 0, "range_max >= 0", range_max=range_max)
    require(
        range_max == 0 or range_min < range_max,
        "range_min < range_max",
        range_min=range_min,
        range_max=range_max,
    )
    require(
        range_max == 0 or negatives <= range_max - range_min,
        "negatives <= range_max - range_min",
        negatives=negatives,
        range_min=range_min,
        range_max=range_max,
    )
    require(relative_margin < 1, "relative_margin < 1", relative_margin=relative_margin)
    require(absolute_margin < 2, "absolute_margin < 2", absolute_margin=absolute_margin)
    require(
        -1 <= min_score < max_score <= 1,
        "-1 <= min_score < max_score <= 1",
        min_score=min_score,
        max_score=max_score,
    )
    require(sampling in ("top", "random"), "sampling in (top, random)", sampling=sampling)
    require(0 <= seed < 2**32, "0 <= seed < 2**32", seed=seed)
    require(
        index == "exact" or range_max > 0,
        "range_max > 0 with an index",
        index=index,
        range_max=range_max,
        remedy="Give the number of passages that the index finds.",
    )
