import importlib.util
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx_graphs import trace
from small_world import write_encoder
from torch import Tensor, nn

from stillhouse.core.artifacts import Workspace, read_manifest, write_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import canonical
from stillhouse.core.model_folder import ModelFolder
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.core.types import FloatArray, Tokens
from stillhouse.experiments.experiment import Experiment
from stillhouse.students.export.onnx import OUTPUT, graph_inputs, open_session
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers import choosing, runtimes
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.choosing import Chooser
from stillhouse.teachers.embedding import build_stores, resolve_compute
from stillhouse.teachers.forward import Encode, Forward, Later
from stillhouse.teachers.runtime_check import least_cosine, lowest_cosine
from stillhouse.teachers.runtimes import missing_extra, why_not, why_unfit
from stillhouse.teachers.store import open_store, verify_store
from stillhouse.teachers.weights import resolve_model
from stillhouse.values.data import (
    COMPILE,
    ONNX,
    OPENVINO,
    RUNTIMES,
    TORCH,
    Model,
    Store,
    StoreEnsemble,
    TableStore,
)


def vectors(workspace: Workspace, store: Store) -> FloatArray:
    build_stores(workspace, [store], local=True)
    assert verify_store(workspace.path(store)) == []
    reader = open_store(workspace, store)
    return np.asarray(reader.gather(reader.rows))


@pytest.fixture(scope="module")
def shallow(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Model:
    """A teacher of one layer, since every layer of a graph takes a second to write."""
    return write_encoder(tmp_path_factory.mktemp("shallow"), tiny_model, hidden=32, layers=1, seed=1)


@pytest.fixture
def store(store: Store, shallow: Model) -> Store:
    return replace(store, teacher=shallow)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture
def written_once(graphs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The teacher's graph is traced, and copied from then on: to write it otherwise takes seconds."""
    trace(monkeypatch)
    write, kept = runtimes._write, graphs / "teacher.onnx"

    def copied(teacher: nn.Module, graph: Path, store: Store) -> None:
        if not kept.exists():
            write(teacher, kept, store)
        shutil.copyfile(kept, graph)

    monkeypatch.setattr(runtimes, "_write", copied)


def test_a_store_of_pytorch_has_the_key_that_it_had(store: Store) -> None:
    assert "runtime" not in canonical(store)["with"]
    assert len({replace(store, runtime=runtime).fingerprint for runtime in RUNTIMES}) == len(RUNTIMES)
    with pytest.raises(BadInput, match="runtime in"):
        replace(store, runtime="tensorrt")


@pytest.mark.usefixtures("written_once")
@pytest.mark.parametrize("runtime", [ONNX, pytest.param(OPENVINO, marks=pytest.mark.long)])
def test_a_converted_teacher_gives_the_vectors_of_pytorch_and_resumes_bit_for_bit(
    runtime: str, workspace: Workspace, store: Store
) -> None:
    exact = replace(store, dtype="float32", prompt="name of ")
    expected, found = (vectors(workspace, each) for each in (exact, replace(exact, runtime=runtime)))
    assert lowest_cosine(found, expected) > 0.99999
    np.testing.assert_allclose(found, expected, atol=1e-5)
    folder = workspace.path(replace(exact, runtime=runtime))
    assert read_manifest(folder)["runtime"] == runtime
    whole = {path.name: path.read_bytes() for path in folder.glob("part-*")}
    (folder / "manifest.json").unlink()
    (folder / "part-00002.arrow").unlink()
    # OpenVINO computes one batch per thread, so its batches do not depend on their number.
    threads = 3 if runtime == OPENVINO else 1
    build_stores(workspace, [replace(exact, runtime=runtime)], local=True, threads=threads)
    assert {path.name: path.read_bytes() for path in folder.glob("part-*")} == whole


@pytest.mark.usefixtures("written_once")
def test_bfloat16_is_compared_with_what_pytorch_gives_in_it(workspace: Workspace, store: Store) -> None:
    if resolve_compute() != "bfloat16":
        pytest.skip("no bfloat16 on this machine")
    half = replace(store, dtype="float32", compute="bfloat16")
    expected = vectors(workspace, replace(store, dtype="float32"))
    of_torch = lowest_cosine(vectors(workspace, half), expected)
    found = lowest_cosine(vectors(workspace, replace(half, runtime=OPENVINO)), expected)
    assert least_cosine(of_torch, "bfloat16") <= found < 1 - 1e-9


def test_least_cosine() -> None:
    assert least_cosine(0.5, "float32") == 0.9999
    assert least_cosine(0.99999, "bfloat16") == 0.9999
    assert least_cosine(0.999, "bfloat16") == pytest.approx(0.998)
    ones, other = np.ones((2, 3), np.float32), np.array([[1, 1, 1], [1, -1, 0]], np.float32)
    assert lowest_cosine(ones, ones) == pytest.approx(1) and lowest_cosine(ones, other) == pytest.approx(0)
    assert np.isnan(lowest_cosine(ones, ones[:, :2])) and np.isnan(lowest_cosine(ones, ones * np.nan))


@pytest.mark.long
def test_torch_compile_runs_the_same_teacher(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The compiler itself takes most of a minute.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    monkeypatch.setattr(shutil, "which", lambda name: name)
    exact = replace(store, dtype="float32")
    found = vectors(workspace, replace(exact, runtime=COMPILE))
    np.testing.assert_allclose(found, vectors(workspace, exact), atol=1e-5)


def shifted(graph: Path, threads: int, compute: str) -> Encode:
    session = open_session(graph, threads)

    def encode(tokens: Tokens) -> Tensor:
        given = graph_inputs(tokens.input_ids_BT, tokens.attention_mask_BT)
        return torch.from_numpy(session.run([OUTPUT], given)[0]).roll(1, dims=1)

    return encode


@pytest.mark.usefixtures("written_once")
def test_a_runtime_that_disagrees_is_refused_by_name(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtimes, "_in_onnx_runtime", shifted)
    wrong = replace(store, runtime=ONNX)
    with pytest.raises(BadInput, match=r"vectors of the runtime onnx must have a cosine .* torch"):
        build_stores(workspace, [wrong], local=True)
    assert not list(workspace.path(wrong).glob("part-*"))
    reason = why_unfit(wrong, workspace, "cpu", 1)
    assert "must have a cosine of at least" in reason and "--teacher-runtime" not in reason


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name == package else find(name))


def test_a_missing_package_names_the_extra(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "openvino")
    wanted = r"must be able to run, but: the extra `openvino`.*pip install \"stillhouse\[openvino\]\""
    with pytest.raises(BadInput, match=wanted):
        Experiment(teacher=TeacherChoice(runtime=OPENVINO)).check()
    with pytest.raises(BadInput, match=wanted):
        Chooser([OPENVINO], workspace, "cpu").choose(store)
    with pytest.raises(BadInput, match=wanted):
        build_stores(workspace, [replace(store, runtime=OPENVINO)], local=True)
    assert missing_extra(TORCH) == "" and why_not(TORCH, "cpu", "bfloat16") == ""


def test_devices_and_precisions_of_the_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: object())
    assert "CPU" in why_not(OPENVINO, "cuda", "float32") and "CPU" in why_not(ONNX, "cuda:1", "float32")
    assert "--compute float32" in why_not(ONNX, "cpu", "bfloat16")
    assert why_not(ONNX, "cpu", "float32") == why_not(OPENVINO, "cpu", "bfloat16") == ""
    assert why_not(COMPILE, "cuda", "bfloat16") == "" and "mps" in why_not(COMPILE, "mps", "float32")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "C++ compiler" in why_not(COMPILE, "cpu", "float32")


def test_the_choice_goes_with_a_model_alone() -> None:
    with pytest.raises(BadInput, match=r"teacher\.runtime in"):
        TeacherChoice(runtime="fast")
    with pytest.raises(BadInput, match="runtime='openvino'"):
        TeacherChoice(endpoint="http://localhost:1/v1", model="m", runtime=OPENVINO)


def test_vectors_that_are_still_computed_are_read_in_order(tiny_model: Path) -> None:
    tokenizer = FastTokenizer(tiny_model, 16)
    student = TransformerStudent(resolve_model(str(tiny_model)), projection=8).eval()
    ids, offsets = tokenizer(
        ["a cat", "the river runs by the old house", "red", "two dogs sat", "a moon", "z"]
    )
    started: list[int] = []
    read_in: list[int] = []
    most: list[int] = []

    def later(tokens: Tokens) -> Later:
        number = len(started)
        started.append(number)
        most.append(len(started) - len(read_in))

        def read() -> Tensor:
            read_in.append(number)
            embedding_BD: Tensor = student(tokens).embedding_BD
            return embedding_BD

        return Later(read)

    now = Forward(lambda tokens: student(tokens).embedding_BD, tokenizer.pad_id, batch_tokens=8)
    np.testing.assert_array_equal(replace(now, teacher=later, ahead=2)(ids, offsets), now(ids, offsets))
    # What was started first is done first: another order would wait for the youngest batch.
    assert max(most) == 3 and read_in == started


# The choice: the checks of OpenVINO are replaced by answers.


def answering(monkeypatch: pytest.MonkeyPatch, reason: str = "", *, large: int = 0) -> list[Store]:
    """Let every runtime be installed, and OpenVINO serve unless there is a reason; return what is checked."""
    checked: list[Store] = []

    def why(store: Store, *_: object) -> str:
        checked.append(store)
        return reason

    monkeypatch.setattr(choosing, "why_not", lambda *_: "")
    monkeypatch.setattr(choosing, "why_unfit", why)
    monkeypatch.setattr(choosing, "LARGE", large)
    return checked


def runtimes_of(chooser: Chooser, *stores: TableStore) -> list[str]:
    named = (each for store in stores for each in chooser.choose(store).stores)
    return [chooser.decide(each).runtime for each in named]


def test_a_large_table_in_bfloat16_runs_in_openvino_where_it_agrees_and_all_else_in_pytorch(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    half = replace(store, compute="bfloat16")
    others = [replace(half, prompt="a "), replace(half, prompt="b ")]
    checked = answering(monkeypatch)
    chooser = Chooser(["auto"], workspace, "cpu")
    assert runtimes_of(chooser, half, *others) == [OPENVINO] * 3
    assert checked == [replace(half, runtime=OPENVINO)], "a teacher is converted once"
    assert capsys.readouterr().err.count(" runs in OpenVINO") == 1
    assert runtimes_of(chooser, replace(store, compute="float32")) == [TORCH]
    # A refusal says why, and asks for nothing.
    refused = answering(monkeypatch, "a cosine of 0.98")
    assert runtimes_of(Chooser(["auto"], workspace, "cpu"), half, *others) == [TORCH] * 3
    (line,) = capsys.readouterr().err.splitlines()
    assert len(refused) == 1 and line.endswith("runs in PyTorch, not in OpenVINO: a cosine of 0.98")


def test_a_teacher_is_not_converted_for_little_or_for_what_is_not_made(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    half = replace(store, compute="bfloat16")
    checked = answering(monkeypatch)
    chooser = Chooser(["auto"], workspace, "cpu")
    assert chooser.choose(half) == half, "a name alone converts nothing"
    monkeypatch.setattr(choosing, "available_memory", lambda: 1000)
    assert runtimes_of(chooser, half) == [TORCH]
    assert "GB of memory" in capsys.readouterr().err
    answering(monkeypatch, large=10**6)
    assert runtimes_of(Chooser(["auto"], workspace, "cpu"), half) == [TORCH] and not checked


def test_each_of_several_teachers_gets_a_runtime_of_its_own(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch)
    assert isinstance(store.teacher, Model)
    teachers = [store.teacher, replace(store.teacher, dimension=7)]
    stores = tuple(replace(store, teacher=teacher, compute="bfloat16") for teacher in teachers)
    joined = StoreEnsemble(store.texts, stores, (0.7, 0.3))
    chooser = Chooser([TORCH, "auto"], workspace, "cpu")
    assert chooser.choose(joined) == joined and runtimes_of(chooser, joined) == [TORCH, OPENVINO]


def test_vectors_that_exist_are_taken_whatever_computed_them(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finished, begun = replace(store, runtime=OPENVINO), replace(store, prompt="query: ", runtime=ONNX)
    for each in (finished, begun):
        workspace.path(each).mkdir(parents=True)
    write_manifest(workspace.path(finished), {"shards": []})
    (workspace.path(begun) / "part-00000.arrow").write_bytes(b"")
    chooser = Chooser(["auto"], workspace, "cpu")
    assert runtimes_of(chooser, store, replace(begun, runtime=TORCH)) == [OPENVINO, ONNX]
    said = capsys.readouterr().err
    assert said.count("taking the vectors that exist, computed by openvino") == 1
    # Of another precision they are other vectors; and who asks for a runtime by name gets it.
    monkeypatch.setattr(choosing, "why_not", lambda *_: "not here")
    assert runtimes_of(Chooser(["auto"], workspace, "cpu"), replace(store, compute="bfloat16")) == [TORCH]
    assert Chooser([TORCH], workspace, "cpu").choose(store) == store
    # A half-made store does not go on where its runtime cannot run.
    assert runtimes_of(Chooser(["auto"], workspace, "cpu"), replace(begun, runtime=TORCH)) == [TORCH]


def test_a_pooling_without_the_prompt_stays_with_pytorch(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch)
    monkeypatch.setattr(ModelFolder, "pools_prompt", False)
    half = replace(store, compute="bfloat16")
    prompted = replace(half, prompt="query: ")
    assert runtimes_of(Chooser(["auto"], workspace, "cpu"), half, prompted) == [OPENVINO, TORCH]
    monkeypatch.setattr(choosing, "require_runtime", lambda *_: None)
    with pytest.raises(BadInput, match="--teacher-runtime torch"):
        Chooser([OPENVINO], workspace, "cpu").choose(prompted)
