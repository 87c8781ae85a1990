"""Plans with real parts: texts, tokens, a teacher's store, one of our students and objectives."""

import contextlib
import json
import multiprocessing
import os
import pickle
import pkgutil
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from local_ray import local_ray
from metrics_lines import read_metrics
from safetensors.torch import load_file

from stillhouse.cluster.preemption import Preempted
from stillhouse.core.artifacts import Workspace, read_manifest, remove
from stillhouse.core.distributed import rank
from stillhouse.core.errors import BadInput, Hindered
from stillhouse.core.identity import spec
from stillhouse.core.remotes import Remote
from stillhouse.core.types import Encoder
from stillhouse.corpora.tables import open_rows, write_rows, write_texts
from stillhouse.experiments.vocabulary import word_vectors
from stillhouse.objectives.information_bottleneck import InformationBottleneck, SupervisedBottleneck
from stillhouse.students.bilstm import BiLSTMStudent
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.streamed_shards import StreamedShards
from stillhouse.teachers.weights import resolve_model
from stillhouse.training import checkpoint, fit, follower, local, walk, worker
from stillhouse.training.follower import PlanFollower
from stillhouse.training.models import encoder_in, open_model
from stillhouse.training.progress import Diverged, Evaluation, Stopped
from stillhouse.training.term_gradients import logged_shares
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.training.worker_mailbox import WordsInFolder, WorkerMailbox
from stillhouse.values.data import AllRows, Examples, Mined, Model, Store
from stillhouse.values.mining import Mining
from stillhouse.values.stage import DevSuite, Optimizer, Stage

pytestmark = pytest.mark.usefixtures("one_thread")

WHERE = Where(device="cpu", threads=1)
NOUNS = "cat dog sat mat house river water sun moon red green blue fast slow array list text word".split()


class Spread:
    """A cheap dev evaluator: the distance between the vectors of some words."""

    def __init__(self, words: tuple[str, ...] = ("cat", "house", "river", "moon")) -> None:
        self.words = words

    def __call__(self, model: Encoder) -> dict[str, float]:
        return {"spread": float(np.asarray(model.encode(list(self.words))).std(axis=0).mean())}


class Bad:
    """An evaluator that raises a user error."""

    def __call__(self, model: Encoder) -> dict[str, float]:
        raise BadInput("the dev set must be there, but it is not.")


def sentences(count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(NOUNS, random.integers(3, 9))) for _ in range(count)]


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork processes to save the imports of a fresh one, and let those left by one that fails end soon."""
    monkeypatch.setattr(worker, "START_METHOD", "fork")
    monkeypatch.setattr(worker, "_GRACE_SECONDS", 0.1)


@pytest.fixture(scope="session")
def teacher(tiny_model: Path) -> Model:
    return resolve_model(str(tiny_model))


@pytest.fixture
def distil(workspace: Workspace, teacher: Model) -> Callable[..., Stage]:
    texts = write_texts(workspace, "words", sentences(150, 0))

    def build(**changes: Any) -> Stage:
        defaults: dict[str, Any] = {
            "label": "distil",
            "student": spec(TransformerStudent, base=teacher, layers=(0, 2)),
            "objective": spec(InformationBottleneck, beta=0.5),
            "examples": Examples({"text": texts}, AllRows()),
            "stores": {"text": Store(texts, teacher, max_length=32)},
            "budget": 16 * 12,
            "batch_size": 16,
            "optimizer": Optimizer(1e-3),
            "max_length": 32,
            "dev": DevSuite((spec(Spread),), select="spread"),
            "evaluate_every": 16 * 4,
        }
        return Stage(**{**defaults, **changes})

    return build


def test_a_node_that_holds_few_shards_trains_the_same_student(
    workspace: Workspace,
    teacher: Model,
    distil: Callable[..., Stage],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "mounted").mkdir()
    remote = Remote(str(tmp_path / "mounted"))
    own = Workspace(workspace.root, remote)
    texts = write_texts(own, "many", sentences(150, 5), rows_per_shard=20)
    store = Store(texts, teacher, max_length=32)
    plan = distil(examples=Examples({"text": texts}, AllRows()), stores={"text": store}, shard_window=2)
    build_stores(own, [store], local=True)
    own.publish(texts)
    shutil.copytree(tmp_path / "mounted", tmp_path / "copy")
    held: list[int] = []
    hold = StreamedShards.hold

    def noted(self: StreamedShards, names: list[str]) -> None:
        held.append(len(names))
        hold(self, names)

    monkeypatch.setattr(StreamedShards, "hold", noted)
    whole = run(plan, own, where=WHERE)
    assert not held, "what is here is read here"
    node = Workspace(tmp_path / "node", Remote(str(tmp_path / "copy")))
    few = run(plan, node, where=WHERE)
    assert held and max(held) <= 4 and not list((node.root / "stores").glob("*/part-*"))
    sums = [read_manifest(folder)["weights_sha256"] for folder in (whole, few)]
    assert sums[0] == sums[1] and few != whole
    default = run(replace(plan, shard_window=0), node, where=WHERE)
    assert read_manifest(default)["weights_sha256"] != sums[0], "another order"
    assert list((node.root / "stores").glob("*/part-*")), "the default fetches the store"


@pytest.fixture
def mined(workspace: Workspace, teacher: Model) -> Examples:
    queries = write_texts(workspace, "queries", sentences(60, 1))
    passages = write_texts(workspace, "passages", sentences(200, 2))
    rows = np.arange(len(open_rows(workspace, Examples({"q": queries}, AllRows()))["q"]))
    columns = {"query": queries, "passage": passages}
    pairs = write_rows(workspace, columns, {"query": rows, "passage": rows + 3}, "pairs")
    by_query, by_passage = (Store(table, teacher, max_length=32) for table in (queries, passages))
    origin = Mined(pairs, by_query, by_passage, negatives=3, mining=Mining(relative_margin=0.0))
    return Examples({**columns, "negatives": passages}, origin, label="mined")


def recording_to(evaluations: list[Evaluation]) -> Callable[[Evaluation], bool]:
    def listen(evaluation: Evaluation) -> bool:
        evaluations.append(evaluation)
        return False

    return listen


def two_stages(distil: Callable[..., Stage], mined: Examples) -> Stage:
    first = distil()
    return distil(
        label="finetune",
        student=first.student.replace(projection=8),
        objective=spec(SupervisedBottleneck),
        examples=mined,
        stores={},
        start_from=first,
    )


def test_a_plan_runs_from_scratch_and_is_then_reused(
    workspace: Workspace, distil: Callable[..., Stage], mined: Examples
) -> None:
    plan = two_stages(distil, mined)
    evaluations: list[Evaluation] = []
    folder = run(plan, workspace, where=WHERE, on_evaluation=recording_to(evaluations))
    assert [(e.stage, e.examples, e.final) for e in evaluations] == [
        ("distil", 64, False), ("distil", 128, False), ("distil", 192, False),
        ("finetune", 256, False), ("finetune", 320, False), ("finetune", 384, True),
    ]  # fmt: skip
    again: list[Evaluation] = []
    times = [path.stat().st_mtime_ns for path in sorted(workspace.root.rglob("*.safetensors"))]
    assert run(plan, workspace, where=WHERE, on_evaluation=recording_to(again)) == folder
    assert again == evaluations, "finished stages replay their curves"
    assert times == [path.stat().st_mtime_ns for path in sorted(workspace.root.rglob("*.safetensors"))]
    assert "kernel_mean_student" in read_metrics(folder / "metrics.jsonl")[0]["metrics"]
    negatives = open_rows(workspace, mined)
    assert negatives["negatives"].shape[1] == 3
    assert not (negatives["negatives"] == negatives["passage"][:, None]).any()


def test_the_trained_student_can_be_loaded(workspace: Workspace, distil: Callable[..., Stage]) -> None:
    plan = distil()
    folder = run(plan, workspace, where=WHERE)
    texts = ["the cat sat", "a river"]
    encoder = encoder_in(folder)
    vectors = encoder.encode(texts)
    np.testing.assert_array_equal(open_model(str(folder), workspace).encode(texts), vectors)
    np.testing.assert_array_equal(open_model(folder.name, workspace).encode(texts), vectors)
    assert isinstance(encoder.student, TransformerStudent)
    for name, value in encoder.student.state_dict().items():
        torch.testing.assert_close(load_file(folder / "student.safetensors")[name], value)
    assert open_model(plan.stores["text"].teacher.path, workspace).encode(texts).shape == (2, 32)  # type: ignore[union-attr]


def test_the_teacher_stage_runs_first(workspace: Workspace, distil: Callable[..., Stage]) -> None:
    assistant = distil(budget=32, dev=None)
    texts = assistant.examples.columns["text"]
    pupil = distil(stores={"text": Store(texts, assistant, max_length=32)}, budget=32, seed=1)
    run(pupil, workspace, where=WHERE)
    assert workspace.finished(assistant) and workspace.finished(pupil)


def test_a_stopped_and_resumed_plan_equals_an_uninterrupted_one(
    workspace: Workspace, distil: Callable[..., Stage]
) -> None:
    plan = distil()
    with pytest.raises(Stopped):
        run(plan, workspace, where=WHERE, on_evaluation=lambda evaluation: evaluation.examples >= 64)
    assert not workspace.finished(plan)
    folder = run(plan, workspace, where=WHERE)
    stopped = read_manifest(folder)["weights_sha256"]
    remove(folder)
    run(plan, workspace, where=WHERE, on_evaluation=lambda evaluation: evaluation.final)
    assert read_manifest(folder)["weights_sha256"] == stopped


def test_a_stage_makes_way_with_a_checkpoint_if_its_node_is_about_to_go(
    workspace: Workspace, distil: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step is taken twice, and the weights are those of a run that nothing disturbed."""
    plan, taken = distil(), list[int]()
    notice = threading.Event()

    @contextlib.contextmanager
    def leaving() -> Iterator[threading.Event]:
        yield notice

    def step(loop: Any, upcoming: Any) -> bool:
        smaller = before(loop, upcoming)
        taken.append(loop.progress.step)
        if len(taken) == 3:
            notice.set()
        return smaller

    before = fit._Loop._step
    monkeypatch.setattr(fit._Loop, "_step", step)
    monkeypatch.setattr(walk, "leaving", leaving)
    with pytest.raises(BaseException, match="the node is about to go") as ended:
        run(plan, workspace, where=WHERE)
    assert ended.type is Preempted, "an interruption would end the tests too"
    assert taken == [1, 2, 3] and not workspace.finished(plan)
    notice.clear()
    folder = run(plan, workspace, where=WHERE)
    assert taken == list(range(1, plan.steps + 1))
    weights = read_manifest(folder)["weights_sha256"]
    remove(folder)
    run(plan, workspace, where=WHERE)
    assert read_manifest(folder)["weights_sha256"] == weights


def test_an_upstream_stage_is_built_once(
    workspace: Workspace, distil: Callable[..., Stage], mined: Examples
) -> None:
    """Two processes run two plans that share their first stage."""
    plans = [two_stages(distil, mined), two_stages(distil, mined)]
    plans[1] = Stage(**{**vars(plans[1]), "optimizer": Optimizer(5e-4)})
    first = next(plans[0].chain())
    context = multiprocessing.get_context("fork")
    together = [
        context.Process(target=run, args=(plan, workspace), kwargs={"where": WHERE}) for plan in plans
    ]
    for process in together:
        process.start()
    for process in together:
        process.join()
        assert process.exitcode == 0
    assert all(workspace.finished(plan) for plan in plans)
    lines = read_metrics(workspace.path(first) / "metrics.jsonl")
    steps = [line["step"] for line in lines]
    written = [(line["step"], name) for line in lines for name in line["metrics"]]
    assert steps == sorted(steps) and len(written) == len(set(written)), "no line was written twice"
    assert len(workspace.listed("stages")) == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_one_process_alone_has_a_limit_for_a_step(
    workers: int, workspace: Workspace, distil: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks wait for each other in a step, and Ray Train watches them."""
    short = distil()
    given: dict[str, Any] = {}
    monkeypatch.setattr(local, "fit", lambda *_, **named: given.update(named))
    local.prepare(short, workspace, device="cpu", threads=1)
    where = Where(device="cpu", threads=1, workers=workers, step_limit_s=9.0)
    local.fit_here(short, workspace, where, device="cpu")
    assert given["step_limit_s"] == (9.0 if workers == 1 else 0.0)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("average", [0.0, 0.9])
def test_two_processes_at_half_the_batch_equal_one(
    workspace: Workspace, distil: Callable[..., Stage], average: float
) -> None:
    """20 steps of IBKD in float32 without dropout, over gloo."""
    student = distil().student.replace(dropout=0.0)
    changes = {"optimizer": Optimizer(1e-3), "evaluate_every": 16 * 10, "average": average}
    plan = distil(student=student, budget=16 * 20, **changes)
    folder = run(plan, workspace, where=WHERE)
    alone, curve = load_file(folder / "student.safetensors"), read_manifest(folder)["evaluations"]
    shutil.rmtree(folder)
    evaluations: list[Evaluation] = []
    run(plan, workspace, where=Where("cpu", threads=1, workers=2), on_evaluation=recording_to(evaluations))
    manifest = read_manifest(folder)
    assert manifest["workers"] == 2 and [e.examples for e in evaluations] == [160, 320]
    for name, value in load_file(folder / "student.safetensors").items():
        # Softmax is invariant to a key's bias: its gradient is rounding noise, which Adam scales up.
        if not name.endswith("key.bias"):
            torch.testing.assert_close(value, alone[name], rtol=0, atol=1e-5)
    for one, two in zip(curve, manifest["evaluations"], strict=True):
        assert one["metrics"]["spread"] == pytest.approx(two["metrics"]["spread"], abs=1e-5)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_processes_measure_the_gradient_of_the_whole_batch(
    workspace: Workspace, distil: Callable[..., Stage], accumulate: int
) -> None:
    """Each rank has the gradient of its own rows alone; the shares are those of their mean."""
    student = distil().student.replace(dropout=0.0)
    plan = distil(student=student, budget=16 * 4, accumulate=accumulate, optimizer=Optimizer(1e-3))
    folder = run(plan, workspace, where=WHERE)
    alone, logged = read_manifest(folder)["gradient_shares"], logged_shares(folder)
    shutil.rmtree(folder)
    run(plan, workspace, where=Where("cpu", threads=1, workers=2))
    assert read_manifest(folder)["gradient_shares"] == pytest.approx(alone, rel=1e-3)
    assert logged_shares(folder) == pytest.approx(logged, rel=1e-3)
    assert logged == pytest.approx(alone)
    assert list(alone) == ["nce", "hsic"] and 0 < alone["hsic"] < 0.5


@pytest.mark.usefixtures("forked")
def test_two_processes_stop_together_and_resume(workspace: Workspace, distil: Callable[..., Stage]) -> None:
    plan, two = distil(budget=16 * 60, evaluate_every=16 * 5), Where("cpu", threads=1, workers=2)
    with pytest.raises(Stopped):
        run(plan, workspace, where=two, on_evaluation=lambda evaluation: evaluation.examples >= 80)
    assert not workspace.finished(plan)
    evaluations: list[Evaluation] = []
    run(plan, workspace, where=two, on_evaluation=recording_to(evaluations))
    assert [e.examples for e in evaluations] == [80 * n for n in range(1, 13)]


@pytest.mark.usefixtures("forked")
def test_ranks_that_share_a_remote_alone(
    workspace: Workspace, distil: Callable[..., Stage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank has a disk of its own; that of rank 0, with the only checkpoint, is lost in between."""
    plan, two = distil(budget=16 * 60, evaluate_every=16 * 5), Where("cpu", threads=1, workers=2)
    straight = load_file(run(plan, workspace, where=two) / "student.safetensors")
    shutil.rmtree(workspace.path(plan))
    (tmp_path / "remote").mkdir()
    apart = replace(workspace, remote=Remote(str(tmp_path / "remote")))
    assert all(apart.finished(table) for table in plan.examples.columns.values()), "and published"
    disks = [tmp_path / "disk-0", tmp_path / "disk-1"]
    worker_train_rank = worker.train_rank

    def on_own_disk(task: worker.RankTask, device: str) -> None:
        own = replace(apart, root=disks[rank()])
        worker_train_rank(replace(task, workspace=own), device)

    monkeypatch.setattr(worker, "train_rank", on_own_disk)
    words = WordsInFolder(tmp_path / "words")
    monkeypatch.setattr(worker, "mailbox_of", lambda *_: WorkerMailbox(words))
    with pytest.raises(Stopped):
        run(plan, apart, where=two, on_evaluation=lambda evaluation: evaluation.examples >= 80)
    assert checkpoint.steps(replace(apart, root=disks[0]).place(plan))
    assert not checkpoint.steps(replace(apart, root=disks[1]).place(plan))
    shutil.rmtree(disks[0])
    evaluations: list[Evaluation] = []
    folder = run(plan, apart, where=two, on_evaluation=recording_to(evaluations))
    assert [e.examples for e in evaluations] == [80 * n for n in range(1, 13)]
    assert read_metrics(folder / "metrics.jsonl")[0]["step"] == 1 and (folder / "plan.json").exists()
    assert load_file(folder / "student.safetensors").keys() == straight.keys()
    for name, value in load_file(folder / "student.safetensors").items():
        assert torch.equal(value, straight[name]), name


def test_word_vectors_that_another_node_has_made_are_fetched(
    workspace: Workspace, distil: Callable[..., Stage], tmp_path: Path
) -> None:
    (tmp_path / "remote").mkdir()
    apart = replace(workspace, remote=Remote(str(tmp_path / "remote")))
    words = word_vectors(apart, "count", tuple(distil().examples.columns.values()))
    shutil.rmtree(words.path)
    plan = distil(student=spec(BiLSTMStudent, words=words, hidden=8), budget=16 * 4)
    run(plan, apart, where=WHERE)
    assert (Path(words.path) / "manifest.json").exists()


def test_a_rank_fetches_word_vectors_that_another_node_has_made(
    workspace: Workspace, distil: Callable[..., Stage], tmp_path: Path
) -> None:
    """The trial that prepared the stage may be on another node than the rank."""
    (tmp_path / "remote").mkdir()
    apart = replace(workspace, remote=Remote(str(tmp_path / "remote")))
    words = word_vectors(apart, "count", tuple(distil().examples.columns.values()))
    plan = distil(student=spec(BiLSTMStudent, words=words, hidden=8), budget=16 * 4)
    local.prepare(plan, apart, device="cpu", threads=1)
    shutil.rmtree(words.path)
    worker.train_rank(worker.RankTask(plan, apart, WHERE), "cpu")
    assert (Path(words.path) / "manifest.json").exists() and apart.finished(plan)


class Gone(RuntimeError):
    """The cluster's store does not answer."""


@pytest.mark.usefixtures("forked")
def test_a_store_that_is_gone_does_not_hide_the_first_error(
    workspace: Workspace, distil: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the cluster is lost: the error is followed by others, from what tidies up after it."""
    plan = distil()
    calls = iter(("before", "after"))

    def clear(mailbox: WorkerMailbox) -> None:
        if next(calls) == "after":
            raise Gone

    def request_stop(mailbox: WorkerMailbox) -> None:
        before(mailbox)
        raise Gone

    def listen(evaluation: Evaluation) -> bool:
        raise OSError("the first error")

    before = WorkerMailbox.request_stop
    monkeypatch.setattr(WorkerMailbox, "clear", clear)
    monkeypatch.setattr(WorkerMailbox, "request_stop", request_stop)
    with pytest.raises(OSError, match="the first error"):
        run(plan, workspace, where=Where("cpu", threads=1, workers=2), on_evaluation=listen)
    assert next(calls, None) is None, "both were called"


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_a_rank_that_has_finished_does_not_die_with_its_interpreter(
    start: str,
    workspace: Workspace,
    distil: Callable[..., Stage],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads of gloo abort a process whose interpreter ends at the wrong moment; here, each is."""
    dying = "import atexit, os, sys\nif '--multiprocessing-fork' in sys.argv: atexit.register(os.abort)\n"
    (tmp_path / "sitecustomize.py").write_text(dying)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(multiprocessing.util, "_exit_function", os.abort)  # A forked process ends with it.
    monkeypatch.setattr(worker, "START_METHOD", start)
    plan = distil(budget=16 * 2)
    task = worker.RankTask(plan, workspace, WHERE)
    assert pickle.loads(pickle.dumps(task)) == task, "a spawned rank is sent it"
    run(plan, workspace, where=Where("cpu", threads=1, workers=2))
    assert workspace.finished(plan)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"dev": DevSuite((spec(Bad),), select="spread")}, BadInput, "the dev set must be there"),
        ({"optimizer": Optimizer(1e9, clip_norm=0.0)}, Diverged, "must be finite|collapsed"),
    ],
)
def test_failing_processes_report_the_reason(
    workspace: Workspace, distil: Callable[..., Stage], changes: dict[str, Any], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        run(distil(**changes), workspace, where=Where("cpu", threads=1, workers=2))


class Failing(InformationBottleneck):
    """Fails on one rank, in its third step, as if a shard of that node were damaged."""

    steps = 0

    def forward(self, *given: Any) -> Any:
        self.steps += 1
        if self.steps == 3:
            fail_on(1)()
        return super().forward(*given)


def fail_on(number: int, work: Callable[..., Any] = lambda: None) -> Callable[..., Any]:
    """Replace what each rank does; it fails on one of them, and says when."""

    def fails(*given: Any, **named: Any) -> Any:
        if rank() == number:
            raise Hindered(f"shard-00007.arrow was altered at {time.time()}")
        return work(*given, **named)

    return fails


def check_all_end(plan: Stage, workspace: Workspace) -> None:
    """Train on two ranks of which one fails: all end long before a collective would, with its words."""
    with pytest.raises(Hindered, match=r"shard-00007\.arrow was altered") as raised:
        run(plan, workspace, where=Where("cpu", threads=1, workers=2))
    assert time.time() - float(str(raised.value).split()[-1]) < worker.COLLECTIVE_SECONDS / 10


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("place", ["worker.fetch_start", "local.open_table", "table.TrainingTable.batch"])
def test_one_rank_that_fails_ends_all_in_its_own_words(
    place: str,
    number: int,
    workspace: Workspace,
    distil: Callable[..., Stage],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = f"stillhouse.training.{place}"
    monkeypatch.setattr(path, fail_on(number, pkgutil.resolve_name(path)))
    check_all_end(distil(), workspace)


@pytest.mark.ray
@pytest.mark.long
def test_ray_train_does_not_retry_what_one_rank_cannot_do(
    workspace: Workspace, distil: Callable[..., Stage]
) -> None:
    with local_ray(2, Path(__file__).parent, Path(__file__).parents[1]):
        check_all_end(distil(objective=spec(Failing, beta=0.5)), workspace)


def test_fewer_examples_than_a_batch_are_refused(workspace: Workspace, distil: Callable[..., Stage]) -> None:
    with pytest.raises(BadInput, match=r"examples >= batch_size.*batch_size=512"):
        run(distil(batch_size=512, budget=512), workspace, where=WHERE)


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.usefixtures("forked")
def test_ray_train(workspace: Workspace, distil: Callable[..., Stage]) -> None:
    """Two workers under Ray Train, stopped early, leave no placement group; plain processes resume."""
    from ray.util import placement_group_table

    plan = distil(budget=16 * 40, evaluate_every=16 * 10)
    two = Where("cpu", threads=1, workers=2)
    with local_ray(2, Path(__file__).parent, Path(__file__).parents[1]):
        with pytest.raises(Stopped):
            run(plan, workspace, where=two, on_evaluation=lambda evaluation: evaluation.examples >= 160)
        states = [group["state"] for group in placement_group_table().values()]
    assert checkpoint.steps(workspace.path(plan)), "the workers' progress is kept"
    evaluations: list[Evaluation] = []
    run(plan, workspace, where=two, on_evaluation=recording_to(evaluations))
    assert [e.examples for e in evaluations] == [160, 320, 480, 640]
    assert read_manifest(workspace.path(plan))["workers"] == 2
    assert states and set(states) == {"REMOVED"}, json.dumps(states)


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.usefixtures("forked")
def test_a_run_whose_controller_is_killed_keeps_no_resources(
    workspace: Workspace, distil: Callable[..., Stage]
) -> None:
    """As the process of a stopped trial is: what it trained on is free when its run has ended."""
    import ray
    from ray.util import placement_group_table

    def kill_the_controller(evaluation: Evaluation) -> bool:
        processes = psutil.Process().children(recursive=True)
        next(each for each in processes if "ray::TrainController" in each.name()).kill()
        return False

    plan = distil(budget=16 * 400, evaluate_every=16 * 10)
    with local_ray(2, Path(__file__).parent, Path(__file__).parents[1]):
        with pytest.raises(ray.exceptions.RayActorError):
            run(plan, workspace, where=Where("cpu", threads=1, workers=2), on_evaluation=kill_the_controller)
        states = [group["state"] for group in placement_group_table().values()]
    assert states == ["REMOVED"]


@pytest.mark.ray
@pytest.mark.long
def test_ranks_without_room_say_what_they_wait_for(
    workspace: Workspace,
    distil: Callable[..., Stage],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The run is a task elsewhere, as a trial is; whoever follows it shows the wait, and its end."""
    import ray

    def until_said(words: str) -> None:
        deadline, said = time.monotonic() + 60, ""
        while words not in (said := said + capsys.readouterr().err):
            assert time.monotonic() < deadline, said
            time.sleep(0.1)

    class Holder:
        """Holds a CPU."""

    monkeypatch.setattr(follower, "WAITS_S", 1.0)
    plan, two = distil(budget=16 * 20, dev=None), Where("cpu", threads=1, workers=2)
    with local_ray(2, Path(__file__).parent, Path(__file__).parents[1]):
        holder = ray.remote(Holder).options(num_cpus=1).remote()
        ray.get(holder.__ray_ready__.remote())
        task = ray.remote(run).options(num_cpus=0).remote(plan, workspace, where=two)
        with PlanFollower(workspace, every_s=0.5) as following:
            following.follow("trial 0", plan)
            until_said("trial 0: waiting for room for 2 workers with 1 CPU each, for ")
            ray.kill(holder)
            until_said("trial 0: has room for 2 workers with 1 CPU each, after ")
        ray.get(task)
    assert workspace.finished(plan)
