"""The work of a sweep or a training, in one line before it begins."""

import time
from collections.abc import Sequence

from stillhouse.core.artifacts import Workspace
from stillhouse.core.job_clock import duration
from stillhouse.sweeps.forecast import Forecast, Remaining, seconds_of_parts
from stillhouse.training.estimate import Paces, parts_of
from stillhouse.values.stage import Stage

_WORTH_SAYING_S = 60
"""Estimated seconds below which no time is given."""


def ahead_of_sweep(forecast: Forecast) -> str:
    """Describe the work of a sweep that is left."""
    options, workspace = forecast.options, forecast.workspace
    if not any(max(0, each.options.trials - each.ended) for each in forecast.searches):
        return f"To do: all {options.trials} trials have finished; what is left of refits, test and export."
    shared = [stage for each in forecast.searches for stage in each.shared]
    named = [
        f"the stage {stage.label}, shared by all trials" for stage in shared if not workspace.finished(stage)
    ]
    for each in forecast.searches:
        if left := max(0, each.options.trials - each.ended):
            of = "" if left == each.options.trials else f" of {each.options.trials}"
            several = "s" * (each.options.trials > 1)
            whose = (
                f" of the {forecast.baseline.title}"
                if forecast.baseline and each is not forecast.method
                else ""
            )
            examples = sum(part.examples_seen for part in each.own)
            named.append(f"{left}{of} trial{several}{whose} ({examples:,} examples each)")
    if top := len(forecast.refits):
        several = "s" * (top > 1)
        lengths = " and ".join(
            f"{n:,}" for n in dict.fromkeys(plan.examples_in_all for plan in forecast.refits)
        )
        each_of_them = " each" * (top > 1)
        named.append(f"{top} long run{several} of the best trial{several} ({lengths} examples{each_of_them})")
    named.append("final test")
    seconds = forecast.parts()
    return f"To do: {', '.join(named)}{_time(None if seconds is None else sum(seconds.values()))}."


def ahead_of_training(plans: Sequence[Stage], workspace: Workspace, cores: float = 1.0) -> str:
    """Describe the stages that a training will run, and those that it finds finished."""
    stages = {part.fingerprint: part for plan in plans for part in plan.chain()}
    missing = [part for part in stages.values() if not workspace.finished(part)]
    if not missing:
        return "To do: nothing, every stage is finished."
    named = [f"{part.label}, {part.examples_seen:,} examples" for part in missing]
    done = [part.label for part in stages.values() if part not in missing]
    skipped = f" ({_listed(done)} {'is' if len(done) == 1 else 'are'} finished)" if done else ""
    count = f"{len(missing)} stages: " if len(missing) > 1 else "stage "
    return f"To do: {count}{'; '.join(named)}{skipped}{_time(training_left(plans, workspace, cores))}."


def training_left(plans: Sequence[Stage], workspace: Workspace, cores: float) -> float | None:
    """Estimate the seconds that plans will still take, one after the other; stages in common count once."""
    students, seen = [], set[str]()
    for plan in plans:
        students.append(parts_of(plan, workspace, without=seen))
        seen |= {part.fingerprint for part in plan.chain()}
    work = Remaining(students=students, cores=cores)
    seconds = seconds_of_parts(work, Paces(workspace).known(work.live()), now=time.time())
    return None if seconds is None else sum(seconds.values())


def _time(seconds: float | None) -> str:
    """The estimate at the end of a line; empty where nothing like it was trained, or it is short."""
    if seconds is None or seconds < _WORTH_SAYING_S:
        return ""
    return f"; about {duration(seconds)}, as similar stages took here"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
