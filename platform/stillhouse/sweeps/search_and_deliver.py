"""The second half of a sweep: search, train the baseline beside it, deliver the best student."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.cluster.resources import largest_share
from stillhouse.cluster.slots import Slots
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import doing, say
from stillhouse.core.job_clock import JobClock
from stillhouse.core.notes import EXPORT_NOTE
from stillhouse.evaluation.retrieval import DocSearch, LocalSearch, start_search_pool
from stillhouse.evaluation.search.indexes import APPROXIMATE, chosen_index
from stillhouse.experiments.fields import stated
from stillhouse.experiments.preparation import Prepared
from stillhouse.search.effects import without_idle
from stillhouse.search.observer import Observer, open_tracker
from stillhouse.search.options import LATENCY, SweepOptions
from stillhouse.search.published_sweep import PublishedSweep
from stillhouse.search.records import TrialRecord
from stillhouse.search.schedulers import points_of
from stillhouse.search.shared_stages import build_shared, first_point
from stillhouse.search.study_backup import STUDY, ended_trials
from stillhouse.search.trial import Context
from stillhouse.search.tuner import search
from stillhouse.sweeps.ahead import ahead_of_sweep
from stillhouse.sweeps.baseline import Baseline, baseline_name
from stillhouse.sweeps.contenders import Candidate
from stillhouse.sweeps.deliver import deliver
from stillhouse.sweeps.dev_apart import resolution
from stillhouse.sweeps.forecast import DELIVERY, REFITS, SEARCH, Forecast
from stillhouse.sweeps.refit import refit
from stillhouse.training.token_job import build_tokens_on_cluster
from stillhouse.training.where import Where
from stillhouse.values.stage import DevSuite

if TYPE_CHECKING:
    from stillhouse.evaluation.retrieval import Search

_SEARCH_THREADS = 1
"""Threads of an actor that searches."""
_STEP_LIMIT_S = 1800.0
"""Seconds after which a training step that hangs ends its process; Tune resumes the trial."""


def search_and_deliver(
    options: SweepOptions,
    prepared: Prepared,
    workspace: Workspace,
    folder: Path,
    slots: Slots,
    clock: JobClock,
) -> dict[str, Any]:
    """Search on prepared data, and deliver the best student.

    Args:
        options: The sweep.
        prepared: Its data.
        workspace: Where everything is kept.
        folder: The sweep's folder.
        slots: How many trials run at once.
        clock: Counts the seconds of the parts.

    Returns:
        What `sweep` returns.
    """
    context = _context(options, prepared, workspace)
    options = dataclasses.replace(options, space=without_idle(context, options.space))
    plan = context.plan(options.space.any_point)
    # A labelled task has its own metric, which the last stage selects by.
    context = dataclasses.replace(context, quality=plan.dev.select if plan.dev else context.quality)
    tracker = open_tracker(workspace, folder, options.name)
    facts = {"baseline": baseline_name(options.method), **prepared.facts, **stated(options.experiment)}
    facts |= {f"data_{at}": "\n".join(each.lines()) for at, each in enumerate(prepared.understood, 1)}
    with Observer(options.name, context, tracker, facts, plan) as observer:
        if shown := resolution(prepared.setting.dev, context.quality, workspace):
            say(shown)
        forecast = Forecast(options, context, plan, workspace, slots=slots(), refit=prepared.refit)
        _advance(forecast, folder)
        say(ahead_of_sweep(forecast))
        forecast.observer, clock.left = observer, lambda: forecast.left(clock)
        with clock.part(SEARCH):
            build_tokens_on_cluster(context.plan(first_point(options.space)), workspace)
            build_shared(context, options.space, options.need)
            baseline = Baseline(context, options.need, plan, first_point(options.space), observer.follower)
            forecast.baseline = [baseline.context.plan(values) for values in baseline.choices]
            if LATENCY in options.objectives:
                baseline.wait()
            with doing("running the trials"):
                records = search(options, context, folder, observer, slots)
            baseline.wait()
            forecast.baseline = ()

        def refits() -> list[Candidate]:
            with clock.part(REFITS, within=DELIVERY):
                students = _refits(options, prepared, context, records, observer)
            forecast.refits = ()
            return students

        with clock.part(DELIVERY):
            delivered = deliver(
                options.name,
                options.register or f"stillhouse-{options.name}",
                prepared,
                context,
                folder,
                records,
                baseline,
                observer,
                need=options.need,
                register_anyway=options.register_anyway,
                space=options.space,
                refits=refits,
            )
    PublishedSweep(workspace, folder).publish()
    return delivered


def _context(options: SweepOptions, prepared: Prepared, workspace: Workspace) -> Context:
    """Gather what all trials share."""
    where = Where(
        device=options.device,
        threads=max(1, int(options.need.cpus)),
        workers=options.need.workers,
        search=_search_pool(prepared.setting.dev, options.experiment.selection.index),
        step_limit_s=_STEP_LIMIT_S,
    )
    return Context(
        method=options.method,
        preset=options.preset,
        setting=prepared.setting,
        root=str(workspace.root),
        where=where,
        quality=prepared.setting.dev.select,
        remote=workspace.remote,
        points=points_of(options.scheduler) if len(options.objectives) == 1 else (),
    )


def _advance(forecast: Forecast, folder: Path) -> None:
    """Take into account what of a sweep is over, and how many cores a refit has on the cluster."""
    forecast.ended = ended_trials(folder / STUDY)
    alone = largest_share(forecast.options.need, max(1, len(forecast.refits)))
    forecast.refit_cores = alone.cpus * alone.workers
    if forecast.ended >= forecast.options.trials and (folder / EXPORT_NOTE).exists():
        forecast.models, forecast.refits = 0, ()


def _refits(
    options: SweepOptions,
    prepared: Prepared,
    context: Context,
    records: list[TrialRecord],
    observer: Observer,
) -> list[Candidate]:
    """Train the best trials again, if the experiment asks for it."""
    if prepared.refit is None:
        return []
    longer = dataclasses.replace(context, setting=prepared.refit, points=())
    return refit(longer, options.need, records, options.experiment.budget.refit.top, observer)


def _search_pool(dev: DevSuite, index: str) -> "Search | None":
    """Start the actors that search for all trials, and say how; None if no trial searches.

    A GPU is searched by the trials themselves: the actors have none.
    """
    if not any(evaluator.target is DocSearch for evaluator in dev.evaluators):
        return None
    if index.startswith("flat-gpu"):
        return LocalSearch(index=index)
    chosen, why = chosen_index(index, _SEARCH_THREADS)
    say(f"dev queries search with the index {chosen}, {why}")
    actors = 1 if chosen.startswith(APPROXIMATE) else 2
    return start_search_pool(actors, _SEARCH_THREADS, index=chosen)
