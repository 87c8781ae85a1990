"""A stage that is killed on one node goes on from its checkpoint on another, to the same weights."""

import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from metrics_lines import read_metrics
from patience import STUCK_S
from stand_ins import dev, stage, table, weight_figure  # type: ignore[import-not-found]

from stillhouse.core.artifacts import CHECKPOINTS, Workspace, lock_of, locked, read_manifest
from stillhouse.core.errors import Hindered
from stillhouse.core.remotes import Remote
from stillhouse.sweeps.session import remove_outlived
from stillhouse.training import checkpoint, metrics_log
from stillhouse.training.fit import fit
from stillhouse.training.progress import Stopped
from stillhouse.training.published_run import PublishedRun, abandon, published_run
from stillhouse.training.rank_sync import Interrupted
from stillhouse.training.worker_mailbox import mailbox_of
from stillhouse.values.stage import Stage

pytestmark = pytest.mark.usefixtures("one_thread", "bare_encoder")


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    (tmp_path / "mounted").mkdir()
    return Remote(str(tmp_path / "mounted"))


def plan() -> Stage:
    result: Stage = stage(budget=8 * 120, dev=dev(), evaluate_every=8 * 30, accumulate=2)
    return result


def train(workspace: Workspace, **more: Any) -> Path:
    run = None if workspace.remote is None else PublishedRun(plan(), workspace, workspace.remote)
    folder = workspace.place(plan())
    fit(plan(), table(), folder, evaluate=weight_figure, checkpoint_seconds=0.02, published=run, **more)
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("straight") / "runs")


@pytest.fixture
def straight(kept: Workspace) -> Path:
    """The stage without a kill, trained once for this file."""
    return kept.place(plan()) if kept.finished(plan()) else train(kept)


def same(one: Path, other: Path) -> bool:
    first, second = read_manifest(one), read_manifest(other)
    lines = [
        [
            (line["step"], line["metrics"]["loss"])
            for line in read_metrics(folder / "metrics.jsonl")
            if "loss" in line["metrics"]
        ]
        for folder in (one, other)
    ]
    parts = ("weights_sha256", "evaluations")
    return all(first[part] == second[part] for part in parts) and lines[0] == lines[1]


def key() -> str:
    return f"checkpoints/{plan().label}-{plan().fingerprint}"


def newest(remote: Remote) -> int:
    listed = remote.listed(key()) or {}
    return max((checkpoint.step_of(Path(name)) for name in listed), default=-1)


def slowly(workspace: Workspace) -> None:
    def stop_requested() -> bool:
        time.sleep(0.005)
        return False

    train(workspace, stop_requested=stop_requested)


def test_a_stage_that_is_killed_here_goes_on_there(remote: Remote, straight: Path, tmp_path: Path) -> None:
    one = Workspace(tmp_path / "one", remote)
    process = multiprocessing.get_context("fork").Process(target=slowly, args=(one,))
    process.start()
    deadline = time.monotonic() + STUCK_S
    while newest(remote) < 15:
        assert process.is_alive() and time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.join()
    at = newest(remote)
    assert 15 <= at < 120 and not remote.has(one.key(plan()))
    began: list[int] = []

    def counted() -> bool:
        began.append(1)
        return False

    two = Workspace(tmp_path / "two", remote)
    PublishedRun(plan(), two, remote).restore()
    assert checkpoint.steps(two.place(plan()))[-1] == at, "the newest one wins"
    folder = train(two, stop_requested=counted)
    assert len(began) < 120 - at + 1, "the steps before it are not trained again"
    assert same(folder, straight)
    assert remote.has(two.key(plan())) and newest(remote) == -1, "checkpoints of a finished stage are removed"
    assert same(Workspace(tmp_path / "three", remote).path(plan()), straight)


def test_a_node_with_a_newer_checkpoint_keeps_it(remote: Remote, straight: Path, tmp_path: Path) -> None:
    one, two = Workspace(tmp_path / "one", remote), Workspace(tmp_path / "two", remote)
    for workspace, after in ((one, 3), (two, 9)):
        calls = iter(range(1000))
        with pytest.raises(Interrupted):
            train(workspace, stop_requested=lambda calls=calls, after=after: next(calls) >= after)
    reached = checkpoint.steps(two.place(plan()))[-1]
    assert newest(remote) == reached > checkpoint.steps(one.place(plan()))[-1] > 0
    one_again = PublishedRun(plan(), one, remote)
    one_again.restore()
    assert checkpoint.steps(one.place(plan()))[-1] == reached
    remote.remove("checkpoints")
    one_again.checkpoint()
    one_again.close()
    assert newest(remote) == reached
    assert same(train(one), straight)


def interrupted(workspace: Workspace, after: int) -> Path:
    calls = iter(range(1000))
    with pytest.raises(Interrupted):
        train(workspace, stop_requested=lambda: next(calls) >= after)
    return workspace.place(plan())


def test_a_damaged_checkpoint_is_fetched_again(
    remote: Remote, straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = Workspace(tmp_path / "one", remote)
    folder = interrupted(one, 40)
    reached = checkpoint.steps(folder)[-1]
    checkpoint.path_of(folder, reached).write_bytes(b"no checkpoint")
    assert same(train(one), straight)
    told = capsys.readouterr()
    assert f"step-{reached:09d}.pt is damaged" in told.err
    assert f"going on from step {reached}, which another node" in told.out + told.err


def test_old_checkpoints_are_removed_from_the_remote(remote: Remote, tmp_path: Path) -> None:
    one, calls = Workspace(tmp_path / "one", remote), iter(range(1000))
    with pytest.raises(Interrupted):
        train(one, stop_requested=lambda: next(calls) >= 100)
    named = {file.place(name) for name, file in (remote.listed(key()) or {}).items()}
    there = set(remote._sizes(key())) - {"manifest.json"}
    assert there > named and len(there) <= 2 * len(named), "those of one publication before stay for readers"
    assert not list(one.place(plan()).glob(".publishing-*")), "nothing is left on the disk"


def test_a_remote_that_fails_does_not_stop_the_training(
    remote: Remote,
    straight: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*arguments: object) -> None:
        raise Hindered("the remote must answer, but does not")

    one = Workspace(tmp_path / "one", remote)
    with monkeypatch.context() as patched:
        patched.setattr(Remote, "put_all", refuse)
        with pytest.raises(Hindered, match="must answer"):
            train(one)
    assert capsys.readouterr().err.count("its checkpoints are on this node alone for now") == 1
    assert same(one.place(plan()), straight)
    assert one.finished(plan()) and remote.has(one.key(plan())), "published by whoever asks next"


def test_the_end_of_a_stage_waits_for_the_checkpoint_that_is_being_sent(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest removes temporary folders, also the one that is read here."""
    complete = []

    def slow(run: PublishedRun, snapshot: Path) -> None:
        files = [path for path in snapshot.rglob("*") if path.is_file()]
        time.sleep(0.2)
        complete.append(bool(files) and all(path.exists() for path in files))

    monkeypatch.setattr(PublishedRun, "_publish", slow)
    train(Workspace(tmp_path / "one", remote))
    assert complete and all(complete)


def test_while_one_is_published_only_the_newest_waits(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, release, published = Workspace(tmp_path / "one", remote), threading.Event(), []
    run = PublishedRun(plan(), one, remote)

    def slow(snapshot: Path) -> None:
        published.append(sorted(path.name for path in (snapshot / "checkpoints").iterdir()))
        release.wait(30)

    monkeypatch.setattr(run, "_publish", slow)
    for step in (1, 2, 3):
        checkpoint.save(one.place(plan()), step, {"step": step})
        run.checkpoint()
        while not published:
            time.sleep(0.001)
        checkpoint.prune(one.place(plan()), {step})
    release.set()
    run.close()
    assert (
        published == [["step-000000001.pt"], ["step-000000003.pt"]] or published[1][-1] == "step-000000003.pt"
    )
    assert len(published) == 2


def test_it_tells_the_cluster_how_far_it_is(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = published_run(plan(), Workspace(tmp_path / "here", remote))
    assert run is not None
    told = mailbox_of(run.workspace, run.stage).seen
    run.tell(8)
    assert told() is None, "without Ray all processes see the log"
    monkeypatch.setattr("stillhouse.training.published_run.ray_runs", lambda: True)
    run.tell(16)
    assert told() == 16


def test_a_run_with_a_remote_tells_what_it_has_seen(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(PublishedRun, "tell", lambda run, examples: told.append(examples))
    monkeypatch.setattr(metrics_log, "PULSE_S", 0.0)
    train(Workspace(tmp_path / "here", remote))
    assert told[0] == plan().batch_size and told[-1] == plan().examples_seen


def test_what_nobody_resumes_loses_its_checkpoints_here_and_there(tmp_path: Path, remote: Remote) -> None:
    workspace = Workspace(tmp_path / "node", remote=remote)
    with pytest.raises(Stopped):
        train(workspace, on_evaluation=lambda evaluation: True)
    folder = workspace.place(plan())
    key = f"{CHECKPOINTS}/{folder.name}"
    assert checkpoint.steps(folder) and remote.listed(key)
    with locked(lock_of(folder)):
        assert not abandon(plan(), workspace)
    assert checkpoint.steps(folder) and remote.listed(key)
    assert abandon(plan(), workspace)
    assert not checkpoint.steps(folder) and not remote.listed(key)
    assert (folder / metrics_log.NAME).is_file()


def test_checkpoints_that_a_kill_left_beside_a_published_stage_go_at_the_next_start(
    tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = Workspace(tmp_path / "node", remote), Workspace(tmp_path / "other", remote)
    remove, killed = Remote.remove, [True]

    def removed(self: Remote, name: str) -> None:
        if killed and name == key():
            raise KeyboardInterrupt
        remove(self, name)

    monkeypatch.setattr(Remote, "remove", removed)
    with pytest.raises(KeyboardInterrupt):
        train(node)
    assert other.finished(plan()) and remote.folders(CHECKPOINTS) == [Path(key()).name]
    remote.write("checkpoints/distil-of-another/part", b"of a stage that is not finished")
    killed.clear()
    remove_outlived(other)
    assert remote.folders(CHECKPOINTS) == ["distil-of-another"]
