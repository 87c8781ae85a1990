"""Lines on plans in training: how far they are over all stages, and only after a silence."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from stillhouse.core import progress_bar
from stillhouse.core.artifacts import Workspace, write_manifest
from stillhouse.core.console import duration
from stillhouse.core.remotes import remote_at
from stillhouse.search.trial import Context
from stillhouse.training import follower
from stillhouse.training.follower import PlanFollower, seen_of
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


def test_the_examples_of_all_stages_count(plan: Stage, workspace: Workspace) -> None:
    distil, finetune = plan.chain()
    total = distil.examples_seen + finetune.examples_seen
    assert seen_of(plan, workspace)[:2] == (0, total)
    made(workspace, distil, 2)
    assert seen_of(plan, workspace)[:2] == (2 * distil.batch_size, total)
    write_manifest(workspace.path(distil), {})
    made(workspace, finetune, 1)
    assert seen_of(plan, workspace)[:2] == (distil.examples_seen + finetune.batch_size, total)


def test_what_was_seen_since_the_last_line_of_the_log_counts(plan: Stage, workspace: Workspace) -> None:
    """With steps of more than a second, the same line was printed three times before the next of the log."""
    distil, _ = plan.chain()
    made(workspace, distil, 2)
    Pulse(workspace.place(distil)).beat(5 * distil.batch_size)
    assert seen_of(plan, workspace)[0] == 5 * distil.batch_size
    assert 0 <= seen_of(plan, workspace).ago < 60


def test_what_another_node_tells_counts_where_a_remote_is_all_that_is_shared(
    plan: Stage, workspace: Workspace, tmp_path: Path
) -> None:
    """The driver said "0 examples" and "no news" of trials that were halfway."""
    distil, finetune = plan.chain()
    mailbox_of(workspace, distil).note_seen(48)
    assert seen_of(plan, workspace)[0] == 0, "the log is there, and says more"
    there = replace(workspace, remote=remote_at(str(tmp_path / "remote")))
    assert seen_of(plan, there)[0] == 48
    write_manifest(there.path(distil), {})
    assert seen_of(plan, there)[0] == distil.examples_seen
    mailbox_of(there, finetune).note_seen(16)
    assert seen_of(plan, there)[0] == distil.examples_seen + 16


def test_a_line_after_a_silence(
    plan: Stage, workspace: Workspace, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    distil, _ = plan.chain()
    total = plan.examples_in_all
    following = PlanFollower(workspace, every_s=20)
    following.follow("trial 3", plan)
    following.follow("trial 4", plan)
    clock[0] += 19
    following.tell()
    following.heard("trial 4")
    assert not capsys.readouterr().err, "something was printed 19 s ago"
    clock[0] += 2
    following.tell()
    assert capsys.readouterr().err == f"  trial 3: 0 of {total:,} examples\n"
    made(workspace, distil, 2)
    following.leave("trial 4")
    clock[0] += 16
    following.tell()
    assert not capsys.readouterr().err
    clock[0] += 16
    following.tell()
    seen = 2 * distil.batch_size
    left = duration((total - seen) / (seen / 32))
    assert capsys.readouterr().err == f"  trial 3: {seen} of {total:,} examples, 1 examples/s, {left} left\n"


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
    made(workspace, stage, 400)
    clock[0] += 1000  # Another process trained until here.
    following = PlanFollower(workspace, every_s=20)
    following.follow("trial 3", stage)
    rates = []
    for second in range(1, 601):
        clock[0] = start + 1000 + second
        if second % 65 == 0:
            made(workspace, stage, 400 + 4 * second)
        following.tell()
        if line := capsys.readouterr().err:
            rates.append(line.partition(" examples, ")[2].partition(" examples/s")[0])
    assert rates == [""] * 3 + [str(4 * stage.batch_size)] * 27


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
    assert drawn == [("trial 3", (turn + 1) * distil.batch_size) for turn in range(3)]
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
    assert "no news" not in lines[6] and "left" in lines[1]
    seen, total = 2 * distil.batch_size, plan.examples_in_all
    assert lines[7] == f"  trial 3: {seen} of {total:,} examples, no news for {duration(120)}\n"
    made(workspace, distil, 3)
    clock[0] += 20
    following.tell()
    assert "no news" not in capsys.readouterr().err, "it goes on"


def test_what_waits_beside_others_has_lines_only_while_it_advances(
    plan: Stage, workspace: Workspace, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    distil, finetune = plan.chain()
    total = plan.examples_in_all
    following = PlanFollower(workspace, every_s=20)
    following.follow("baseline", plan, beside=True)
    clock[0] += 30
    following.tell()
    assert not capsys.readouterr().err, "it may wait for others"
    made(workspace, distil, 2)
    clock[0] += 30
    following.tell()
    assert capsys.readouterr().err.startswith(f"  baseline: {2 * distil.batch_size} of {total:,} examples")
    clock[0] += 30
    following.tell()
    assert not capsys.readouterr().err, "it may have diverged"
    write_manifest(workspace.path(distil), {})
    made(workspace, finetune, finetune.steps)
    clock[0] += 30
    following.tell()
    assert capsys.readouterr().err == f"  baseline: all {total:,} examples seen, evaluating\n"
    write_manifest(workspace.path(finetune), {})
    clock[0] += 30
    following.tell()
    assert not capsys.readouterr().err, "it is finished"


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

    progress = f"  trial 3: 0 of {plan.examples_in_all:,} examples\n"
    assert said(Wait(room, began, began + 5)) == progress, "what has ended before a line is not told"
    assert said(Wait(room, time.time())) == progress, "it has just begun"
    waiting = f"  trial 3: waiting for {room}, for {duration(300)} so far\n"
    assert said(Wait(room, began)) == waiting and said() == waiting
    for _ in range(8):
        said()
    assert said(Wait(room, began, began + 60)) == f"  trial 3: has {room}, after 60 s\n"
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
    assert printed.startswith(f"  mse: 0 of {plan.examples_in_all:,} examples")
    capsys.readouterr()
    time.sleep(0.1)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.4, "3 s"), (119, "119 s"), (600, "10 min"), (13157, "3.7 h")]
)
def test_a_duration_in_a_unit_that_is_easy_to_read(seconds: float, text: str) -> None:
    assert duration(seconds) == text
