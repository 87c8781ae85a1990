"""What plans tell of a search before it begins: values without effect, refused points, and missed rungs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stillhouse.core.console import say
from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import Spec, canonical
from stillhouse.search.schedulers import unmet
from stillhouse.search.shared_stages import first_point
from stillhouse.search.space import Space, ends_of
from stillhouse.search.trial import Context
from stillhouse.values.stage import Stage

Effect = frozenset[tuple[str, str]] | None
"""Label of a stage and name of a term, for each term through which a hyper-parameter acts.

Empty if it changes nothing of the plan; None if it acts on more than terms: on an optimiser, the student, the
data, or the whole loss.
"""

_POINTS = 16
"""Random points of the space from which a hyper-parameter that seems to do nothing is varied."""


def without_idle(context: Context, space: Space, *, quiet: bool = False) -> Space:
    """Leave out of a space what changes nothing in any plan, and say so in a line unless ``quiet``.

    Raises:
        BadInput: Nothing is left to search.
    """
    idle = idle_in(context, space)
    if not idle:
        return space
    require(
        len(idle) < len(space.domains),
        "a searched hyper-parameter must change something in the plan",
        searched=idle,
        remedy="Search others, or give the budgets of the stages that these are for.",
    )
    if not quiet:
        say(f"not searched, since with these budgets and data nothing depends on it: {', '.join(idle)}")
    kept = {name: value for name, value in (space.first or {}).items() if name in idle}
    return replace(space.without(*idle), fixed={**space.fixed, **kept})


def idle_in(context: Context, space: Space) -> list[str]:
    """List what changes nothing in any plan."""
    draws = np.random.default_rng(0).random((_POINTS, len(space.domains)))
    tried = [*space.probes(context.refusal), *({**space.fixed, **space.at(list(draw))} for draw in draws)]
    return [name for name, effect in effects(context, space, tried).items() if effect == frozenset()]


def effects(context: Context, space: Space, tried: Iterable[Mapping[str, Any]] = ()) -> dict[str, Effect]:
    """Find what each searched hyper-parameter changes, from plans that differ in it alone.

    One that seems to change nothing is also varied from the points that were tried, since it may act only
    together with others.
    """
    starts, found = [space.any_point, first_point(space)], {}
    for name in space.domains:
        effect = _effect(context, space, name, starts)
        found[name] = effect if effect or effect is None else _effect(context, space, name, tried)
    return found


def _effect(context: Context, space: Space, name: str, starts: Iterable[Mapping[str, Any]]) -> Effect:
    terms: set[tuple[str, str]] = set()
    for start in starts:
        try:
            plan = context.plan(dict(start))
        except BadInput:
            continue
        for value in ends_of(space.domains[name]):
            try:
                other = context.plan({**start, name: value})
            except BadInput:  # A value that the method refuses here is not without effect.
                return None
            part = _difference(plan, other)
            if part is None:
                return None
            terms |= part
    return frozenset(terms)


def _difference(plan: Stage, other: Stage) -> Effect:
    stages, others = list(plan.chain()), list(other.chain())
    if [stage.label for stage in stages] != [stage.label for stage in others]:
        return None
    terms: set[tuple[str, str]] = set()
    for one, two in zip(stages, others, strict=True):
        if one.fingerprint == two.fingerprint:
            continue
        own, its = _own_fields(one), _own_fields(two)
        if {name for name in own if own[name] != its[name]} - {"objective"}:
            return None
        for path in _paths(own["objective"], its["objective"]):
            term = _term(one.objective, path)
            if term is None:
                return None
            terms.add((one.label, term))
    return frozenset(terms)


def _own_fields(stage: Stage) -> dict[str, Any]:
    """A stage's fields in canonical form, with the label instead of each stage that it reads."""
    own = canonical(stage)
    return {name: _without_stages(value, own["value"]) for name, value in own["with"].items()}


def _without_stages(tree: Any, kind: str) -> Any:
    if isinstance(tree, dict):
        if tree.get("value") == kind:
            return tree["with"]["label"]
        return {name: _without_stages(value, kind) for name, value in tree.items()}
    return [_without_stages(item, kind) for item in tree] if isinstance(tree, list) else tree


def _paths(one: Any, two: Any, prefix: str = "") -> Iterator[str]:
    """Paths of the arguments in which two canonical specs of one class differ."""
    if one == two:
        return
    specs = (
        isinstance(one, dict) and isinstance(two, dict) and "call" in one and one["call"] == two.get("call")
    )
    if not specs:
        yield prefix
        return
    for name, value in one["with"].items():
        yield from _paths(value, two["with"].get(name), f"{prefix}.{name}" if prefix else name)


def _term(objective: Spec[Any], path: str) -> str | None:
    """The only term that an argument changes; None if it changes several, or if that is not known."""
    target: Any = objective.target
    acts_through: Mapping[str, str] = target.acts_through
    above = [known for known in acts_through if path == known or path.startswith(f"{known}.")]
    return acts_through[max(above, key=len)] if above else None


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
