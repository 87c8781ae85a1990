"""The start of a sweep, up to its first trial: one command, the same search, and enough rows, without Ray."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rows import each_row
from small_experiment import sentences

from stillhouse import BadInput, Budget, Experiment, Sentences, TeacherChoice, TransformerChoice, train
from stillhouse.cluster.resources import Need
from stillhouse.core.artifacts import Workspace, write_json
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import load_method
from stillhouse.search.options import SweepOptions
from stillhouse.search.space import Categorical, Int, Space
from stillhouse.sweeps import session as session_module
from stillhouse.sweeps import sweep as sweep_module
from stillhouse.sweeps.checks import check_space, sweep_options
from stillhouse.sweeps.session import session
from stillhouse.sweeps.sweep import sweep
from stillhouse.teachers.kinds import Finder
from stillhouse.values.data import Teacher


class Began(Exception):
    """The first trial would begin now."""


def pairs_of(optimizers: tuple[str, ...], decays: tuple[float, ...], **first: Any) -> Space:
    domains = {"optimizer": Categorical(optimizers), "weight_decay": Categorical(decays)}
    return Space("mse", domains, {"batch_size": 8}, first or None)


@each_row("decays", [(0.0, 0.01), (0.01, 0.0)])
@each_row("first", [{}, {"optimizer": "adam", "weight_decay": 0.01}])
def test_values_that_are_refused_only_together_are_searched(
    tmp_path: Path, tiny_model: Path, decays: tuple[float, ...], first: dict[str, Any]
) -> None:
    space = pairs_of(("adam", "adamw"), decays, **first)
    experiment = options_of(tmp_path, tiny_model, Categorical((8,))).experiment
    _, found = check_space(load_method("mse"), experiment, space)
    assert found.start["optimizer"] == "adam" and found.fingerprint == space.fingerprint


def test_a_space_without_a_point_that_can_be_planned_is_refused(tmp_path: Path, tiny_model: Path) -> None:
    experiment = options_of(tmp_path, tiny_model, Categorical((8,))).experiment
    with pytest.raises(BadInput, match="weight_decay > 0 with optimizer = adamw"):
        check_space(load_method("mse"), experiment, pairs_of(("adamw",), (0.0,)))
    odd = pairs_of(("adam", "adamw"), (0.0, 0.01), optimizer="adamw", weight_decay=0.0)
    with pytest.raises(BadInput, match="weight_decay > 0 with optimizer = adamw"):
        check_space(load_method("mse"), experiment, odd)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No cluster; what would be asked of it is noted."""
    asked: list[str] = []

    def search(*_: Any) -> None:
        raise Began

    monkeypatch.setattr(session_module, "connect", lambda *_, **__: asked.append("connected"))
    monkeypatch.setattr(session_module, "disconnect", lambda: asked.append("left"))
    monkeypatch.setattr(session_module, "cluster_device", lambda device: device)
    monkeypatch.setattr(session_module, "wait_for_room", lambda *_, **__: None)
    monkeypatch.setattr(sweep_module, "Slots", lambda *_: lambda: 1)
    monkeypatch.setattr(session_module, "refuse_hidden_root", lambda *_, **__: None)
    monkeypatch.setattr("stillhouse.sweeps.search_and_deliver.search_and_deliver", search)
    return asked


def options_of(folder: Path, teacher: Path, batch_size: Categorical | Int, **more: Any) -> SweepOptions:
    (folder / "words.txt").write_text("\n".join(sentences(80)))
    experiment = Experiment(
        teacher=TeacherChoice(str(teacher)),
        student=TransformerChoice(layers=(0, 1)),
        data=(Sentences(str(folder / "words.txt"), count=0, held_out=10),),
        budget=Budget(distil=512, evaluations=1),
        max_length=16,
        compute="float32",
    )
    space = Space("mse", {"batch_size": batch_size}, first={"batch_size": 8})
    local = Embedding(local=True)
    return SweepOptions("s", "mse", space, experiment, folder / "runs", embedding=local, **more)


def test_what_a_killed_writer_left_is_removed_at_the_next_start(
    tmp_path: Path, connections: list[str]
) -> None:
    scraps = [tmp_path / name for name in (".workspace.json.1.tmp", "sources/.a.json.2.tmp", "keep.tmp")]
    for scrap in scraps:
        scrap.parent.mkdir(exist_ok=True)
        scrap.write_text("half")
    with session(tmp_path, device="cpu", local=True):
        assert [scrap.exists() for scrap in scraps] == [False, False, True]


def test_too_few_rows_for_any_batch_that_may_be_drawn_are_refused_before_the_sweep_is_begun(
    tmp_path: Path, tiny_model: Path, connections: list[str]
) -> None:
    """Under the same name the sweep can then be started with a smaller batch."""
    for sizes in (Categorical((8, 128, 16)), Int(8, 128)):
        with pytest.raises(
            BadInput, match=r"rows of the stage \w+ >= batch_size.*batch_size=128.*smaller batch"
        ):
            sweep(options_of(tmp_path, tiny_model, sizes))
        assert not (tmp_path / "runs" / "sweeps").exists()
    with pytest.raises(Began):
        sweep(options_of(tmp_path, tiny_model, Categorical((8, 16))))
    assert (tmp_path / "runs" / "sweeps" / "s" / "sweep.json").exists()
    with pytest.raises(BadInput, match=r"but the space of sweep 's' differs"):
        sweep(options_of(tmp_path, tiny_model, Categorical((8, 4))))
    assert connections == ["connected", "left"] * 3


def test_the_teacher_is_found_once(
    tmp_path: Path, tiny_model: Path, connections: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its weights are read to find it: by the check of the plans, for the sweep and for a training."""
    found: list[str] = []
    resolve = Finder.resolve

    def counted(finder: Finder) -> Teacher:
        found.append(finder.choice.name)
        return resolve(finder)

    monkeypatch.setattr(Finder, "resolve", counted)
    given = options_of(tmp_path, tiny_model, Categorical((8, 16)))
    (tmp_path / "space.yaml").write_text("method: mse\nsearch:\n  space: {batch_size: [8, 16]}\n")
    space = tmp_path / "space.yaml"
    options = sweep_options("mse", given.experiment, root=given.root, device="cpu", space=space)
    with pytest.raises(Began):
        sweep(dataclasses.replace(options, embedding=given.embedding, need=given.need))
    assert found == [str(tiny_model)]
    found.clear()
    root = tmp_path / "other"
    train("mse", given.experiment, values={"batch_size": 16}, root=root, device="cpu")
    assert found == [str(tiny_model)]


def test_a_workspace_is_checked_before_ray_is_started(tmp_path: Path, connections: list[str]) -> None:
    """What is checked is read under the lock."""
    (tmp_path / "known").mkdir()

    def check() -> None:
        write_json(tmp_path / "known" / "seen.json", {})
        raise BadInput("another search")

    with pytest.raises(BadInput, match="another search"):
        with session(tmp_path, device="cpu", local=False, check=check):
            raise AssertionError("refused")
    assert connections == [] and (tmp_path / "known" / "seen.json").exists()
    with session(tmp_path, device="cpu", local=False, check=lambda: None) as (workspace, device):
        assert (workspace.root, device) == (tmp_path, "cpu")
    assert connections == ["connected", "left"]


def test_several_commands_may_work_in_a_workspace_and_tidy_up_only_alone(tmp_path: Path) -> None:
    """What the first one is writing must not be taken for what a killed writer left."""
    scrap, run = tmp_path / ".workspace.json.1.tmp", tmp_path / "ray" / "distil-0"
    with session(tmp_path, device="cpu", local=True):
        scrap.write_text("half")
        run.mkdir(parents=True)
        with session(tmp_path, device="cpu", local=True):
            assert scrap.exists()
        assert scrap.exists() and run.exists()
    assert not run.exists()
    with session(tmp_path, device="cpu", local=True):
        assert not scrap.exists()


def test_a_sweep_is_run_by_one_command_at_a_time(
    tmp_path: Path, tiny_model: Path, connections: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sweeps of other names run beside it."""
    options = options_of(tmp_path, tiny_model, Categorical((8,)))
    refused: list[str] = []

    def meanwhile(*_: Any) -> None:
        with pytest.raises(BadInput, match="another one runs 's' in") as refusal:
            sweep(options)
        refused.append(str(refusal.value))
        monkeypatch.setattr("stillhouse.sweeps.search_and_deliver.search_and_deliver", began)
        with pytest.raises(Began):
            sweep(dataclasses.replace(options, name="other"))
        raise Began

    def began(*_: Any) -> None:
        raise Began

    monkeypatch.setattr("stillhouse.sweeps.search_and_deliver.search_and_deliver", meanwhile)
    with pytest.raises(Began):
        sweep(options)
    assert len(refused) == 1 and "--name" in refused[0]
    assert connections == ["connected", "connected", "left", "left"], "the second was refused before Ray"


def test_a_database_of_studies_is_refused_before_any_work(
    tmp_path: Path, tiny_model: Path, connections: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLHOUSE_STUDY_DATABASE", "mysql://db/studies")
    with pytest.raises(BadInput, match="STILLHOUSE_STUDY_DATABASE must be the URL of a Postgres"):
        sweep(options_of(tmp_path, tiny_model, Categorical((8,))))
    assert not connections


def test_what_ray_train_leaves_behind_is_removed_at_the_end(tmp_path: Path) -> None:
    """Tune ends a trial that does not stop in time, and its run of Ray Train cannot tidy up."""
    left = tmp_path / "runs" / "ray" / "distil-0" / "ranks-0"
    with pytest.raises(KeyError), session(tmp_path / "runs", device="cpu", local=True):
        left.parent.mkdir(parents=True)
        left.write_bytes(b"0")
        raise KeyError
    assert not (tmp_path / "runs" / "ray").exists()


def test_what_killed_writers_left_in_finished_artifacts_is_removed_at_the_start(tmp_path: Path) -> None:
    Workspace(tmp_path / "runs").claim()
    finished, unfinished = (tmp_path / "runs" / "stages" / name for name in ("mse-0", "mse-1"))
    for folder in (finished, unfinished):
        folder.mkdir(parents=True)
        (folder / ".plan.json.abc.tmp").write_bytes(b"0")
        for part in ("checkpoints/step-000000004.pt", "parts/000000000000.npy"):
            (folder / part).parent.mkdir()
            (folder / part).write_bytes(b"0")
    write_json(finished / "manifest.json", {})
    with session(tmp_path / "runs", device="cpu", local=True):
        pass
    assert [path.name for path in finished.iterdir()] == ["manifest.json"]
    assert len(list(unfinished.iterdir())) == 3, "its own writer, which holds its lock, does that"


@each_row("workers", [1, 2])
@each_row(("remote", "shared"), [("", True), ("/mnt/remote", False)])
def test_nodes_must_see_the_root_unless_there_is_a_remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: str, workers: int, shared: bool
) -> None:
    """Those that are there at the start, and those that join later."""
    checked: list[Any] = []
    refused: list[Any] = []
    watching: list[Any] = []

    @contextlib.contextmanager
    def watched(on_join: Callable[[Any], None]) -> Iterator[None]:
        watching.append(on_join)
        yield

    monkeypatch.setattr(session_module, "connect", lambda *_, **__: None)
    monkeypatch.setattr(session_module, "disconnect", lambda: None)
    monkeypatch.setattr(session_module, "cluster_device", lambda device: device)
    monkeypatch.setattr(session_module, "nodes_watched", watched)
    monkeypatch.setattr(
        session_module, "warn_of_hidden_root", lambda *node_and_root: checked.append(node_and_root)
    )
    monkeypatch.setattr(session_module, "opened_workspace", lambda root, _: Workspace(root))
    monkeypatch.setattr(session_module, "wait_for_room", lambda *_, **__: None)
    monkeypatch.setattr(session_module, "refuse_hidden_root", refused.append)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with session(tmp_path, device="cpu", local=False):
        assert not watching, "a local cluster has one node"
    need = Need(workers=workers)
    refused.clear()
    with session(tmp_path, device="cpu", local=False, address="auto", remote=remote, need=need):
        assert refused == [tmp_path] * shared
        watching[0]("node")
    assert checked == [("node", tmp_path)] * shared
