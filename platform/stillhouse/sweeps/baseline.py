"""The baseline of a sweep: a second search of the same recipe, with another distillation loss or none.

`methods.baselines` says which. Student, stages, labelled text, examples and evaluations are the sweep's; so
are sampler and scheduler, and the domains of the hyper-parameters that both methods have.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stillhouse.experiments.teacher_weights import is_weight
from stillhouse.methods import fields_of, hyper_parameters, load_method
from stillhouse.methods.baselines import MSE, Baseline
from stillhouse.search.effects import without_idle
from stillhouse.search.observer import Observer
from stillhouse.search.options import SweepOptions
from stillhouse.search.records import TrialRecord
from stillhouse.search.samplers import load_sampler
from stillhouse.search.shared_stages import first_point
from stillhouse.search.space import Categorical, Domain, Float, Space
from stillhouse.search.trial import Context
from stillhouse.values.kinds import needed


@dataclass(frozen=True)
class BaselineSearch:
    """The search of a baseline.

    Attributes:
        title: What tables call the baseline.
        options: The sweep with the baseline's method, space and number of trials.
        context: What its trials share.
    """

    title: str
    options: SweepOptions
    context: Context

    def refitted(self, context: Context, point: Mapping[str, Any]) -> Context:
        """What the refits of its trials share, from what the method's share and a point of any of these."""
        found = as_baseline(context, point)
        assert found is not None, "where trials have a baseline, so have their refits"
        return found


@dataclass(frozen=True)
class Tried:
    """The baseline after its search, in which a trial has run to its end; see `BaselineSearch`."""

    title: str
    context: Context
    records: list[TrialRecord]
    observer: Observer


def baseline_of(method: str) -> Baseline | None:
    """The baseline of a method; None for a method that is one itself."""
    found: Baseline | None = getattr(load_method(method), "BASELINE", MSE)
    return found


def baseline_search(options: SweepOptions, context: Context) -> tuple[BaselineSearch | None, str]:
    """Put the search of a sweep's baseline together; return None and why where there is no baseline."""
    baseline = baseline_of(options.method)
    trials = options.trials if options.baseline_trials is None else options.baseline_trials
    if baseline is None:
        return None, f"No baseline: {options.method} is one itself."
    if not trials:
        return None, f"No baseline: the {baseline.title} was left out (--baseline-trials 0)."
    own = as_baseline(context, first_point(options.space))
    if own is None:
        return None, f"No baseline: the data of this sweep does not do for the {baseline.title}."
    space = without_idle(own, _space(baseline, options, context), quiet=True)
    trials = min(trials, space.points or trials)
    changed: dict[str, Any] = {"method": own.method, "preset": own.preset, "space": space, "trials": trials}
    return BaselineSearch(baseline.title, dataclasses.replace(options, **changed), own), ""


def as_baseline(context: Context, point: Mapping[str, Any]) -> Context | None:
    """What the baseline's trials or refits share, with as many examples as the method's.

    It follows from what the method's share, and from a point of any of them. It is None if the data lacks
    what the baseline reads, or selects it by another dev figure.
    """
    baseline = baseline_of(context.method)
    if baseline is None:
        return None
    reads = {need.kind.key for need in needed(load_method(context.method).needs)}
    data = {key: value for key, value in context.setting.data.items() if key in reads}
    own = dataclasses.replace(
        context,
        method=baseline.method or context.method,
        preset="paper" if baseline.method else context.preset,
        setting=dataclasses.replace(context.setting, data=data),
    )
    needs = needed(load_method(own.method).needs)
    if any(need.required and need.kind.key not in data for need in needs):
        return None
    plan, values = context.plan(dict(point)), shared_values(baseline, context, point)
    first = own.plan(values)
    if first.dev is None or plan.dev is None or first.dev.select != plan.dev.select:
        return None
    return _as_long(own, values, sum(part.budget for part in plan.chain()))


def _as_long(context: Context, values: dict[str, Any], examples: int) -> Context:
    """The same with a longer first stage, where the plan would have fewer examples than asked for."""
    budgets = [part.budget for part in context.plan(values).chain()]
    longer = budgets[0] + examples - sum(budgets)
    distil = dataclasses.replace(context.setting, distil_budget=longer, epochs=None)
    finetune = dataclasses.replace(context.setting, finetune_budget=longer, finetune_epochs=None)
    for setting in (context.setting, distil, finetune):
        found = dataclasses.replace(context, setting=setting)
        if sum(part.budget for part in found.plan(values).chain()) >= examples:
            return found
    return context


def shared_values(baseline: Baseline, context: Context, point: Mapping[str, Any]) -> dict[str, Any]:
    """The baseline's hyper-parameters at a point of the method, as far as they are not its own defaults."""
    hp: Any = hyper_parameters(load_method(context.method), dict(point), context.preset)
    other = load_method(baseline.method or context.method)
    default = other.PRESETS["paper" if baseline.method else context.preset]
    values = {name: getattr(hp, its) for name, its in _names(baseline, context.method).items()}
    first = next(context.plan(dict(point)).chain()).student.kwargs.get("projection")
    if (
        first == context.setting.teacher_dim
        and "keep_projection" not in values
        and hasattr(default, "keep_projection")
    ):
        values["keep_projection"] = True
    weights = {name: value for name, value in point.items() if is_weight(name)}
    values = {**values, **baseline.values}
    return {**{name: value for name, value in values.items() if value != getattr(default, name)}, **weights}


def _names(baseline: Baseline, method: str) -> dict[str, str]:
    """The baseline's hyper-parameters that a method has, too, and their names there."""
    known = {field.name for field in fields_of(load_method(method))}
    names = {}
    for field in fields_of(load_method(baseline.method or method)):
        its = baseline.named.get(field.name, "")
        its = its if its in known else field.name
        if its in known:
            names[field.name] = its
    return names


def _space(baseline: Baseline, options: SweepOptions, context: Context) -> Space:
    """The sweep's domains of what both methods have, and rates of the baseline's where it has none."""
    space, ranges = options.space, getattr(load_sampler(options.sampler), "NEEDS_RANGES", False)
    names = {
        name: its for name, its in _names(baseline, options.method).items() if name not in baseline.values
    }
    names |= {name: name for name in space.domains if is_weight(name)}
    domains: dict[str, Domain] = {
        name: space.domains[its] for name, its in names.items() if its in space.domains
    }
    middle = {}
    known = {field.name for field in fields_of(load_method(baseline.method or options.method))}
    for name, rates in baseline.rates.items():
        if name in known and name not in domains:
            domains[name] = Float(rates[0], rates[-1], log=True) if ranges else Categorical(rates)
            middle[name] = rates[len(rates) // 2]
    values = shared_values(baseline, context, first_point(space))

    def seeded(point: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if point is None:
            return None
        return {name: middle[name] if name in middle else point[names[name]] for name in domains}

    return Space(
        baseline.method or options.method,
        domains,
        fixed={name: value for name, value in values.items() if name not in domains},
        first=seeded(space.first),
        second=seeded(space.second),
        section=space.section,
    )
