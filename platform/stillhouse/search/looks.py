"""What is said of a search before it begins: points that are refused, and rungs that no evaluation meets."""

from stillhouse.search.schedulers import unmet
from stillhouse.search.shared_stages import first_point
from stillhouse.search.space import Space
from stillhouse.search.trial import Context


def refusals(space: Space, context: Context) -> str:
    """Say how many points of the space the method refuses, and the first reason; empty if it refuses none."""
    points = list(space.sample())
    reasons = [reason for reason in map(context.refusal, points) if reason]
    if not reasons:
        return ""
    every = "points" if len(points) == space.points else "points drawn from it"
    return f"{len(reasons)} of {len(points)} {every} are refused, and not tried: {reasons[0]}"


def missed_rungs(space: Space, context: Context, scheduler: str) -> str:
    """Say how many rungs fall on another evaluation; empty if each has its own."""
    missed = unmet(context.plan(first_point(space)), len(context.points))
    if not missed:
        return ""
    return (
        f"{missed} of {len(context.points)} points at which {scheduler} judges fall on another evaluation: "
        "these stages have too few steps"
    )
