"""What a sweep or a training will do, said in one line before it begins."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import duration
from stillhouse.search.options import SweepOptions
from stillhouse.search.shared_stages import first_point, shared_stages
from stillhouse.search.study_copies import ended_trials
from stillhouse.search.trial import Context
from stillhouse.sweeps.baseline import baseline_choices, baseline_name, rates_of
from stillhouse.training.estimate import seconds_of
from stillhouse.values.stage import Stage

_WORTH_SAYING_S = 60
"""Estimated seconds below which no time is given."""


def ahead_of_sweep(
    options: SweepOptions, context: Context, plan: Stage, study: Path, at_once: int, refit: Stage | None
) -> str:
    """Describe the work of a sweep that is left.

    Args:
        options: The sweep.
        context: What its trials share.
        plan: Plan of one of its trials.
        study: The database of its trials, which need not exist.
        at_once: Trials at once.
        refit: Plan of one refit; None if there is none.
    """
    workspace = context.workspace
    ended = ended_trials(study)
    left = max(0, options.trials - ended)
    if not left:
        return f"ahead: all {options.trials} trials have ended, so only what is not finished of the rest"
    shared = shared_stages(context, options.space)
    kept = {stage.fingerprint for stage in shared}
    one_trial = [part for part in plan.chain() if part.fingerprint not in kept]
    before = [stage for stage in shared if not workspace.finished(stage)]
    students = _students(options, context, plan) if ended else len(rates_of(options.method))
    named = [f"the stage {stage.label}, which all trials share" for stage in before]
    if students:
        several = "s" if students > 1 else ""
        named.append(f"{students} student{several} of the {baseline_name(options.method)}")
    of = "" if left == options.trials else f" of {options.trials}"
    examples = sum(part.examples_seen for part in one_trial)
    named.append(f"{left}{of} trials of {examples:,} examples")
    again: list[Stage] = []
    if refit is not None:
        top = min(options.experiment.budget.refit.top, options.trials)
        named.append(f"{top} refit{'s' if top > 1 else ''} of {refit.examples_in_all:,} examples")
        again = list(refit.chain()) * top
    named.append("the test of the best student")
    work = [before, one_trial * (students + left), again]
    return f"ahead: {_listed(named)}{_time(work, workspace, at_once)}"


def ahead_of_training(plans: Sequence[Stage], workspace: Workspace) -> str:
    """Describe the stages that a training will run, and those that it finds finished."""
    stages = {part.fingerprint: part for plan in plans for part in plan.chain()}
    missing = [part for part in stages.values() if not workspace.finished(part)]
    if not missing:
        return "ahead: nothing, every stage is finished"
    named = [f"{part.label}, {part.examples_seen:,} examples" for part in missing]
    done = [part.label for part in stages.values() if part not in missing]
    skipped = f" ({_listed(done)} {'is' if len(done) == 1 else 'are'} finished)" if done else ""
    count = f"{len(missing)} stages: " if len(missing) > 1 else "stage "
    return f"ahead: {count}{'; '.join(named)}{skipped}{_time([missing], workspace, 1)}"


def _students(options: SweepOptions, context: Context, plan: Stage) -> int:
    """Number of the baseline's students that are not trained; its trials' rows must be there."""
    of_baseline, choices = baseline_choices(context, plan, first_point(options.space))
    return sum(not context.workspace.finished(of_baseline.plan(values)) for values in choices)


def _time(work: Iterable[Sequence[Stage]], workspace: Workspace, at_once: int) -> str:
    """The estimate at the end of a line; empty where nothing like it was trained, or it is short."""
    seconds = [seconds_of(stages, workspace) for stages in work]
    known = [each for each in seconds if each is not None]
    if len(known) < len(seconds) or sum(known) / at_once < _WORTH_SAYING_S:
        return ""
    time = duration(sum(known) / at_once)
    return f"; about {time} of training without evaluations, as similar stages took here"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
