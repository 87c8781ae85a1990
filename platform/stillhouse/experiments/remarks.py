"""What is said of an experiment that can run, but may not be what was meant."""

from collections.abc import Iterable

from stillhouse.core.console import warn
from stillhouse.plan.stage import Stage


def tell_full_bank(plans: Iterable[Stage], rows: int) -> None:
    """Warn of a memory bank that all of the text fits in.

    Then it comes to hold every anchor's own vector. That is masked, so nothing is wrong; but the bank never
    fills, and from the second epoch on each anchor sees the same negatives.

    Args:
        plans: Of one run, or of the extremes of a search.
        rows: Texts that are trained on.
    """
    stages = [stage for plan in plans for stage in plan.chain()]
    banks = [bank for stage in stages if (bank := stage.objective.kwargs.get("bank")) is not None]
    size = max((int(bank.kwargs["size"]) for bank in banks), default=0)
    if size >= rows > 0:
        warn(
            f"note: bank_size={size:,} is no smaller than the text, of {rows:,} rows: the bank comes to hold "
            "every anchor's own vector (masked, as are its duplicates) and the same negatives for all. "
            "Give more text, or a smaller bank."
        )
