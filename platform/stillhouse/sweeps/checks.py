"""Checks before any work: the search space, and every plan of a search or a training run."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from stillhouse.core.artifacts import Workspace, root_folder
from stillhouse.core.cache import limit_to
from stillhouse.core.console import warn
from stillhouse.core.errors import BadInput, refusing, require
from stillhouse.core.remotes import default_remote
from stillhouse.corpora.tables import count_rows
from stillhouse.experiments.budget import Budget
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.search_queries import asymmetric_search
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.experiments.teacher_weights import weighted, with_weights
from stillhouse.methods import (
    Method,
    check_fraction,
    check_names,
    check_needs,
    hyper_parameters,
    load_method,
    name_of,
    probe,
    with_defaults,
)
from stillhouse.search.domains import cast_point, frozen
from stillhouse.search.experiment_file import load_base, load_search
from stillhouse.search.keywords import Search
from stillhouse.search.options import SweepOptions
from stillhouse.search.samplers import load_sampler
from stillhouse.search.schedulers import load_scheduler
from stillhouse.search.space import Space, check, load_space, sections_of
from stillhouse.students.backbone import layer_count
from stillhouse.students.head import dimension_of
from stillhouse.sweeps.session import device_of, need_of
from stillhouse.training.batching import check_batching, check_sharding
from stillhouse.training.least_squares import check_first_layer
from stillhouse.training.teacher_space import check_plan
from stillhouse.values.data import Examples, FewerNegatives, Recorded, Sampled, Scored, Teacher
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

FEW_STEPS = 200
"""Optimiser steps below which a user is told that a stage is short."""
_LEAST_BATCH = 16
"""No batch that nobody asked for is smaller, unless its preset's is."""

UNITS = {"text": "texts", "claim": "claims", "query": "pairs", "source": "pairs"}
"""Rows of a stage in words, by their first column."""


def fixed_values(method: Method, given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Hyper-parameters that are fixed, in the types that the method declares; a list counts as a tuple.

    Raises:
        BadInput: An unknown name (the near ones are listed), or a value of another type.
    """
    values = {name: frozen(value) for name, value in given.items()}
    check_names(method, values)
    return cast_point(values, with_weights(method.HyperParameters, values), source, "--set")


def search_space(
    method: Method,
    path: Path | str,
    *,
    section: str = "",
    sampler: str = "tpe",
    scheduler: str = "asha",
    fixed: Mapping[str, Any] | None = None,
    scale: str = "",
    data_root: str = "",
) -> Space:
    """The search space of an experiment file, checked against a method, a sampler and a scheduler.

    Args:
        method: The method that is searched.
        path: The experiment file.
        section: ``space`` (the documented grid) or ``continuous``; empty takes the grid, and the ranges where
            the file has no grid or the sampler needs ranges.
        sampler: Name of the sampler.
        scheduler: Name of the scheduler; any that stops trials early gives all of them one budget.
        fixed: What `fixed_values` gives; it is not searched.
        scale: Name of a scale of the file; empty takes the full size.
        data_root: Folder that ``$STILLHOUSE_DATA`` stands for; empty takes the environment's.

    Raises:
        BadInput: The file cannot be read, or names what the method does not have.
    """
    fixed = dict(fixed or {})
    chosen = section or _section(sampler, path)
    space = load_space(path, space=chosen, scale=scale, data_root=data_root)
    require(
        space.method == name_of(method),
        "the search space must be for this method",
        method=name_of(method),
        space=space.method,
    )
    load_scheduler(scheduler)
    left_out = () if scheduler == "none" else ("distil_epochs", "finetune_epochs")
    space = space.without(*fixed, *left_out)
    space = check(space, with_weights(method.HyperParameters, (*space.domains, *space.fixed)))
    space = dataclasses.replace(space, fixed={**space.fixed, **fixed})
    load_sampler(sampler).check(space)
    return space


def _section(sampler: str, path: Path | str) -> str:
    sections = sections_of(path)
    ranges = "continuous" in sections and getattr(load_sampler(sampler), "NEEDS_RANGES", False)
    return "continuous" if ranges or sections == ("continuous",) else "space"


def _shipped(method: str) -> Path:
    return Path(__file__).resolve().parents[3] / "search_spaces" / f"{method}.yaml"


def has_space(method: str) -> bool:
    """Return whether a search space is shipped with a method."""
    return _shipped(method).exists()


def default_space(method: str) -> Path:
    """Find the search space that is shipped with a method.

    Raises:
        BadInput: The method has none.
    """
    shipped = _shipped(method)
    if not shipped.exists():
        raise BadInput(f"a search space must be given for {method}, which comes with none. Use --space FILE.")
    return shipped


def sweep_options(
    method: str,
    experiment: Experiment,
    *,
    fixed: Mapping[str, Any] | None = None,
    preset: str = "paper",
    **search: Unpack[Search],
) -> SweepOptions:
    """Read a search space, check every plan of the search, and put the options of the sweep together.

    ``fixed`` is what `fixed_values` gives. What is left out of ``search`` or None has its default.

    Raises:
        BadInput: The first thing that cannot be used.
    """
    given: dict[str, Any] = {name: value for name, value in search.items() if value is not None}
    given |= {"root": root_folder(given.get("root")), "device": device_of(given)}
    limit_to(given.get("cache_gb"))
    module = load_method(method)
    space = _space_of(module, given, fixed or {})
    chosen = with_defaults(module, experiment)
    teacher, space = check_space(module, chosen, space, preset)
    if chosen.budget.refit.asked_for:
        chosen.budget.of_refit()
    if "trials" not in given and given.get("sampler") == "grid":
        raise BadInput(
            f"a grid needs a number of trials; this one has {space.grid_size():,} points. Give --trials N."
        )
    names = {field.name for field in dataclasses.fields(SweepOptions)} - {"space", "name", "objectives"}
    return SweepOptions(
        **{"remote": default_remote(), **{name: given[name] for name in names & set(given)}},
        name=given.get("name") or method,
        method=method,
        preset=preset,
        space=space,
        experiment=chosen,
        teacher=teacher,
        objectives=tuple(given.get("objectives", SweepOptions.objectives)),
        need=need_of(given),
        embedding=Embedding(actors=given.get("actors", 0), device=given["device"]),
    )


def _space_of(method: Method, given: Mapping[str, Any], fixed: Mapping[str, Any]) -> Space:
    """The space that `Search` asks for: the method's own where its file has fields and values alone."""
    file, scale, data_root = given.get("space"), given.get("scale", ""), str(given.get("data_root", ""))
    if file and not load_search(file, scale=scale):
        values = load_base(file, scale=scale, data_root=data_root).values
        fixed = {**fixed_values(method, values, str(file)), **fixed}
        file, scale = None, ""
    return search_space(
        method,
        file or default_space(name_of(method)),
        section=given.get("section", ""),
        sampler=given.get("sampler", SweepOptions.sampler),
        scheduler=given.get("scheduler", SweepOptions.scheduler),
        fixed=fixed,
        scale=scale,
        data_root=data_root,
    )


def warn_of_few_steps(method: Method, hp: Any, setting: Setting) -> None:
    """Say in one line which stages take so few optimiser steps that their student hardly moves.

    In a search, ``hp`` is one of its points.
    """
    stages = list(method.plan(hp, setting).chain())
    longer = {
        "--distil-budget": dataclasses.replace(setting, distil_budget=2 * setting.distil_budget),
        "--finetune-budget": dataclasses.replace(setting, finetune_budget=2 * setting.finetune_budget),
        "budget.epochs": dataclasses.replace(setting, epochs=2 * (setting.epochs or 0)),
        "budget.finetune_epochs": dataclasses.replace(
            setting, finetune_epochs=2 * (setting.finetune_epochs or 0)
        ),
    }
    budgets = {
        flag: [stage.budget for stage in method.plan(hp, other).chain()] for flag, other in longer.items()
    }
    short = []
    for at, stage in enumerate(stages):
        if stage.steps < FEW_STEPS and not stage.batch_tokens:
            flags = [flag for flag, changed in budgets.items() if changed[at] != stage.budget]
            short.append((f"{stage.label} {stage.steps:,}", flags[0] if flags else ""))
    if short:
        raised = " and ".join(dict.fromkeys(flag for _, flag in short if flag))
        more = f"Raise {raised}, or use" if raised else "Use"
        steps = ", ".join(stage for stage, _ in short)
        warn(
            f"note: very short stages, in optimiser steps: {steps}. Below {FEW_STEPS} a student hardly "
            f"changes. {more} smaller batches."
        )


def with_steps(
    method: Method, hp: Any, experiment: Experiment, teacher: Teacher, given: Mapping[str, Any]
) -> tuple[Any, tuple[str, ...]]:
    """Halve the batches that nobody chose until their stages have enough optimiser steps.

    ``hp`` has been checked, and ``given`` has the hyper-parameters that were chosen. Those to train with are
    returned, with a line on each that was changed.
    """
    notes: list[str] = []
    budget = experiment.budget
    setting = as_long_as_stated(experiment.of(teacher).sketch(), budget)
    names = [field.name for field in dataclasses.fields(hp) if field.name.endswith("batch_size")]
    for name in () if budget.batch_tokens else [name for name in names if name not in given]:
        size = before = getattr(hp, name)
        while size >= 2 * _LEAST_BATCH and size % (2 * budget.accumulate) == 0:
            halved = dataclasses.replace(hp, **{name: size // 2})
            plans = [list(method.plan(each, setting).chain()) for each in (hp, halved)]
            changed = [old for old, new in zip(*plans, strict=True) if old.batch_size != new.batch_size]
            if not changed or min(stage.steps for stage in changed) >= FEW_STEPS:
                break
            hp, size = halved, size // 2
        if size != before:
            notes.append(
                f"{name} is {size} instead of {before}, since {changed[0].budget:,} examples give few "
                f"optimiser steps (--set {name}={before} keeps it)"
            )
    return hp, tuple(notes)


def check_plans(
    method: Method, experiment: Experiment, points: Iterable[dict[str, Any]], preset: str = "paper"
) -> Teacher:
    """Find the teacher, and refuse missing data, a model, a layer or a hyper-parameter that cannot be used.

    Each point has the hyper-parameters of a plan that differ from the preset.

    Raises:
        BadInput: The first thing that cannot be used.
    """
    teacher, check = _checking(method, experiment, preset)
    for values in points:
        check(values)
    return teacher


def check_space(
    method: Method, experiment: Experiment, space: Space, preset: str = "paper"
) -> tuple[Teacher, Space]:
    """Check plans with every searched value; a method may refuse values together with others.

    Returns:
        The teacher, and the space with a point that is planned.

    Raises:
        BadInput: The first published point, or every point with a value of the space, is refused.
    """
    teacher, check = _checking(method, experiment, preset)
    for point in space.seeded:
        check({**space.fixed, **point})
    probes = list(space.probes(refusing(check)))
    for values in probes:
        check(values)
    start = {name: probes[0][name] for name in space.domains}
    return teacher, dataclasses.replace(space, start=start)


def _checking(
    method: Method, experiment: Experiment, preset: str
) -> tuple[Teacher, Callable[[Mapping[str, Any]], None]]:
    """Check an experiment; return its teacher, and what refuses hyper-parameters that cannot be planned."""
    check_needs(method, experiment)
    experiment.check()
    teacher = experiment.teacher.finder.resolve()
    setting = experiment.of(teacher).sketch()
    asymmetric = asymmetric_search(experiment)
    by_length = experiment.budget.batch_tokens > 0 or experiment.budget.length_window > 0
    if asymmetric or by_length or experiment.budget.least_squares:
        setting = dataclasses.replace(setting, teacher_dim=dimension_of(teacher))
    layers = layer_count(setting.student.kwargs["base"])

    def check(given: Mapping[str, Any]) -> None:
        values = dict(given)
        hp = hyper_parameters(method, values, preset)
        weighted(setting, values)
        probe(method, hp, setting, layers=layers)
        method.plan(hp, as_long_as_stated(setting, experiment.budget))
        check_fraction(method, hp, setting, experiment.budget)
        if hasattr(method, "check_given"):
            method.check_given(values, setting)
        if hasattr(method, "check"):
            method.check(hp, setting.student, teacher)
        if experiment.budget.shard_window:
            check_sharding(method.plan(hp, setting))
        if experiment.budget.least_squares:
            check_first_layer(method.plan(hp, setting))
        if by_length:
            check_batching(method.plan(hp, setting), setting.teacher_dim)
        if asymmetric:
            check_plan(method.plan(hp, setting), setting.teacher_dim)

    return teacher, check


def as_long_as_stated(setting: Setting, budget: Budget) -> Setting:
    """The setting with the lengths of stages that a user states; a stage shorter than a batch is refused."""
    return dataclasses.replace(
        setting,
        distil_budget=budget.distil or setting.distil_budget,
        finetune_budget=budget.finetune if budget.finetune > 0 else setting.finetune_budget,
    )


def check_rows(workspace: Workspace, stage: Stage, fraction: float) -> dict[str, int]:
    """Refuse a plan with a batch that is larger than the rows it is drawn from, before any stage is trained.

    Returns:
        The number of rows of each stage, by label.

    Raises:
        BadInput: A stage has fewer rows than its batch size.
    """
    rows = {part.label: count_rows(workspace, _without_recordings(part.examples)) for part in stage.chain()}
    for part in stage.chain():
        require(
            rows[part.label] >= part.batch_size,
            f"rows of the stage {part.label} >= batch_size",
            fraction=fraction,
            rows=rows[part.label],
            batch_size=part.batch_size,
            remedy="Give more text, a larger fraction, or a smaller batch.",
        )
    return rows


def passes(stage: Stage, rows: Mapping[str, int]) -> str:
    """Describe the length of a plan's stages, whose rows `check_rows` returns, in epochs and in examples."""
    named = []
    for part in stage.chain():
        read = rows[part.label]
        unit = UNITS.get(next(iter(part.examples.columns)), "rows")
        epochs = f"{part.budget / read:.3g}"
        times = f"{epochs} {'epoch' if epochs == '1' else 'epochs'}"
        named.append(f"{part.label}, {times} of {read:,} {unit}: {part.budget:,} examples")
    return f"Length: {'; '.join(named)}."


def labelled_rows(workspace: Workspace, stage: Stage) -> int:
    """Number of rows of all that a plan reads beside bare texts: pairs, claims, or a task's rows."""
    read = [_without_recordings(part.examples) for part in stage.chain()]
    labelled = {each.fingerprint: each for each in read if set(each.columns) != {"text"} or each.values}
    return sum(count_rows(workspace, each) for each in labelled.values())


def _without_recordings(examples: Examples) -> Examples:
    """The same rows without the values that are still to be recorded."""
    origin = examples.origin
    if isinstance(origin, Recorded | Scored):
        return _without_recordings(origin.rows)
    if isinstance(origin, Sampled | FewerNegatives):
        rows = _without_recordings(origin.rows)
        share = dataclasses.replace(origin, rows=rows)
        return dataclasses.replace(examples, origin=share, values=rows.values)
    return examples
