"""The one estimate of time: seconds per example and per evaluation, from stages that have run or run here.

`stillhouse plan`, the line of what is ahead, and the clock of a sweep or a training use it. What has never
run here has no estimate.
"""

import contextlib
import heapq
import json
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from stillhouse.core.artifacts import MANIFEST, Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import canonical
from stillhouse.core.notes import STAGE_NOTE
from stillhouse.training.metrics_log import NAME, Beat, read_beat, read_lines
from stillhouse.training.worker_mailbox import mailbox_of
from stillhouse.values.stage import Stage

_LOOKED_AT = 200
"""How many of the newest stages are looked at."""
_FEW = 4
"""How many of the newest stages of a kind count."""
_FEW_STEPS = 4
"""Fewer lines of a log than this are few."""
_OUTLIER = 5.0
"""An interval this many times slower than the median holds an interruption, and is left out."""
_EVIDENCE_S = 4.0
"""Seconds of steps after which a stage's own speed counts."""
_USUAL_S = 15.0
"""Seconds of steps at the usual speed that count beside those of today, so that a few seconds say little."""
_STALE_S = 120.0
"""Seconds without news after which the time since then is not taken for progress."""
_NO_TIME_FOR_IT = ("projection", "projection_activation", "seed", "dropout")
"""Arguments of a student that hardly change how long an example takes."""


class Kind(NamedTuple):
    """What makes stages take equally long per example.

    It is the student with the length of its texts, as JSON, and the number of texts per example.
    """

    student: str
    texts: int


class Pace(NamedTuple):
    """Seconds that one core takes for a stage.

    Attributes:
        example_s: Seconds per example.
        evaluation_s: Seconds per evaluation; 0 where none was seen.
        setup_s: Seconds before the first step, and by which the first steps are slower.
    """

    example_s: float
    evaluation_s: float = 0.0
    setup_s: float = 0.0


class Course(NamedTuple):
    """How far a stage is, and how its time was spent.

    Attributes:
        seen: Examples that it has seen.
        timed: Examples of the steps that were timed, the second half of them.
        stepping_s: Seconds of these steps.
        evaluations: Number of evaluations.
        evaluation_s: Seconds of one of them; 0 before the first.
        setup_s: Seconds before the first step, and by which the first steps are slower; 0 if not known.
        at: Time of the last news, in seconds since the epoch; 0 before the first.
        evaluating: Whether an evaluation is going on.
        fastest_s: Seconds per example of the fastest steps, if there were few; else 0.
    """

    seen: int = 0
    timed: int = 0
    stepping_s: float = 0.0
    evaluations: int = 0
    evaluation_s: float = 0.0
    setup_s: float = 0.0
    at: float = 0.0
    evaluating: bool = False
    fastest_s: float = 0.0

    @property
    def rate(self) -> float:
        """Examples per second of the steps alone; 0 before two lines of the log."""
        return self.timed / self.stepping_s if self.stepping_s > 0 else 0.0


class Part(NamedTuple):
    """A stage, as far as its time depends on it.

    Attributes:
        kind: What it is like.
        examples: Examples that it sees.
        every: Examples between evaluations; 0 evaluates at the end only.
        judged: Whether its evaluations may stop the plan.
        course: How far it is.
        done: Whether it is finished.
        points: Examples after which it is evaluated besides.
    """

    kind: Kind
    examples: int
    every: int = 0
    judged: bool = False
    course: Course = Course()
    done: bool = False
    points: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stops:
    """Expected early ends.

    Attributes:
        rungs: Shares of a plan's examples at which it is judged.
        continues: Probability with which it goes on.
        last: Share from which on it is not stopped.
    """

    rungs: tuple[float, ...]
    continues: float
    last: float

    def goes_on(self, before: int, mark: int, total: int) -> float:
        """Probability of going on after ``mark`` of ``total`` examples; it was judged after ``before``."""
        passed = [rung for rung in self.rungs if before < rung * total <= mark]
        return float(self.continues ** len(passed)) if mark < self.last * total else 1.0


def course_of(
    lines: Iterable[Mapping[str, Any]], beat: Beat | None = None, *, began: float | None = None
) -> Course:
    """Read how the time of a stage was spent.

    Args:
        lines: Lines of its metrics log.
        beat: Its pulse, which counts if it is newer than they are.
        began: When the stage began, in seconds since the epoch; None if that is not known.
    """
    steps: list[_Steps] = []
    evaluations: list[float] = []
    at, seen, first, fresh = 0.0, 0, None, True
    for line in lines:
        now, examples, metrics = float(line["time"]), int(line["examples"]), line["metrics"]
        if not any(name.startswith("gradient_share") for name in metrics):
            if "loss" not in metrics:
                evaluations.append(now - at)
            elif first is None:
                first = (now, examples)
            else:
                steps.append(_Steps(now - at, examples - seen, fresh))
            fresh = "loss" not in metrics or len(steps) == 0
        at, seen = now, examples
    evaluating = beat is not None and beat.time >= at and beat.evaluating
    if beat is not None and beat.time >= at:
        if first is not None and beat.examples > seen and not fresh:
            steps.append(_Steps(beat.time - at, beat.examples - seen, False))
        at, seen = beat.time, max(seen, beat.examples)
    timed, stepping, slow = _typical_steps(steps)
    setup = 0.0
    if began is not None and first is not None and timed:
        setup = max(0.0, first[0] - began - first[1] * stepping / timed + (slow[0] if slow else 0.0))
    evaluation_s = statistics.median(evaluations) if evaluations else 0.0
    evaluation_s += max(0.0, statistics.fmean(slow[1:])) if evaluations and len(slow) > 1 else 0.0
    return Course(
        seen,
        timed,
        stepping,
        len(evaluations),
        evaluation_s,
        setup if setup < _LONG_SETUP_S else 0.0,
        at,
        evaluating,
        min((each.seconds / each.examples for each in steps if each.examples), default=0.0)
        if len(steps) < _FEW_STEPS
        else 0.0,
    )


class _Steps(NamedTuple):
    """Steps between two lines of a log; ``fresh`` ones follow the start or an evaluation, and are slower."""

    seconds: float
    examples: int
    fresh: bool


def _typical_steps(steps: Sequence[_Steps]) -> tuple[int, float, list[float]]:
    """Examples and seconds of the steps in full swing, and the seconds by which fresh ones took longer."""
    paces = [each.seconds / each.examples for each in steps if each.examples > 0]
    limit = _OUTLIER * statistics.median(paces) if paces else 0.0
    kept = [each for each in steps if each.seconds <= limit * each.examples]
    full = [each for each in kept if not each.fresh] or kept
    timed, stepping = sum(each.examples for each in full), sum(each.seconds for each in full)
    fresh = [each for each in kept if each.fresh] if len(full) < len(kept) else []
    return timed, stepping, [each.seconds - each.examples * stepping / timed for each in fresh]


_LONG_SETUP_S = 120.0
"""A longer time before the first step was an interruption."""


def course_in(folder: Path) -> Course:
    """Read how far the stage of a folder is."""
    plan = folder / STAGE_NOTE
    began = plan.stat().st_mtime if plan.exists() else None
    return course_of(read_lines(folder / NAME), read_beat(folder), began=began)


def evaluations_of(examples: int, every: int, points: Collection[int] = ()) -> list[int]:
    """Examples after which a stage is evaluated; see `training.progress.evaluation_due`."""
    marks = range(every, examples, every) if every else range(0)
    return sorted({*points, *(mark for mark in marks if 2 * (examples - mark) >= every), examples})


def pace_of(course: Course, cores: float = 1.0) -> Pace | None:
    """Return the pace of one core; None for a stage whose steps were not timed.

    Kernels are compiled for their shapes in the first steps, which are slow for that reason. Where few steps
    were timed, the pace is that of the fastest.
    """
    if not course.timed:
        return None
    example_s = course.fastest_s or course.stepping_s / course.timed
    return Pace(example_s * cores, course.evaluation_s * cores, course.setup_s)


def nearest(paces: Mapping[Kind, Pace], kind: Kind) -> Pace | None:
    """Return the pace of a kind; else that of the same student, by the number of texts per example."""
    if kind in paces:
        return paces[kind]
    alike = [each for each in paces if each.student == kind.student]
    if not alike:
        return None
    other = min(alike, key=lambda each: (abs(each.texts - kind.texts), each.texts))
    return paces[other]._replace(example_s=paces[other].example_s * kind.texts / other.texts)


def plan_seconds(
    parts: Sequence[Part],
    paces: Mapping[Kind, Pace],
    *,
    now: float = 0.0,
    cores: float = 1.0,
    speed: float = 1.0,
    stops: Stops | None = None,
) -> float | None:
    """Estimate the seconds that a plan will still take in one slot.

    Args:
        parts: Its stages, in order.
        paces: Seconds of one core, by kind.
        now: The time, in seconds since the epoch.
        cores: Cores of a slot.
        speed: How many times as long as usual steps take now; see `slower`.
        stops: Expected early ends; None if it runs to its end.

    Returns:
        The seconds, or None where nothing like one of its stages has run here.
    """
    total, before, judged = sum(part.examples for part in parts), 0, 0
    alive, left, last = 1.0, 0.0, 0.0
    for part in parts:
        course, last = part.course, max(last, part.course.at)
        if not part.done:
            pace = _pace(part, paces, cores, speed)
            if pace is None:
                return None
            begun = min(course.seen, part.examples)
            left += alive * pace.setup_s * (not course.at)
            for at, mark in enumerate(evaluations_of(part.examples, part.every, part.points)):
                if at >= course.evaluations:
                    left += alive * (max(0, mark - begun) * pace.example_s + pace.evaluation_s)
                    begun = max(begun, mark)
                    if part.judged and stops is not None:
                        alive *= stops.goes_on(judged, before + mark, total)
                judged = before + mark if part.judged else judged
        before += part.examples
        judged = before if part.judged else judged
    since = now - last if last and now - last < _STALE_S else 0.0
    return max(0.0, left - max(0.0, since))


def slower(plans: Iterable[tuple[Sequence[Part], float]], paces: Mapping[Kind, Pace]) -> float:
    """Return how many times as long as usual the steps of plans take that are in training; 1 if none are.

    They share the machine, and its load, with each other and with what comes after them.

    Args:
        plans: The stages of each, and its cores.
        paces: Seconds of one core, by kind.
    """
    took = expected = 0.0
    for parts, cores in plans:
        over = all(part.done for part in parts)
        for part in parts if not over else ():
            if part.course.timed and (usual := nearest(paces, part.kind)) is not None:
                took += part.course.stepping_s
                expected += part.course.timed * usual.example_s / cores
    return (took + _USUAL_S) / (expected + _USUAL_S)


def _pace(part: Part, paces: Mapping[Kind, Pace], cores: float, speed: float) -> Pace | None:
    """Seconds of a stage in its slot: as measured in itself, else as usual for its kind, at today's speed."""
    usual, course = nearest(paces, part.kind), part.course
    if usual is None:
        return pace_of(course)
    enough = course.stepping_s >= _EVIDENCE_S
    return Pace(
        course.stepping_s / course.timed if enough else usual.example_s / cores * speed,
        course.evaluation_s or usual.evaluation_s / cores * speed,
        usual.setup_s * speed,
    )


def makespan(jobs: Sequence[float], slots: int) -> float:
    """Seconds until all jobs are done, if each is begun, in order, by the slot that is free first."""
    free = [0.0] * max(1, slots)
    for seconds in jobs:
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def typical(paces: Iterable[tuple[Kind, Pace]]) -> dict[Kind, Pace]:
    """Return the medians of the first few paces of each kind.

    Those of one kind run at about the time of those of another. So a machine that has become faster or slower
    since then has done so for both, and a plan's own speed in one stage tells that of its next one.
    """
    several: dict[Kind, list[Pace]] = {}
    for kind, pace in paces:
        several.setdefault(kind, []).append(pace)
    found = {
        kind: Pace(*(statistics.median(column) for column in zip(*few[:_FEW], strict=True)))
        for kind, few in several.items()
    }
    evaluated = {kind.student: pace.evaluation_s for kind, pace in found.items() if pace.evaluation_s}
    return {
        kind: pace if pace.evaluation_s else pace._replace(evaluation_s=evaluated.get(kind.student, 0.0))
        for kind, pace in found.items()
    }


class Paces:
    """Paces of the stages of a workspace, finished ones and those in training."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._read: dict[Path, tuple[Kind, Pace] | None] = {}

    def known(self, live: Iterable[tuple[Kind, Course, float]] = ()) -> dict[Kind, Pace]:
        """Return the paces of the kinds of stages that have run here.

        Args:
            live: Kind, course and cores of stages in training, for kinds of which none has finished.
        """
        for folder in (newest := self._newest()):
            if folder not in self._read:
                self._read[folder] = _finished(folder)
        found = typical(each for folder in newest if (each := self._read[folder]) is not None)
        running = [(kind, pace_of(course, cores)) for kind, course, cores in live]
        return typical((kind, pace) for kind, pace in running if pace is not None) | found

    def _newest(self) -> list[Path]:
        manifests = self.workspace.root.glob(f"{Stage.kind}/*/{MANIFEST}")
        found = [(path.stat().st_mtime_ns, path.parent) for path in manifests]
        return [folder for _, folder in sorted(found, reverse=True)[:_LOOKED_AT]]


def _finished(folder: Path) -> tuple[Kind, Pace] | None:
    """The kind and pace of a finished stage; an estimate needs none that is damaged or of another version."""
    try:
        manifest = read_manifest(folder)
        course = course_in(folder)
        cores = float(manifest.get("workers", 1)) * float(manifest.get("threads", 1))
        if not course.timed:  # A stage of one step, or without a log.
            course = course._replace(timed=manifest["examples"], stepping_s=manifest["seconds"])
        pace = pace_of(course, cores)
        return None if pace is None else (_kind(manifest["plan"]), pace)
    except (BadInput, OSError, ValueError, KeyError, TypeError):
        return None


def kind_of(stage: Stage) -> Kind:
    """Return what a stage is like."""
    known = _kinds.get(stage.fingerprint)
    if known is None:
        known = _kinds[stage.fingerprint] = _kind(canonical(stage))
    return known


_kinds: dict[str, Kind] = {}


def _kind(plan: Mapping[str, Any]) -> Kind:
    parts = plan["with"]
    student = parts["student"]
    arguments = {name: value for name, value in student["with"].items() if name not in _NO_TIME_FOR_IT}
    examples = parts["examples"]["with"]
    negatives = examples["origin"]["with"].get("negatives", 1) if "negatives" in examples["columns"] else 1
    texts = len(examples["columns"]) - 1 + (negatives if isinstance(negatives, int) else 1)
    return Kind(json.dumps([student.get("call"), arguments, parts["max_length"]], sort_keys=True), texts)


def course_at(part: Stage, workspace: Workspace) -> Course:
    """Read how far a stage is, by its log, or as a node tells that shares a remote alone."""
    course = course_in(workspace.place(part))
    if workspace.remote is None or course.seen:
        return course
    # A cluster that no longer answers is what ends the command, with its own message.
    with contextlib.suppress(Exception):
        return Course(seen=mailbox_of(workspace, part).seen() or 0)
    return course


def parts_of(
    stage: Stage, workspace: Workspace, *, without: Collection[str] = (), judged_from: str = ""
) -> list[Part]:
    """Return the stages of a plan as far as their time depends on them.

    Args:
        stage: The last stage.
        workspace: Where it is trained.
        without: Fingerprints of stages that are trained before it.
        judged_from: Label of the first stage whose evaluations may stop the plan.
    """
    judged, found = judged_from not in [part.label for part in stage.chain()], []
    for each in stage.chain():
        judged = judged or each.label == judged_from
        if each.fingerprint not in without:
            every = each.evaluate_every if each.dev is not None else 0
            course, done = course_at(each, workspace), workspace.finished(each)
            points = each.evaluate_at if each.dev is not None else ()
            found.append(Part(kind_of(each), each.examples_seen, every, judged, course, done, points))
    return found


def as_if_new(parts: Iterable[Part], *, kept: bool = False) -> list[Part]:
    """The same stages before anything was trained; with ``kept``, those that are finished stay so."""
    return [part if kept and part.done else part._replace(course=Course(), done=False) for part in parts]
