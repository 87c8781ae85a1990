"""What is said to be left of a sweep, replayed from the times of a real one: nothing is trained."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rows import each_row

from stillhouse.core.console import Progress
from stillhouse.core.job_clock import Steps
from stillhouse.search.scheduler import NEARLY_DONE
from stillhouse.search.schedulers.asha import CONTINUES, RUNGS
from stillhouse.sweeps.forecast import DELIVERY, Remaining, delivery_left, seconds_of_parts
from stillhouse.training.estimate import (
    Course,
    Kind,
    Pace,
    Part,
    Stops,
    as_if_new,
    course_of,
    makespan,
    pace_of,
    plan_seconds,
    slower,
    typical,
)
from stillhouse.training.metrics_log import Beat

RECORDED = json.loads((Path(__file__).parent / "recorded_sweep.json").read_text())
STUDENTS: dict[str, Any] = RECORDED["students"]
STOPS = Stops(RUNGS, CONTINUES, NEARLY_DONE)
END = RECORDED["parts"]["delivery"][1]
METRICS = {"step": {"loss": 1.0}, "evaluation": {"mrr": 0.5}}


def course_at(stage: dict[str, Any], now: float) -> Course:
    """How far a stage was at a time."""
    lines = [
        {"time": at, "examples": examples, "metrics": METRICS[kind]}
        for at, examples, kind in stage["lines"]
        if at <= now
    ]
    return course_of(lines, began=stage["began"])


def parts_at(name: str, now: float) -> list[Part]:
    """The stages of a student at a time; those of a trial that was stopped are those of the first one."""
    stages = STUDENTS[name]["stages"]
    if name.startswith("trial"):
        stages = [*stages, *STUDENTS["trial 0"]["stages"][len(stages) :]]
    found = []
    for at, stage in enumerate(stages):
        own = at < len(STUDENTS[name]["stages"])
        ended = own and stage["ended"] is not None and stage["ended"] <= now
        course = course_at(stage, now) if own else Course()
        kind = Kind("student", stage["texts"])
        points = tuple(stage["points"])
        found.append(Part(kind, stage["examples"], 0, name.startswith("trial"), course, ended, points))
    return found


def paces_at(now: float) -> dict[Kind, Pace]:
    """What had run until then, the newest first."""
    stages = [stage for student in STUDENTS.values() for stage in student["stages"] if stage["began"] < now]

    def paces(chosen: list[dict[str, Any]]) -> dict[Kind, Pace]:
        found = [(Kind("student", stage["texts"]), pace_of(course_at(stage, now))) for stage in chosen]
        return typical((kind, pace) for kind, pace in found if pace is not None)

    over = [stage for stage in stages if stage["ended"] is not None and stage["ended"] <= now]
    running = [stage for stage in stages if stage not in over]
    return paces(running) | paces(sorted(over, key=lambda stage: -stage["ended"]))


def left_at(now: float) -> dict[str, float] | None:
    """What is said to be left of each part, and of the job."""
    began = {name for name, student in STUDENTS.items() if student["stages"][0]["began"] <= now}
    over = {name for name, student in STUDENTS.items() if student["ended"] <= now}
    running = sorted(name for name in began - over if not name.startswith("refit"))
    names = running + [name for name in STUDENTS if name not in began and not name.startswith("refit")]
    limited = {
        at for at, name in enumerate(names) if name[:5] == "trial" and int(name[6:]) >= RECORDED["full"]
    }
    new = as_if_new(parts_at("trial 0", now))
    work = Remaining(
        students=[
            new if name[:5] == "trial" and name not in began else parts_at(name, now) for name in names
        ],
        refits=[parts_at(name, now) for name in STUDENTS if name.startswith("refit") and name not in over],
        stops=STOPS,
        stoppable=limited,
        slots=RECORDED["slots"],
        models=RECORDED["models"],
    )
    parts = seconds_of_parts(work, paces_at(now), now=now)
    if parts is None:
        return None
    (begins, _), (first, last) = RECORDED["parts"]["delivery"], RECORDED["parts"]["refits"]
    spent = max(0.0, min(now, first) - begins) + max(0.0, now - last)
    parts[DELIVERY] = delivery_left(parts[DELIVERY], spent, None)
    return {**parts, "job": sum(parts.values())}


def is_close(said: float, left: float) -> bool:
    """Within 30 %, or five seconds where little is left; it is printed in steps of five seconds."""
    return abs(said - left) <= max(0.3 * left, 5.0) + 2.5


def times(begin: float, end: float) -> Iterator[float]:
    """Every two seconds of the second half of a time."""
    now = (begin + end) / 2
    while now < end:
        yield now
        now += 2.0


def test_nothing_is_said_before_something_like_it_has_run_here() -> None:
    first = min(student["stages"][0]["began"] for student in STUDENTS.values())
    assert left_at(first) is None
    assert left_at(first + 20) is not None, "the first steps tell the speed of this machine"


@each_row("part", ["search", "refits", "job"])
def test_what_is_said_is_what_is_left(part: str) -> None:
    begin, end = RECORDED["parts"].get(part, (0.0, END))
    said = {now: left_at(now) for now in times(begin, end)}
    wrong = {
        now: (each[part], end - now)
        for now, each in said.items()
        if each and not is_close(each[part], end - now)
    }
    assert all(said.values())
    # In the moment before a trial is stopped or not nobody knows which it will be.
    assert len(wrong) <= (0.05 * len(said) if part == "search" else 0), wrong


def test_what_is_left_of_test_and_export_follows_the_models_that_were_tested() -> None:
    assert delivery_left(100.0, 30.0, None) == 70.0
    assert delivery_left(100.0, 200.0, None) == pytest.approx(18 / 3), "not nothing before it is over"
    slow = Steps(done=2, total=5, seconds=60.0, at=0.0)
    assert delivery_left(100.0, 80.0, slow, since=10.0) == pytest.approx(3 * 30 + 18 - 10)


@pytest.mark.parametrize("what", ["reading", "embedding"])
def test_reading_and_embedding_say_what_is_left(
    what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen, total = RECORDED[what]["seen"], RECORDED[what]["total"]
    now = [100.0]
    monkeypatch.setattr("stillhouse.core.console.time.monotonic", lambda: now[0])
    progress = Progress(what, "texts")
    progress.every_s = 0
    if what == "reading":
        progress(0, total)
    for at, done in seen:
        now[0] = 100.0 + at
        capsys.readouterr()
        progress(done, total)
        line, left = capsys.readouterr().err, seen[-1][0] - at
        if done < total and left <= seen[-1][0] / 2:
            minutes, seconds = line.split(", ")[-1].removesuffix(" left\n").split(":")
            assert is_close(int(minutes) * 60 + int(seconds), left), line


def test_a_trial_that_may_be_stopped_is_expected_to_run_a_part_of_its_budget() -> None:
    kind = Kind("student", 1)
    trial = [Part(kind, 1000, 250, judged=True)]
    paces = {kind: Pace(example_s=0.1, evaluation_s=2.0)}
    whole = plan_seconds(trial, paces)
    assert whole == pytest.approx(100 + 4 * 2)
    stops = Stops(rungs=(0.25, 0.75), continues=1 / 3, last=0.9)
    assert plan_seconds(trial, paces, stops=stops) == pytest.approx(27 + 54 / 3 + 27 / 9)
    past = [trial[0]._replace(course=Course(seen=500, evaluations=2))]
    assert plan_seconds(past, paces, stops=stops) == pytest.approx(27 + 27 / 3), (
        "it has passed the first rung"
    )
    assert plan_seconds(past, paces, cores=2.0) == pytest.approx(27.0)


def test_a_machine_that_is_faster_today_is_so_for_the_next_stage_too() -> None:
    distil, finetune = Kind("student", 1), Kind("student", 3)
    begun = Course(seen=100, timed=100, stepping_s=5.0, setup_s=1.0, at=50.0)
    parts = [Part(distil, 200, course=begun), Part(finetune, 100)]
    paces = {distil: Pace(0.1), finetune: Pace(0.4)}
    assert slower([(parts, 1.0)], paces) == pytest.approx((5 + 15) / (10 + 15)), "a few seconds say little"
    long = [parts[0]._replace(course=begun._replace(timed=10_000, stepping_s=500.0)), parts[1]]
    assert slower([(long, 1.0)], paces) == pytest.approx(0.5, abs=0.01)
    assert plan_seconds(parts, paces, now=52.0, speed=0.5) == pytest.approx(100 * 0.05 + 100 * 0.4 * 0.5 - 2)
    assert slower([([parts[0]._replace(done=True)], 1.0)], paces) == 1.0, "what is over says nothing of today"
    by_texts = plan_seconds([parts[1]], {distil: Pace(0.1)}, cores=2.0)
    assert by_texts == pytest.approx(100 * 3 * 0.1 / 2), "what has not run has the pace of the same student"
    assert plan_seconds([Part(Kind("other", 1), 10)], paces) is None


def test_an_interruption_is_no_pace() -> None:
    lines = [
        {"time": float(t), "examples": 10 * n, "metrics": {"loss": 1.0}}
        for n, t in enumerate((1, 2, 3, 4, 900, 901, 902), 1)
    ]
    assert course_of(lines, began=0.0).rate == pytest.approx(10.0)


def test_evaluations_and_slow_first_steps_are_not_in_the_rate() -> None:
    recorded = [(11, 10), (16, 20), (17, 30), (21, 30), (24, 40), (25, 50)]
    kinds = ["step", "step", "step", "evaluation", "step", "step"]
    lines = [
        {"time": float(at), "examples": examples, "metrics": METRICS[kind]}
        for (at, examples), kind in zip(recorded, kinds, strict=True)
    ]
    course = course_of(lines, Beat(50, 26.0, evaluating=True), began=0.0)
    assert (course.rate, course.evaluations) == (10.0, 1)
    assert course.evaluation_s == pytest.approx(4 + 2), "with the checkpoint that follows it"
    assert course.setup_s == pytest.approx(10 + 4)
    assert course.evaluating and not course_of(lines, Beat(50, 24.0, evaluating=True)).evaluating


def test_jobs_take_the_slot_that_is_free_first() -> None:
    assert makespan([], 2) == 0.0
    assert makespan([10, 2, 3, 4], 1) == 19
    assert makespan([10, 2, 3, 4], 2) == 10
