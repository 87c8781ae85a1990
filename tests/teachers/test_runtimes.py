import importlib.util
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stillhouse.core.artifacts import Workspace, read_manifest, write_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import canonical
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.core.types import FloatArray, Tokens
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.teacher import TeacherChoice
from stillhouse.students.export.onnx import OUTPUT, graph_inputs, open_session
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers import choosing, runtimes
from stillhouse.teachers.agreement import least_cosine, lowest_cosine
from stillhouse.teachers.choosing import Chooser, Measured, fastest
from stillhouse.teachers.embedding import build_store, resolve_compute
from stillhouse.teachers.forward import Encode, Forward, Later
from stillhouse.teachers.runtimes import Running, missing_extra, why_not
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
    stores_in,
)


def vectors(workspace: Workspace, store: Store) -> FloatArray:
    build_store(workspace, store, local=True)
    assert verify_store(workspace.path(store)) == []
    reader = open_store(workspace, store)
    return np.asarray(reader.gather(reader.rows))


def test_a_store_of_pytorch_has_the_key_that_it_had(store: Store) -> None:
    assert "runtime" not in canonical(store)["with"]
    assert len({replace(store, runtime=runtime).fingerprint for runtime in RUNTIMES}) == len(RUNTIMES)
    with pytest.raises(BadInput, match="runtime in"):
        replace(store, runtime="tensorrt")


@pytest.mark.parametrize("runtime", [ONNX, OPENVINO])
def test_a_converted_teacher_gives_the_vectors_of_pytorch_and_resumes_bit_for_bit(
    runtime: str, workspace: Workspace, store: Store
) -> None:
    pytest.importorskip({ONNX: "onnxruntime"}.get(runtime, runtime))
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
    build_store(workspace, replace(exact, runtime=runtime), local=True, threads=threads)
    assert {path.name: path.read_bytes() for path in folder.glob("part-*")} == whole


def test_bfloat16_is_compared_with_what_pytorch_gives_in_it(workspace: Workspace, store: Store) -> None:
    pytest.importorskip("openvino")
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


def test_a_runtime_that_disagrees_is_refused_by_name(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(runtimes, "_in_onnx_runtime", shifted)
    wrong = replace(store, runtime=ONNX)
    with pytest.raises(BadInput, match=r"vectors of the runtime onnx must have a cosine .* torch"):
        build_store(workspace, wrong, local=True)
    assert not list(workspace.path(wrong).glob("part-*"))


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
        build_store(workspace, replace(store, runtime=OPENVINO), local=True)
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


# The choice. Runtimes are replaced by PyTorch that waits, or that gives other vectors.


def pretend(
    monkeypatch: pytest.MonkeyPatch, *, able: tuple[str, ...], **change: Callable[[Tensor], Tensor]
) -> None:
    """Let these runtimes be PyTorch, with something done to the vectors of each batch."""
    start = runtimes.start

    def pretended(store: Store, workspace: Workspace, device: str, threads: int) -> Running:
        running = start(replace(store, runtime=TORCH), workspace, device, threads)
        after: Any = change.get(store.runtime if store.compute == "float32" else "", lambda found: found)

        def encoder(each: Store) -> Encode:
            encode: Any = running.encoder(replace(each, runtime=TORCH))
            return lambda tokens: after(encode(tokens))

        return replace(running, encoder=encoder)

    monkeypatch.setattr(choosing, "start", pretended)
    monkeypatch.setattr(choosing, "why_not", lambda name, *_: "" if name in (TORCH, *able) else "not here")
    monkeypatch.setattr(choosing, "_LEAST", {"cpu": 0.0})
    monkeypatch.setattr(choosing, "_START", dict.fromkeys(RUNTIMES, 0.0))


def slow(found: Tensor) -> Tensor:
    time.sleep(0.2)
    return found


def runtime_of(chooser: Chooser, store: Store) -> str:
    (chosen,) = stores_in(chooser.choose(store))
    return chosen.runtime


def test_the_fastest_is_chosen_for_all_stores_and_said_once(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, able=(OPENVINO,), torch=slow)
    # The start counts as well: the corpus must be long enough.
    monkeypatch.setattr(Measured, "seconds", lambda each, tokens, actors: tokens / each.rate)
    chooser = Chooser(["auto"], workspace, "cpu")
    assert runtime_of(chooser, store) == OPENVINO
    other = replace(store, prompt="a ")
    assert chooser.choose(other) == replace(other, runtime=OPENVINO)
    said = capsys.readouterr().out
    assert (
        said.count("the teacher's runtime is openvino") == 1 and "torch " in said and "cosine 1.00000" in said
    )


def test_each_of_several_teachers_gets_a_runtime_of_its_own(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, able=(OPENVINO, ONNX))
    assert isinstance(store.teacher, Model)
    best = {384: OPENVINO, 7: TORCH, 8: ONNX}
    monkeypatch.setattr(choosing, "fastest", lambda each, *_, **__: best[each.teacher.dimension or 384])
    teachers = [store.teacher, *(replace(store.teacher, dimension=kept) for kept in (7, 8))]
    stores = tuple(replace(store, teacher=teacher) for teacher in teachers)
    joined = StoreEnsemble(store.texts, stores, (0.5, 0.3, 0.2))
    chooser = Chooser(["auto", "auto", TORCH], workspace, "cpu")
    chosen = chooser.choose(joined)
    assert isinstance(chosen, StoreEnsemble) and chosen.weights == (0.5, 0.3, 0.2)
    assert [each.runtime for each in chosen.members] == [OPENVINO, TORCH, TORCH]
    # Further texts of a teacher take its runtime, and not that of its neighbour.
    monkeypatch.setattr(choosing, "fastest", never)
    further = replace(joined, members=tuple(replace(each, prompt="a ") for each in stores))
    assert [each.runtime for each in stores_in(chooser.choose(further))] == [OPENVINO, TORCH, TORCH]


def test_what_starts_slowly_is_not_chosen_for_a_small_corpus() -> None:
    quick, ready = Measured(OPENVINO, 20, 2000, 1), Measured(TORCH, 2, 1000, 1)
    assert quick.seconds(10_000, 1) == 25 > ready.seconds(10_000, 1) == 12
    assert quick.seconds(1e6, 1) < ready.seconds(1e6, 1)
    # Twice as many processes, half of the work each.
    assert quick.seconds(40_000, 2) == 30 > ready.seconds(40_000, 2) == 22


def test_a_runtime_is_tried_only_where_it_can_pay(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, able=(OPENVINO,), torch=slow)
    monkeypatch.setattr(choosing, "_START", dict.fromkeys(RUNTIMES, 1e3))
    tried: list[str] = []
    monkeypatch.setattr(choosing._Bench, "_try", lambda self, runtime: tried.append(runtime))
    assert fastest(store, workspace, "cpu", actors=1, threads=1) == TORCH and not tried


@pytest.mark.parametrize(
    ("change", "reason"),
    [(lambda found: found.roll(1, dims=1), "must have a cosine of at least"), (None, "no such operation")],
)
def test_a_runtime_that_cannot_serve_is_named_and_left_out(
    change: Any,
    reason: str,
    workspace: Workspace,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(found: Tensor) -> Tensor:
        raise RuntimeError("no such operation\nin a graph")

    pretend(monkeypatch, able=(OPENVINO,), torch=slow, openvino=change or fail)
    assert fastest(store, workspace, "cpu", actors=1, threads=1) == TORCH
    (line,) = capsys.readouterr().out.splitlines()
    assert "openvino does not run this teacher" in line and reason in line


def never(*_: object, **__: object) -> str:
    raise AssertionError("nothing must be measured")


def test_vectors_that_exist_are_taken_whatever_computed_them(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, able=())
    monkeypatch.setattr(choosing, "fastest", never)
    made = replace(store, runtime=OPENVINO)
    workspace.path(made).mkdir(parents=True)
    write_manifest(workspace.path(made), {"shards": []})
    other = replace(store, prompt="query: ")
    made_too = replace(other, runtime=OPENVINO)
    workspace.path(made_too).mkdir(parents=True)
    write_manifest(workspace.path(made_too), {"shards": []})
    chooser = Chooser(["auto"], workspace, "cpu")
    assert (chooser.choose(store), chooser.choose(other)) == (made, made_too)
    said = capsys.readouterr().out
    assert said.count("taking the vectors that exist, computed by openvino") == 1, "once for all of a teacher"
    # Of another precision they are other vectors.
    with pytest.raises(AssertionError, match="nothing must be measured"):
        Chooser(["auto"], workspace, "cpu").choose(replace(store, compute="bfloat16"))
    # Who asks for a runtime by name gets it.
    assert Chooser([TORCH], workspace, "cpu").choose(store) == store


def test_a_half_made_store_goes_on_in_its_runtime(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, able=(ONNX,))
    monkeypatch.setattr(choosing, "fastest", never)
    begun = replace(store, runtime=ONNX)
    workspace.path(begun).mkdir(parents=True)
    (workspace.path(begun) / "part-00000.arrow").write_bytes(b"")
    chooser = Chooser(["auto"], workspace, "cpu")
    assert chooser.choose(store) == begun
    assert "1 shards are there, computed by onnx, which goes on" in capsys.readouterr().out
    # What is still to come takes the same.
    assert runtime_of(chooser, replace(store, prompt="a ")) == ONNX
    pretend(monkeypatch, able=())
    monkeypatch.setattr(choosing, "fastest", lambda *_, **__: TORCH)
    assert Chooser(["auto"], workspace, "cpu").choose(store) == store
    assert "cannot go on: not here" in capsys.readouterr().out


def test_nothing_is_measured_for_little_or_for_what_is_not_made(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, able=(OPENVINO,))
    monkeypatch.setattr(choosing, "fastest", never)
    assert Chooser(["auto"], workspace, "cpu").choose(store, made=False) == store
    assert Chooser(["auto"], workspace, "cpu", measures=False).choose(store) == store
    monkeypatch.setattr(choosing, "_LEAST", {"cpu": 1e13})
    chooser = Chooser(["auto"], workspace, "cpu")
    assert chooser.choose(store) == store
    # An answer that was given stays, whatever is found out later.
    monkeypatch.setattr(choosing, "_LEAST", {"cpu": 0.0})
    assert chooser.choose(store) == store


def test_the_work_of_a_token(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}'
    )
    assert choosing._weights_per_token(tmp_path) == 6 * 12 * 384**2


def test_memory_that_is_missing_leaves_pytorch(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, able=(OPENVINO,))
    monkeypatch.setattr(choosing, "available_memory", lambda: 1000)
    assert isinstance(store.teacher, Model)
    assert fastest(store, workspace, "cpu", actors=1, threads=1) == TORCH
    assert "GB of memory" in capsys.readouterr().out


def test_a_pooling_without_the_prompt_stays_with_pytorch(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, able=(OPENVINO,))
    monkeypatch.setattr(choosing, "fastest", lambda *_, **__: OPENVINO)
    monkeypatch.setattr(runtimes, "pools_prompt", lambda model: False)
    chooser, prompted = Chooser(["auto"], workspace, "cpu"), replace(store, prompt="query: ")
    assert [runtime_of(chooser, each) for each in (store, prompted)] == [OPENVINO, TORCH]
    assert "is computed by torch: the teacher's pooling leaves" in capsys.readouterr().out
    monkeypatch.setattr(choosing, "require_runtime", lambda *_: None)
    with pytest.raises(BadInput, match="--teacher-runtime torch"):
        Chooser([OPENVINO], workspace, "cpu").choose(prompted)
