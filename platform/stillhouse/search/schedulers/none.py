"""No early stopping: every trial runs to the full budget, or to the end that its own patience sets."""

RUNGS: tuple[float, ...] = ()
CONTINUES = 1.0
"""No early ends are expected."""


def rule(full_budget: int) -> None:
    """Return no rule."""
    return None
