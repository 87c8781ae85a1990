"""About how many seconds a sweep will still take: its search, its refits, its test and export."""

import itertools
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from stillhouse.core.artifacts import Workspace
from stillhouse.core.job_clock import JobClock, Steps
from stillhouse.core.notes import read_note, write_note
from stillhouse.methods import load_method
from stillhouse.search.observer import Observer
from stillhouse.search.options import SweepOptions
from stillhouse.search.scheduler import NEARLY_DONE
from stillhouse.search.schedulers import load_scheduler
from stillhouse.search.shared_stages import first_point, shared_stages
from stillhouse.search.trial import Context
from stillhouse.sweeps.baseline import BaselineSearch
from stillhouse.training.estimate import (
    Course,
    Kind,
    Pace,
    Paces,
    Part,
    Stops,
    as_if_new,
    makespan,
    nearest,
    parts_of,
    plan_seconds,
    slower,
)
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

READING, EMBEDDING, SEARCH, REFITS, DELIVERY = "reading", "embedding", "search", "refits", "test and export"
PARTS = (READING, EMBEDDING, SEARCH, REFITS, DELIVERY)
"""Parts of a sweep, in their order."""
SECONDS = "seconds.json"
"""File in a sweep's folder with the seconds that each part took."""
_TESTED_S, _EVALUATIONS = 0.7, 2.6
"""Where no sweep was delivered here yet: seconds of a model's test beside those of so many evaluations."""
_AROUND_S = 8.0
"""Likewise of what is around the tests: the teacher on dev, the export, figures and registration."""
_AFTER = 0.18
"""Share of the delivery that comes after the tests."""


@dataclass(frozen=True)
class Remaining:
    """The students that a sweep will still train, its tests, and how far they are.

    Attributes:
        shared: Stages that all trials share, trained before them one after the other.
        students: Stages of the trials that have not ended, the method's and then the baseline's.
        refits: Stages of the refits, begun or not.
        stops: Expected early ends of trials.
        stoppable: Places among ``students`` of the trials that may be stopped.
        slots: Students at once.
        cores: Cores of a slot.
        refit_cores: Cores of a refit; all of them run at once.
        models: Models that are tested; 0 once that is over.
    """

    shared: Sequence[Sequence[Part]] = ()
    students: Sequence[Sequence[Part]] = ()
    refits: Sequence[Sequence[Part]] = ()
    stops: Stops | None = None
    stoppable: Collection[int] = field(default_factory=frozenset)
    slots: int = 1
    cores: float = 1.0
    refit_cores: float = 1.0
    models: int = 0

    def live(self) -> Iterator[tuple[Kind, Course, float]]:
        """Kind, course and cores of every stage of the students and the refits."""
        for plans, cores in ((self.students, self.cores), (self.refits, self.refit_cores)):
            for part in itertools.chain.from_iterable(plans):
                yield part.kind, part.course, cores

    def anew(self) -> "Remaining":
        """The same if nothing that is not finished had begun."""
        shared, students = (
            [as_if_new(parts, kept=True) for parts in plans] for plans in (self.shared, self.students)
        )
        return replace(self, shared=shared, students=students)


def seconds_of_parts(
    work: Remaining, paces: dict[Kind, Pace], *, now: float = 0.0, model_s: float = 0.0
) -> dict[str, float] | None:
    """Estimate the seconds of the search, of the refits, and of test and export.

    Args:
        work: What remains.
        paces: Seconds of one core, by kind.
        now: The time, in seconds since the epoch.
        model_s: Seconds of the delivery per tested model, as an earlier one took; 0 where there was none.

    Returns:
        The seconds by part, or None where nothing like one of the stages has run here.
    """
    running = [(parts, work.cores) for parts in (*work.shared, *work.students)]
    speed = slower([*running, *((parts, work.refit_cores) for parts in work.refits)], paces)

    def of(parts: Sequence[Part], cores: float, stops: Stops | None = None) -> float | None:
        return plan_seconds(parts, paces, now=now, cores=cores, speed=speed, stops=stops)

    before = [of(parts, work.cores) for parts in work.shared]
    jobs = [
        of(parts, work.cores, work.stops if at in work.stoppable else None)
        for at, parts in enumerate(work.students)
    ]
    refits = [of(parts, work.refit_cores) for parts in work.refits]
    known = [[each for each in group if each is not None] for group in (before, jobs, refits)]
    if sum(map(len, known)) < len(before) + len(jobs) + len(refits):
        return None
    last = [parts[-1] for parts in (*work.refits, *work.students) if parts]
    return {
        SEARCH: sum(known[0]) + (makespan(known[1], work.slots) if jobs else 0.0),
        REFITS: makespan(known[2], max(1, work.slots)) if refits else 0.0,
        DELIVERY: delivery_seconds(work.models, paces, last[0].kind if last else None, model_s),
    }


def tested_models(refits: bool) -> int:
    """Number of models that a sweep tests: teacher, best student, baseline, untrained student, its trial."""
    return 4 + refits


def delivery_seconds(models: int, paces: dict[Kind, Pace], kind: Kind | None, model_s: float) -> float:
    """Estimate the seconds of test and export, as `seconds_of_parts` does; a kind of None takes any kind."""
    if not models or model_s:
        return models * model_s
    pace = (nearest(paces, kind) if kind is not None else None) or next(iter(paces.values()), Pace(0.0))
    return models * (_TESTED_S + _EVALUATIONS * pace.evaluation_s) + _AROUND_S


def delivery_left(whole: float, spent: float, steps: Steps | None, since: float = 0.0) -> float:
    """Estimate what is left of test and export.

    Args:
        whole: Seconds of all of it.
        spent: Seconds of it so far.
        steps: Models that were tested; None before the first test begins.
        since: Seconds since the last of them.
    """
    if steps is None or not steps.done:
        return max(whole * _AFTER / 3, whole - spent)
    tests = steps.seconds / steps.done * (steps.total - steps.done)
    return max(0.0, tests + whole * _AFTER - since)


def stops_of(options: SweepOptions) -> tuple[Stops | None, int]:
    """The early ends that a sweep's scheduler is expected to cause, and how many trials it never stops."""
    scheduler = load_scheduler(options.scheduler)
    if len(options.objectives) > 1 or not scheduler.RUNGS:
        return None, options.trials
    return Stops(scheduler.RUNGS, scheduler.CONTINUES, NEARLY_DONE), min(options.full, options.trials)


def keep_seconds(folder: Path, clock: JobClock, models: int) -> None:
    """Keep the seconds of a whole sweep's parts in its folder, for later estimates."""
    seconds = {name: round(clock.seconds.get(name, 0.0), 1) for name in PARTS}
    write_note(folder / SECONDS, {"seconds": seconds, "models": models})


def seconds_per_model(workspace: Workspace) -> float:
    """Seconds of test and export per tested model of the newest sweep that was timed; 0 where none was."""
    notes = sorted(workspace.root.glob(f"sweeps/*/{SECONDS}"), key=lambda path: path.stat().st_mtime_ns)
    for path in reversed(notes):
        note = read_note(path, "The next estimate of a test does without it.")
        if note and note["models"]:
            return float(note["seconds"][DELIVERY]) / int(note["models"])
    return 0.0


class SearchAhead:
    """A search as far as it is still to come: the method's, or that of its baseline.

    Attributes:
        plan: Plan of any trial.
        shared: Stages that all its trials share.
        ended: Number of trials that have ended.
        observer: Knows the trials that run; None before they do.
    """

    def __init__(self, options: SweepOptions, context: Context, workspace: Workspace) -> None:
        self.options, self.workspace, self.ended = options, workspace, 0
        self.plan = context.plan(first_point(options.space))
        self.shared: Sequence[Stage] = shared_stages(context, options.space)
        self.observer: Observer | None = None
        self._kept = [stage.fingerprint for stage in self.shared]

    @property
    def own(self) -> list[Stage]:
        """The stages of a trial that it shares with no other."""
        return [part for part in self.plan.chain() if part.fingerprint not in self._kept]

    def jobs(self, full: int) -> list[tuple[list[Part], bool]]:
        """The stages of every trial that has not ended, and whether it may be stopped early."""
        first = str(load_method(self.options.method).PRUNABLE_FROM)

        def of(stage: Stage) -> list[Part]:
            return parts_of(stage, self.workspace, without=self._kept, judged_from=first)

        running = {} if self.observer is None else dict(self.observer.running)
        ended = self.ended if self.observer is None else max(self.ended, len(self.observer.over))
        new = range(min(self.options.trials, ended + len(running)), self.options.trials)
        # Another sweep may have trained the point that stands for what has not begun.
        stages = [*(of(stage) for stage in running.values()), *([as_if_new(of(self.plan))] * len(new))]
        return [(parts, number >= full) for parts, number in zip(stages, [*running, *new], strict=True)]


class Forecast:
    """Forecast of a sweep that is planned, is about to run, or runs.

    Without a setting of refits it has none, and without the search of a baseline it has no baseline.

    Attributes:
        method: The method's search.
        searches: That one and, where there is one, the baseline's.
        refits: Plans of the refits; none once they are over.
        refit_cores: Cores of a refit.
        models: Models that are tested; 0 where nothing is left to test.
    """

    def __init__(
        self,
        options: SweepOptions,
        context: Context,
        workspace: Workspace,
        *,
        slots: int = 1,
        refit: Setting | None = None,
        baseline: BaselineSearch | None = None,
    ) -> None:
        self.options, self.workspace, self.slots, self.baseline = options, workspace, slots, baseline
        self.cores = self.refit_cores = options.need.cpus * options.need.workers
        self.method = SearchAhead(options, context, workspace)
        self.searches = [self.method]
        if baseline:
            self.searches.append(SearchAhead(baseline.options, baseline.context, workspace))
        self.refits: Sequence[Stage] = ()
        if refit is not None:
            longer, point = replace(context, setting=refit, points=()), first_point(options.space)
            top = options.experiment.budget.refit.top
            self.refits = [longer.plan(point)] * min(top, options.trials)
            if baseline:
                again = baseline.refitted(longer, point).plan(first_point(baseline.options.space))
                self.refits = [*self.refits, *([again] * min(top, baseline.options.trials))]
        self.models = tested_models(refit is not None)
        self._paces = Paces(workspace)
        self._stops, self._full = stops_of(options)

    def stages(self) -> list[tuple[Stage, int]]:
        """Every stage that the whole sweep trains, and how often."""
        found = [(part, 1) for each in self.searches for part in each.shared]
        found += [(part, each.options.trials) for each in self.searches for part in each.own]
        return found + [(part, 1) for plan in self.refits for part in plan.chain()]

    def remaining(self) -> Remaining:
        """Return the work that is left now."""
        jobs = [job for each in self.searches for job in each.jobs(self._full)]
        begun = [stage for each in self.searches if each.observer for stage in each.observer.refits]
        refits = [parts_of(each, self.workspace) for each in begun]
        # Another sweep may have trained the point that stands for what has not begun.
        refits = refits or [as_if_new(parts_of(stage, self.workspace)) for stage in self.refits]
        return Remaining(
            shared=[parts_of(stage, self.workspace) for each in self.searches for stage in each.shared],
            students=[parts for parts, _ in jobs],
            refits=refits if self.refits else [],
            stops=self._stops,
            stoppable={at for at, (_, stoppable) in enumerate(jobs) if stoppable},
            slots=self.slots,
            cores=self.cores,
            refit_cores=self.refit_cores,
            models=self.models,
        )

    def parts(self) -> dict[str, float] | None:
        """Estimate the seconds that are left, by part; None where nothing like it has run here."""
        work = self.remaining()
        paces = self._paces.known(work.live())
        return seconds_of_parts(work, paces, now=time.time(), model_s=seconds_per_model(self.workspace))

    def left(self, clock: JobClock) -> float | None:
        """Estimate the seconds that are left of the sweep whose clock this is."""
        parts = self.parts()
        if parts is None:
            return None
        spent, since = clock.spent(DELIVERY), 0.0
        if REFITS not in clock.seconds:
            spent -= clock.spent(REFITS)  # They run in the middle of the other.
        if clock.steps is not None:
            since = time.monotonic() - clock.steps.at
        rest = delivery_left(parts[DELIVERY], spent, clock.steps, since) if self.models else 0.0
        return parts[SEARCH] + parts[REFITS] + rest
