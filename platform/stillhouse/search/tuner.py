"""The search itself: Tune runs the trials, our searcher owns the study."""

import shutil
import time
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune import Callback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput
from stillhouse.search.observer import Observer
from stillhouse.search.options import LATENCY, SIZE, SweepOptions
from stillhouse.search.records import TrialRecord
from stillhouse.search.scheduler import StudyScheduler
from stillhouse.search.schedulers import load_scheduler
from stillhouse.search.searcher import ExplainErrors, StudySearcher
from stillhouse.search.trial import Context, run_trial
from stillhouse.training.rank_sync import Interrupted
from stillhouse.training.worker import free_resources

_RETRIES = 3
"""Times that a trial goes on from its checkpoint after an error, or after its process or node was lost."""
_FIGURES = {SIZE: ("size_mb", "min"), LATENCY: ("latency_ms_p50", "min")}


def search(
    options: SweepOptions, context: Context, folder: Path, observer: Observer, at_once: int
) -> list[TrialRecord]:
    """Run the trials that are still to run, and return all of the study, by number.

    Every start is a new Tuner over the study on the disk: trials that a killed driver left behind are issued
    again with their own values and go on from their checkpoints.
    """
    budget = _examples(context, next(options.space.probes()))
    searcher = _searcher(options, context, folder, budget)
    known = searcher.records()
    left = options.trials - sum(record.state != "RUNNING" for record in known)
    say(_announce(options, budget, len(known), left))
    if options.space.first and left > 0:
        say(_first_words(options, context))
    if left > 0:
        scheduler = _scheduler(options, context.quality, budget, known)
        _tune(options, context, folder, observer, searcher, scheduler, left, at_once)
    records = searcher.records()
    if options.need.nested:
        _free_resources(context, records)
    for record in records:
        observer.ended(record)
    unfinished = [record.number for record in records if record.state == "RUNNING"]
    if unfinished:
        raise Interrupted(f"Tune ended before the trials {unfinished} did.")
    return records


class TrialsEnd(Callback):  # type: ignore[misc]
    """Tells the observer how a trial ended, as the study has it, when it does."""

    def __init__(self, searcher: StudySearcher, observer: Observer) -> None:
        """Both are told of by Tune before this is."""
        self.searcher, self.observer = searcher, observer

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its callbacks for a restore that is never made."""
        return {}

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial ended by itself, or was stopped."""
        self._tell(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial failed for good."""
        self._tell(trial)

    def _tell(self, trial: Any) -> None:
        self.observer.ended(next(r for r in self.searcher.records() if r.number == trial.config["trial"]))


def _tune(
    options: SweepOptions,
    context: Context,
    folder: Path,
    observer: Observer,
    searcher: StudySearcher,
    scheduler: TrialScheduler,
    left: int,
    at_once: int,
) -> None:
    scratch = folder / "tune"
    shutil.rmtree(scratch, ignore_errors=True)
    trainable = tune.with_resources(tune.with_parameters(run_trial, context=context), options.need.trial)
    tuner = tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=scheduler,
            num_samples=left,
            max_concurrent_trials=at_once,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=f"{options.name}-{int(time.time())}",
            storage_path=str(scratch),
            callbacks=[observer, ExplainErrors(searcher), TrialsEnd(searcher, observer)],
            failure_config=tune.FailureConfig(max_failures=_RETRIES),
            verbose=0,
        ),
    )
    tuner.fit()
    shutil.rmtree(scratch, ignore_errors=True)


def _searcher(options: SweepOptions, context: Context, folder: Path, budget: int) -> StudySearcher:
    objectives = None
    if len(options.objectives) > 1:
        objectives = [(context.quality, "max"), _FIGURES[options.objectives[1]]]
    return StudySearcher(
        str(folder / "study.db"),
        options.space,
        sampler=options.sampler,
        trials=options.trials,
        seed=options.experiment.seed,
        first=options.space.first,
        objective=context.quality,
        objectives=objectives,
        full_budget=budget,
        measure=_latency if LATENCY in options.objectives else None,
    )


def _scheduler(options: SweepOptions, quality: str, budget: int, known: list[TrialRecord]) -> TrialScheduler:
    """The scheduler by its name; with two objectives no trial is stopped, since no one figure decides."""
    rule = load_scheduler(options.scheduler).rule(budget)
    if rule is None or len(options.objectives) > 1:
        return FIFOScheduler()
    return StudyScheduler(rule, quality, full_budget=budget, at_least_full=options.full, history=known)


def _latency(result: dict[str, Any]) -> dict[str, float]:
    """Measured by the driver while no trial runs."""
    from stillhouse.evaluation.cost import latency_ms
    from stillhouse.training.walk import encoder_in

    return {"latency_ms_p50": latency_ms(encoder_in(Path(result["folder"])))["p50"]}


def _free_resources(context: Context, records: list[TrialRecord]) -> None:
    """Free what is still held for trials whose process was ended when the last of them was stopped."""
    workspace = Workspace(Path(context.root))
    for record in records:
        for stage in context.plan(dict(record.hyper_parameters)).chain():
            free_resources(workspace, stage)


def _examples(context: Context, values: dict[str, Any]) -> int:
    """Examples of a trial that runs to its end, over all its stages."""
    return sum(stage.steps * stage.batch_size for stage in context.plan(values).chain())


def _announce(options: SweepOptions, budget: int, known: int, left: int) -> str:
    try:
        size = f"{options.space.grid_size():,} points"
    except BadInput:
        size = "continuous"
    start = f"{known} trials known, {max(left, 0)} to run" if known else f"{left} trials"
    names = f"{len(options.space.domains)} hyper-parameters ({size})"
    return f"search: {options.sampler} over {names}, {start}, {budget:,} examples each"


def _first_words(options: SweepOptions, context: Context) -> str:
    """Trial 0 has the published values; how long it trains is the budget's to say."""
    space = options.space
    values = {**space.fixed, **(space.first or {})}
    said = f"  trial 0 is the configuration that {Path(space.source).name} names first"
    aside = {name: value for name, value in space.set_aside.items() if name not in space.fixed}
    if not aside:
        return said
    published = ", ".join(f"{name}={value}" for name, value in aside.items())
    examples, here = _examples(context, {**values, **aside}), _examples(context, values)
    return f"{said}, with {here:,} examples as the budget has it; {published} would make it {examples:,}"
