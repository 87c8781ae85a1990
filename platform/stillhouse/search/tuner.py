"""The search: Tune runs the trials, and our searcher owns the study."""

import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

from ray import tune
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune import Callback
from ray.tune.execution import class_cache
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from stillhouse.cluster.slots import Slots
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say, tell
from stillhouse.core.errors import BadInput
from stillhouse.core.redaction import names_secret
from stillhouse.evaluation.serving_cost import latency_ms
from stillhouse.methods import load_method
from stillhouse.search.effects import missed_rungs, refusals
from stillhouse.search.observer import Observer
from stillhouse.search.options import LATENCY, SIZE, SweepOptions
from stillhouse.search.published_sweep import PublishedSweep
from stillhouse.search.records import TrialRecord
from stillhouse.search.scheduler import StudyScheduler
from stillhouse.search.schedulers import load_scheduler
from stillhouse.search.searcher import ExplainErrors, StudySearcher
from stillhouse.search.shared_stages import first_point
from stillhouse.search.study_backup import STUDY
from stillhouse.search.trial import Context, run_trial
from stillhouse.training.models import encoder_in
from stillhouse.training.rank_sync import Interrupted
from stillhouse.training.worker import free_resources
from stillhouse.values.stage import Stage

_RETRIES = 3
"""Times that a trial resumes from its checkpoint after its process or node was lost."""
_ALIKE = 3
"""First trials that end the search if they fail for one reason."""
_METRICS = {SIZE: ("size_mb", "min"), LATENCY: ("latency_ms_p50", "min")}


def search(
    options: SweepOptions,
    context: Context,
    folder: Path,
    observer: Observer,
    slots: Slots,
    study: str = STUDY,
) -> list[TrialRecord]:
    """Run the remaining trials, and return all trials of the study in a folder, ordered by number.

    Every start is a new Tuner over the study on disk: trials that a killed driver left behind are issued
    again with their own values and resume from their checkpoints.
    """
    budget = context.plan(first_point(options.space)).examples_in_all
    searcher = _searcher(options, context, folder / study, budget, slots)
    published = PublishedSweep(context.workspace, folder)
    published.publish()
    known = searcher.records()
    observer.over.update(record.number for record in known if record.state != "RUNNING")
    left = options.trials - sum(record.state != "RUNNING" for record in known)
    say(_announce(options, budget, len(known), left, observer.search))
    for said in (refusals(options.space, context), missed_rungs(options.space, context, options.scheduler)):
        if said:
            say(f"  {said}")
    if options.space.first and left > 0:
        say(_describe_first(options, context))
    if left > 0:
        scheduler = _scheduler(options, context, budget, known)
        _tune(options, context, folder, observer, searcher, scheduler, left, slots, published)
    records = searcher.records()
    if options.need.nested:
        _free_resources(context, records)
    for record in records:
        observer.ended(record)
    unfinished = [record.number for record in records if record.state == "RUNNING"]
    if unfinished:
        raise Interrupted(f"Tune ended before the trials {unfinished} did.")
    return records


class ReportEnds(Callback):  # type: ignore[misc]
    """Reports to the observer how a trial ended according to the study, which is then published."""

    def __init__(
        self, searcher: StudySearcher, observer: Observer, *, trials: int, published: PublishedSweep
    ) -> None:
        """Tune must call the searcher and the observer before this callback."""
        self.searcher, self.observer, self.published = searcher, observer, published
        self.trials = trials
        self._first_reasons: list[str] = []

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune pickles its callbacks for a restore that never happens."""
        return {}

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial ended, was stopped, or failed for good."""
        record = next(r for r in self.searcher.records() if r.number == trial.config["trial"])
        self.observer.ended(record)
        self.published.publish()
        if record.state != "RUNNING":
            self._first_reasons.append(record.reason or "")
        if (ended := len(self.observer.over)) < self.trials:
            have = "has" if ended == 1 else "have"
            tell(f"{ended} of {self.trials} trials of the {self.observer.search} {have} ended")

    on_trial_error = on_trial_complete

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """End the search if the first trials of this start all failed for one reason, as others would.

        Raises:
            BadInput: They did.
        """
        first = self._first_reasons[:_ALIKE]
        if len(first) == _ALIKE and first[0] and len(set(first)) == 1:
            raise BadInput(
                f"trials must not all fail alike, but the first {_ALIKE} failed with: "
                f"{first[0].rstrip('.')}. Remove the cause, and run the same command again: it goes on with "
                "the next trial."
            )


def _tune(
    options: SweepOptions,
    context: Context,
    folder: Path,
    observer: Observer,
    searcher: StudySearcher,
    scheduler: TrialScheduler,
    left: int,
    slots: Slots,
    published: PublishedSweep,
) -> None:
    scratch = folder / "tune"
    keep_credentials_here()
    RayActorManager._actor_task_failed = _task_failed
    # Tune lets one trial of a searcher wait for resources, and so a cluster grow by one node at a time.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(slots())
    shutil.rmtree(scratch, ignore_errors=True)
    trainable = tune.with_resources(tune.with_parameters(run_trial, context=context), options.need.trial)
    tuner = tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=searcher, scheduler=scheduler, num_samples=left, reuse_actors=True
        ),
        run_config=tune.RunConfig(
            name=f"{options.name}-{int(time.time())}",
            storage_path=str(scratch),
            callbacks=[
                observer,
                ExplainErrors(searcher),
                ReportEnds(searcher, observer, trials=options.trials, published=published),
            ],
            failure_config=tune.FailureConfig(max_failures=_RETRIES),
            verbose=0,
        ),
    )
    tuner.fit()
    shutil.rmtree(scratch, ignore_errors=True)


def _task_failed(self: RayActorManager, tracked_actor_task: Any, exception: Exception) -> None:
    """Take a process that a memory monitor killed for a lost one: Tune knows no such error, and would end."""
    killed = isinstance(exception, OutOfMemoryError)
    _failed(self, tracked_actor_task, RayActorError(error_msg=str(exception)) if killed else exception)


_failed = RayActorManager._actor_task_failed


def keep_credentials_here() -> None:
    """Let Tune copy no credential into the environment of trials, which Ray logs for everyone to read.

    Local processes inherit the keys of this one; the nodes of a cluster have their own.
    """
    copied = class_cache.ENV_VARS_TO_PROPAGATE
    copied.difference_update([name for name in copied if names_secret(name)])


def _searcher(
    options: SweepOptions, context: Context, study: Path, budget: int, slots: Slots
) -> StudySearcher:
    objectives = None
    if len(options.objectives) > 1:
        objectives = [(context.quality, "max"), _METRICS[options.objectives[1]]]
    return StudySearcher(
        str(study),
        options.space,
        sampler=options.sampler,
        trials=options.trials,
        seed=options.experiment.seed,
        objective=context.quality,
        objectives=objectives,
        full_budget=budget,
        slots=slots,
        measure=partial(_latency, context.workspace) if LATENCY in options.objectives else None,
        refusal=context.refusal,
    )


def _scheduler(
    options: SweepOptions, context: Context, budget: int, known: list[TrialRecord]
) -> TrialScheduler:
    """The scheduler by its name; with two objectives no trial is stopped, since no one figure decides."""
    before = _examples_before(context, first_point(options.space))
    rule = load_scheduler(options.scheduler).rule(budget - before)
    if rule is None or len(options.objectives) > 1:
        return FIFOScheduler()
    return StudyScheduler(
        rule,
        context.quality,
        full_budget=budget,
        before=before,
        at_least_full=options.full,
        history=known,
    )


def _latency(workspace: Workspace, result: dict[str, Any]) -> dict[str, float]:
    """Measure the latency in the driver, while no trial runs."""
    workspace.obtain(Stage.kind, Path(result["folder"]).name)
    return {"latency_ms_p50": latency_ms(encoder_in(Path(result["folder"])))["p50"]}


def _free_resources(context: Context, records: list[TrialRecord]) -> None:
    """Free the resources of trials whose process was killed when the last of them was stopped."""
    workspace = context.workspace
    for record in records:
        plan = context.planned(record.hyper_parameters)
        for stage in plan.chain() if plan else ():
            free_resources(workspace, stage)


def _examples_before(context: Context, values: dict[str, Any]) -> int:
    """Number of examples before the first stage whose evaluations may stop a trial."""
    stages = list(context.plan(values).chain())
    first, labels = load_method(context.method).PRUNABLE_FROM, [stage.label for stage in stages]
    return sum(each.examples_seen for each in stages[: labels.index(first) if first in labels else 0])


def _announce(options: SweepOptions, budget: int, known: int, left: int, title: str) -> str:
    size = "ranges" if options.space.points is None else f"{options.space.points:,} points"
    start = f"{known} known, {max(left, 0)} to run" if known else f"{left} trial{'s' if left != 1 else ''}"
    count = len(options.space.domains)
    names = f"{count} hyper-parameter{'s' if count != 1 else ''} (section {options.space.section}, {size})"
    return f"{title}: {options.sampler} over {names}, {start}, {budget:,} examples each"


def _describe_first(options: SweepOptions, context: Context) -> str:
    """Say that trial 0 has the published values, and how its length differs from the published one."""
    space = options.space
    values = {**space.fixed, **(space.first or {})}
    line = "  trial 0 is the configuration that the search space names first"
    aside = {name: value for name, value in space.set_aside.items() if name not in space.fixed}
    if not aside:
        return line
    published = ", ".join(f"{name}={value}" for name, value in aside.items())
    here, examples = (context.plan(each).examples_in_all for each in (values, {**values, **aside}))
    return f"{line}, with {here:,} examples from the budget; {published} would take {examples:,}"
