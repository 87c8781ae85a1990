"""Lines on plans in training: how far they are over all stages, and only after a silence."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from stillhouse.core import progress_bar
from stillhouse.core.artifacts import Workspace, write_manifest
from stillhouse.core.job_clock import duration
from stillhouse.core.notes import write_note
from stillhouse.core.remotes import remote_at
from stillhouse.search.trial import Context
from stillhouse.training import follower
from stillhouse.training.estimate import Course, course_at
from stillhouse.training.facts import FACTS
from stillhouse.training.follower import PlanFollower
from stillhouse.training.metrics_log import NAME, MetricsLog, Pulse
from stillhouse.training.worker_mailbox import Wait, mailbox_of
from stillhouse.values.stage import Stage


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock in seconds that the test advances."""
    now = [100.0]
    for module in ("core.console", "training.follower"):
        monkeypatch.setattr(f"stillhouse.{module}.time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def plan(context: Context) -> Stage:
    """Two stages."""
    return context.plan({"distil_batch_size": 16, "finetune_batch_size": 16})


def made(workspace: Workspace, stage: Stage, steps: int) -> None:
    """What training leaves after so many steps."""
    folder = Path(workspace.path(stage))
    folder.mkdir(parents=True, exist_ok=True)
    log = MetricsLog(folder / NAME, after=0)
    log.append(steps, steps * stage.batch_size, {"loss": 1.0})
    log.close()


def test_what_was_seen_since_the_last_line_of_the_log_counts(plan: Stage, workspace: Workspace) -> None:
    """With steps of more than a second, the same line was printed three times before the next of the log."""
    distil, _ = plan.chain()
    assert course_at(distil, workspace) == Course()
    made(workspace, distil, 2)
    Pulse(workspace.place(distil)).beat(5 * distil.batch_size)
    assert course_at(distil, workspace).seen == 5 * distil.batch_size


def test_what_another_node_tells_counts_where_a_remote_is_all_that_is_shared(
    plan: Stage, workspace: Workspace, tmp_path: Path
) -> None:
    """The driver said "0 examples" and "no news" of trials that were halfway."""
    distil, finetune = plan.chain()
    mailbox_of(workspace, distil).note_seen(48)
    assert course_at(distil, workspace).seen == 0, "the log is there, and says more"
    there = replace(workspace, remote=remote_at(str(tmp_path / "remote")))
    assert course_at(distil, there).seen == 48
    assert course_at(finetune, there).seen == 0


def test_a_line_after_a_silence(
    plan: Stage, workspace: Workspace, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    distil, finetune = plan.chain()
    total = f"{distil.examples_seen:,}"
    following = PlanFollower(workspace, every_s=20)
    following.follow("trial 3", plan)
    following.follow("trial 4", plan)
    clock[0] += 19
    following.tell()
    following.heard("trial 4")
    assert not capsys.readouterr().err, "something was printed 19 s ago"
    clock[0] += 2
    following.tell()
    assert capsys.readouterr().err == f"  trial 3, distilling: 0 of {total} examples\n"
    made(workspace, distil, 2)
    following.leave("trial 4")
    clock[0] += 16
    following.tell()
    assert not capsys.readouterr().err
    clock[0] += 16
    following.tell()
    seen = 2 * distil.batch_size
    rate = f"{seen / 32:.1f}/s"
    assert capsys.readouterr().err == f"  trial 3, distilling: {seen} of {total} examples, {rate}\n"
    write_manifest(workspace.path(distil), {})
    made(workspace, finetune, 1)
    clock[0] += 20
    following.tell()
    seen, total = finetune.batch_size, f"{finetune.examples_seen:,}"
    assert capsys.readouterr().err == f"  trial 3, fine-tuning: {seen} of {total} examples\n"


def test_an_evaluation_is_named_and_is_not_in_the_rate(
    plan: Stage,
    workspace: Workspace,
    clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("stillhouse.training.metrics_log.time.time", lambda: 10_000 + clock[0])
    distil, _ = plan.chain()
    folder = workspace.place(distil)
    log, pulse = MetricsLog(folder / NAME), Pulse(folder)
    following = PlanFollower(workspace, every_s=20)
    following.follow("trial 3", plan)
    for step in range(1, 4):
        clock[0] += 4
        log.append(step, step * 16, {"loss": 1.0})
    pulse.beat(48, evaluating=True)
    write_note(folder / FACTS, {"figures": {"search": {"split": "dev", "count": 250, "unit": "queries"}}})
    clock[0] += 20
    following.tell()
    assert capsys.readouterr().err == "  trial 3, distilling: evaluating on dev, 250 queries\n"
    log.append(3, 48, {"mrr": 0.5})
    clock[0] += 4
    log.append(4, 64, {"loss": 1.0})
    log.close()
    clock[0] += 20
    following.tell()
    total = f"{distil.examples_seen:,}"
    assert capsys.readouterr().err == f"  trial 3, distilling: 64 of {total} examples, 4.0/s\n"


def test_the_rate_is_that_of_the_log_however_seldom_it_has_lines(
    plan: Stage,
    workspace: Workspace,
    clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With a line of the log every 65 s and a look every 20 s, 1 example/s was told to be 0.8 to 1.6."""
    start = clock[0]
    monkeypatch.setattr("stillhouse.training.metrics_log.time.time", lambda: 10_000 + clock[0])
    stage = replace(next(iter(plan.chain())), budget=100_000)
    log = MetricsLog(workspace.path(stage) / NAME)
    log.append(400, 400 * stage.batch_size, {"loss": 1.0})
    clock[0] += 1000  # Another process trained until here.
    following = PlanFollower(workspace, every_s=20)
    following.follow("trial 3", stage)
    rates = []
    for second in range(1, 601):
        clock[0] = start + 1000 + second
        if second % 65 == 0:
            log.append(400 + 4 * second, (400 + 4 * second) * stage.batch_size, {"loss": 1.0})
        following.tell()
        if line := capsys.readouterr().err:
            rates.append(line.partition(" examples, ")[2].partition("/s")[0])
    log.close()
    assert rates[9:] == [str(4 * stage.batch_size)] * 21, "from the third line on"


def test_a_plan_alone_has_a_bar_on_a_terminal(
    plan: Stage,
    workspace: Workspace,
    clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    drawn: list[tuple[str, int]] = []
    monkeypatch.setattr(progress_bar, "is_terminal", lambda page: True)
    monkeypatch.setattr(progress_bar, "draw", lambda page, what, done, *rest: drawn.append((what, done)))
    distil, _ = plan.chain()
    following = PlanFollower(workspace, every_s=20)
    following.follow("trial 3", plan)
    for turn in range(3):
        made(workspace, distil, turn + 1)
        clock[0] += 1.5
        following.tell()
    assert drawn == [("trial 3, distilling", (turn + 1) * distil.batch_size) for turn in range(3)]
    following.follow("trial 4", plan)
    for _ in range(2):
        clock[0] += 1.5
        following.tell()
    assert len(drawn) == 4, "two bars would take turns: the next looks are 20 s apart"
    assert not capsys.readouterr().err


def test_what_stands_still_has_no_estimate(
    plan: Stage, workspace: Workspace, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    distil, _ = plan.chain()
    following = PlanFollower(workspace, every_s=20)
    following.follow("trial 3", plan)
    lines = []
    for turn in range(9):
        made(workspace, distil, min(turn, 1) + 1)
        clock[0] += 20
        following.tell()
        lines.append(capsys.readouterr().err)
    assert "no news" not in lines[6] and "/s" in lines[1]
    seen, total = 2 * distil.batch_size, distil.examples_seen
    assert lines[7] == f"  trial 3, distilling: {seen} of {total:,} examples, no news for {duration(120)}\n"
    made(workspace, distil, 3)
    clock[0] += 20
    following.tell()
    assert "no news" not in capsys.readouterr().err, "it goes on"


def test_ranks_that_wait_for_room(
    plan: Stage, workspace: Workspace, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    distil, _ = plan.chain()
    mailbox, began, room = mailbox_of(workspace, distil), time.time() - 300, "room for 2 workers"
    following = PlanFollower(workspace, every_s=20)
    following.follow("trial 3", plan)

    def said(wait: Wait | None = None) -> str:
        if wait is not None:
            mailbox.note_wait(wait)
        clock[0] += 20
        following.tell()
        return str(capsys.readouterr().err)

    progress = f"  trial 3, distilling: 0 of {distil.examples_seen:,} examples\n"
    assert said(Wait(room, began, began + 5)) == progress, "what has ended before a line is not told"
    assert said(Wait(room, time.time())) == progress, "it has just begun"
    waiting = f"  trial 3: waiting for {room}, for 5:0"
    assert said(Wait(room, began)).startswith(waiting) and said().startswith(waiting)
    for _ in range(8):
        said()
    assert said(Wait(room, began, began + 60)) == f"  trial 3: has {room}, after 1:00\n"
    assert said() == progress, "while it waited it did not stand still for no reason"


def test_it_watches_until_the_block_ends(
    plan: Stage,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(follower, "_POLL_S", 0.01)
    with PlanFollower(workspace, every_s=0.02) as following:
        following.follow("mse", plan)
        deadline = time.monotonic() + 20
        while not (printed := capsys.readouterr().err) and time.monotonic() < deadline:
            time.sleep(0.02)
    assert printed.startswith("  mse, distilling: 0 of ")
    capsys.readouterr()
    time.sleep(0.1)
    assert not capsys.readouterr().err
