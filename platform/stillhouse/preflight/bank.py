"""The memory bank against the text."""

from collections.abc import Iterable

from stillhouse.preflight.finding import WARNING, Finding
from stillhouse.values.stage import Stage

CHECK = "bank"


def full_bank(plans: Iterable[Stage], rows: int) -> list[Finding]:
    """Find a memory bank that holds all of the text.

    Such a bank comes to hold every anchor's own vector. That is masked, so nothing is wrong; but the bank
    never fills, and from the second epoch on each anchor sees the same negatives. The plans are of one run or
    of the extremes of a search; the rows are 0 where there are none, or where their number is not known.
    """
    stages = [stage for plan in plans for stage in plan.chain()]
    banks = [bank for stage in stages if (bank := stage.objective.kwargs.get("bank")) is not None]
    size = max((int(bank.kwargs["size"]) for bank in banks), default=0)
    if not size >= rows > 0:
        return []
    found = (
        f"bank_size={size:,} is no smaller than the text, of {rows:,} rows: the bank comes to hold every "
        "anchor's own vector (masked, as are its duplicates) and the same negatives for all."
    )
    return [Finding(CHECK, WARNING, found, "Give more text, or a smaller bank.")]
