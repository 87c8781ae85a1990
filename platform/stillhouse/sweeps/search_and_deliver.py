"""The second half of a sweep: search, search the baseline, deliver the best student."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.cluster.resources import largest_share
from stillhouse.cluster.slots import Slots
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import doing, say
from stillhouse.core.errors import BadInput, Hindered
from stillhouse.core.job_clock import JobClock
from stillhouse.core.notes import EXPORT_NOTE
from stillhouse.evaluation.retrieval import DocSearch, LocalSearch, start_search_pool
from stillhouse.evaluation.search.indexes import APPROXIMATE, chosen_index
from stillhouse.experiments.fields import stated
from stillhouse.experiments.preparation import Prepared
from stillhouse.preflight.limits import resolution
from stillhouse.search.effects import without_idle
from stillhouse.search.observer import Observer, open_tracker
from stillhouse.search.options import SweepOptions
from stillhouse.search.published_sweep import PublishedSweep
from stillhouse.search.records import TrialRecord, best_record
from stillhouse.search.shared_stages import build_shared, first_point
from stillhouse.search.study_backup import BASELINE_STUDY, STUDIES, STUDY, ended_trials
from stillhouse.search.trial import Context, context_of
from stillhouse.search.tuner import search
from stillhouse.sweeps.ahead import ahead_of_sweep
from stillhouse.sweeps.baseline import BaselineSearch, Tried, baseline_search
from stillhouse.sweeps.contenders import Candidate
from stillhouse.sweeps.deliver import deliver
from stillhouse.sweeps.forecast import DELIVERY, REFITS, SEARCH, Forecast
from stillhouse.sweeps.refit import refit, refits_of
from stillhouse.tracking import BASELINE
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
    """Search on prepared data, deliver the best student, and return what `sweep` returns."""
    context = context_of(options, prepared.setting, workspace, _where(options, prepared.setting.dev))
    options = dataclasses.replace(options, space=without_idle(context, options.space))
    plan = context.plan(options.space.any_point)
    # A labelled task has its own metric, which the last stage selects by.
    context = dataclasses.replace(context, quality=plan.dev.select if plan.dev else context.quality)
    baseline, missing = baseline_search(options, context)
    tracker = open_tracker(workspace, folder, options.name)
    facts = {BASELINE: baseline.title if baseline else "none", **prepared.facts, **stated(options.experiment)}
    facts |= {f"data_{at}": "\n".join(each.lines()) for at, each in enumerate(prepared.understood, 1)}
    with Observer(options.name, context, tracker, facts, plan) as observer:
        if shown := resolution(prepared.setting.dev, context.quality, workspace):
            say(shown)
        forecast = Forecast(
            options, context, workspace, slots=slots(), refit=prepared.refit, baseline=baseline
        )
        _advance(forecast, folder)
        say(ahead_of_sweep(forecast))
        clock.left = lambda: forecast.left(clock)
        with clock.part(SEARCH):
            forecast.method.observer = observer
            records = _searched(options, context, folder, observer, slots)
            tried = None
            if baseline and best_record(records):
                tried, missing = _tried(baseline, folder, observer, forecast, slots)

        def refits() -> tuple[list[Candidate], list[Candidate]]:
            with clock.part(REFITS, within=DELIVERY):
                students = _refits(options, prepared, (context, records, observer), baseline, tried)
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
                tried or missing,
                observer,
                need=options.need,
                register_anyway=options.register_anyway,
                space=options.space,
                refits=refits,
            )
    PublishedSweep(workspace, folder).publish()
    return delivered


def _searched(
    options: SweepOptions,
    context: Context,
    folder: Path,
    observer: Observer,
    slots: Slots,
    study: str = STUDY,
) -> list[TrialRecord]:
    """Build what the trials of a search share, and run them."""
    build_tokens_on_cluster(context.plan(first_point(options.space)), context.workspace)
    build_shared(context, options.space, options.need)
    with doing(f"running the trials of the {observer.search}"):
        return search(options, context, folder, observer, slots, study)


def _tried(
    baseline: BaselineSearch, folder: Path, observer: Observer, forecast: Forecast, slots: Slots
) -> tuple[Tried | None, str]:
    """Search the baseline; a search that fails leaves the sweep without one, and says why."""
    own = observer.of_baseline(baseline.title, baseline.context)
    forecast.searches[1].observer = own
    try:
        records = _searched(baseline.options, baseline.context, folder, own, slots, BASELINE_STUDY)
    except Hindered:
        raise
    except BadInput as failed:
        return None, f"No baseline: the {own.search} failed. {failed}"
    if best_record(records) is None:
        return None, f"No baseline: no trial of the {baseline.title} ran to its end."
    return Tried(baseline.title, baseline.context, records, own), ""


def _where(options: SweepOptions, dev: DevSuite) -> Where:
    """Where the trials train, and what searches for them."""
    return Where(
        device=options.device,
        threads=max(1, int(options.need.cpus)),
        workers=options.need.workers,
        search=_search_pool(dev, options.experiment.selection.index),
        step_limit_s=_STEP_LIMIT_S,
    )


def _advance(forecast: Forecast, folder: Path) -> None:
    """Take into account what of a sweep is over, and how many cores a refit has on the cluster."""
    for each, study in zip(forecast.searches, STUDIES, strict=False):
        each.ended = ended_trials(folder / study)
    alone = largest_share(forecast.options.need, max(1, len(forecast.refits)))
    forecast.refit_cores = alone.cpus * alone.workers
    over = all(each.ended >= each.options.trials for each in forecast.searches)
    if over and (folder / EXPORT_NOTE).exists():
        forecast.models, forecast.refits = 0, ()


def _refits(
    options: SweepOptions,
    prepared: Prepared,
    method: tuple[Context, list[TrialRecord], Observer],
    baseline: BaselineSearch | None,
    tried: Tried | None,
) -> tuple[list[Candidate], list[Candidate]]:
    """Train the best trials and those of the baseline again, side by side, if the experiment asks for it."""
    if prepared.refit is None:
        return [], []
    context, records, observer = method
    top = options.experiment.budget.refit.top
    longer = dataclasses.replace(context, setting=prepared.refit, points=())
    own, others = refits_of(longer, records, top, observer), []
    if baseline and tried and own:
        again = baseline.refitted(longer, own[0].trial.hyper_parameters)
        others = refits_of(again, tried.records, top, tried.observer)
    students = refit([*own, *others], options.need)
    return (
        [student for student in students[: len(own)] if student],
        [student for student in students[len(own) :] if student],
    )


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
