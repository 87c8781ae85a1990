"""What a model's name stands for: every form opens in its own runtime, with its own vectors."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_graphs import trace, write_once

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.formats import FORMATS, write_format
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.static import StaticStudent
from stillhouse.training.models import delivered, find_model, open_model, stage_folder, stage_of
from stillhouse.values.data import Model

TEXTS = ["the cat sat on the mat", "a river", "The MODEL computes a very long sum of rows and columns " * 3]
STOCK, ONNX, INT8, COMPACT = FORMATS
RUNTIMES = {STOCK: "torch", ONNX: "onnxruntime", INT8: "onnxruntime", COMPACT: "torch"}
MAX_LENGTH = 12


@pytest.fixture(scope="module")
def exports(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[StudentEncoder, Path]:
    """One student in every form; its texts are cut at 12 tokens, and its vectors are not of length 1."""
    base, folder = Model("tiny", path=str(tiny_model)), tmp_path_factory.mktemp("exports")
    student = RecurrentStudent(base, unit=1, repeats=2, pooling="max", normalize=False)
    encoder = StudentEncoder(student, student.tokenizer.path, MAX_LENGTH)
    with pytest.MonkeyPatch.context() as patch:
        write_once(patch, folder / "kept.onnx")
        for form in FORMATS:
            write_format(form, encoder, folder / form, TEXTS)
    return encoder, folder


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_is_opened_as_what_it_is(
    form: str, exports: tuple[StudentEncoder, Path], workspace: Workspace
) -> None:
    encoder, folder = exports
    found = find_model(str(folder / form), workspace)
    assert found.form == form and found.title == f"{folder / form} ({form}, {RUNTIMES[form]})"
    expected, opened = encoder.encode(TEXTS), np.asarray(found.open().encode(TEXTS))
    tolerance = 0.2 if form == INT8 else 1e-4
    np.testing.assert_allclose(opened, expected, atol=tolerance * np.abs(expected).max())
    assert (form == INT8) == (not np.allclose(opened, expected, atol=1e-4)), "eight bits are not exact"


def test_an_identity_covers_the_weights_of_every_form(
    exports: tuple[StudentEncoder, Path], workspace: Workspace, tmp_path: Path
) -> None:
    names = [str(exports[1] / form) for form in FORMATS]
    identities = [find_model(name, workspace).identity() for name in names]
    assert len(set(identities)) == len(FORMATS)
    assert identities == [find_model(name, workspace).identity() for name in names]
    shutil.copytree(names[1], tmp_path / "changed")
    file = tmp_path / "changed" / "onnx" / "model.onnx"
    graph = onnx.load(file)
    graph.doc_string = "another graph"
    onnx.save(graph, file)
    assert find_model(str(tmp_path / "changed"), workspace).identity() != identities[1]
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(BadInput, match=r"that onnxruntime loads, but: .*Export the student again"):
        open_model(str(tmp_path / "changed"), workspace)


def test_the_size_on_disk_is_that_of_the_deployed_files(
    exports: tuple[StudentEncoder, Path], workspace: Workspace, tmp_path: Path
) -> None:
    sizes = {form: find_model(str(exports[1] / form), workspace).megabytes() or 0.0 for form in FORMATS}
    graph = exports[1] / ONNX / "onnx" / "model.onnx"
    rest = [exports[1] / ONNX / name for name in ("tokenizer.json", "config.json")]
    least = sum(file.stat().st_size for file in (graph, *rest)) / 1e6
    assert least < sizes[ONNX] < least + 0.01
    assert 0 < sizes[INT8] < sizes[ONNX]
    shutil.copytree(exports[1] / ONNX, tmp_path / "noted")
    (tmp_path / "noted" / "README.md").write_text("x" * 10_000)
    assert find_model(str(tmp_path / "noted"), workspace).megabytes() == sizes[ONNX]


def test_one_of_several_graphs_is_named_by_its_file(
    exports: tuple[StudentEncoder, Path], workspace: Workspace, tmp_path: Path
) -> None:
    both = tmp_path / "both"
    shutil.copytree(exports[1] / ONNX, both)
    shutil.copytree(exports[1] / INT8, both, dirs_exist_ok=True)
    with pytest.raises(BadInput, match=r"must have one graph.*model_qint8_quantized\.onnx"):
        open_model(str(both), workspace)
    for form in (ONNX, INT8):
        (file,) = (exports[1] / form / "onnx").iterdir()
        found = find_model(str(both / "onnx" / file.name), workspace)
        assert found.form == form
        expected = open_model(str(exports[1] / form), workspace).encode(TEXTS)
        np.testing.assert_array_equal(found.open().encode(TEXTS), expected)
        assert found.identity() == find_model(str(both / "onnx" / file.name), workspace).identity()


def test_a_graph_beside_weights_of_torch_is_not_taken_instead_of_them(
    exports: tuple[StudentEncoder, Path], workspace: Workspace, tmp_path: Path
) -> None:
    shutil.copytree(exports[1] / STOCK, tmp_path / "hub")
    shutil.copytree(exports[1] / INT8 / "onnx", tmp_path / "hub" / "onnx")
    assert find_model(str(tmp_path / "hub"), workspace).form == STOCK


def test_a_graph_of_another_kind_is_refused(
    exports: tuple[StudentEncoder, Path], workspace: Workspace, tmp_path: Path
) -> None:
    shutil.copytree(exports[1] / ONNX, tmp_path / "states")
    file = tmp_path / "states" / "onnx" / "model.onnx"
    graph = onnx.load(file)
    graph.graph.output.remove(next(each for each in graph.graph.output if each.name == "sentence_embedding"))
    onnx.save(graph, file)
    with pytest.raises(BadInput, match=r"give sentence_embedding.*outputs=\['last_hidden_state'\]"):
        open_model(str(tmp_path / "states"), workspace)


def test_a_static_student_opens_as_a_graph(
    tiny_model: Path, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace(monkeypatch)
    student = StaticStudent(Model("tiny", path=str(tiny_model)), dim=8)
    encoder = StudentEncoder(student, student.tokenizer.path, MAX_LENGTH)
    for form in (STOCK, ONNX, INT8):
        write_format(form, encoder, tmp_path / form, TEXTS)
        found = open_model(str(tmp_path / form), workspace).encode(TEXTS)
        np.testing.assert_allclose(found, encoder.encode(TEXTS), atol=0.05 if form == INT8 else 1e-5)


@pytest.fixture
def sweep(workspace: Workspace, trained: Callable[..., Path]) -> Path:
    """A sweep that has delivered a stage."""
    folder, stage = workspace.root / "sweeps" / "library", trained()
    folder.mkdir(parents=True)
    (folder / "sweep.json").write_text("{}")
    (folder / "export.json").write_text(json.dumps({"stage": f"/elsewhere/stages/{stage.name}"}))
    return folder


@pytest.fixture
def trained(workspace: Workspace) -> Callable[..., Path]:
    def make(name: str = "finetune-0123456789abcdef") -> Path:
        folder = workspace.root / "stages" / name
        folder.mkdir(parents=True)
        (folder / "plan.json").write_text("{}")
        return folder

    return make


def test_a_sweep_stands_for_the_student_that_it_delivered(sweep: Path, workspace: Workspace) -> None:
    stage = workspace.root / "stages" / "finetune-0123456789abcdef"
    for name in ("library", str(sweep)):
        assert stage_of(name, workspace) == stage
        found: Any = find_model(name, workspace)
        assert (found.form, found.path, found.megabytes()) == ("stage", stage, None)
    assert stage_of(stage.name, workspace) == stage_of(str(stage), workspace) == stage
    (sweep / "export").mkdir()
    for name in ("library", str(sweep / "export"), stage.name):
        assert stage_folder(name, workspace) == stage
    assert stage_folder("elsewhere", workspace) is None
    forecasts: tuple[dict[str, dict[str, float]], ...] = ({}, {"seconds": {}})
    for old in forecasts:  # An older version put a sweep's forecast there, under a stage's name.
        (sweep / "plan.json").write_text(json.dumps(old))
        assert stage_of("library", workspace) == stage_of(str(sweep), workspace) == stage
    (sweep / "export.json").unlink()
    with pytest.raises(BadInput, match=r"must have delivered its best student.*resumes it"):
        delivered(sweep)


def test_an_export_in_the_current_folder_comes_before_a_sweep_of_its_name(
    exports: tuple[StudentEncoder, Path],
    sweep: Path,
    workspace: Workspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for form in (STOCK, INT8):
        shutil.rmtree("library", ignore_errors=True)
        shutil.copytree(exports[1] / form, "library")
        assert find_model("library", workspace).form == form
    shutil.rmtree("library")
    (tmp_path / "library").mkdir()
    assert find_model("library", workspace).form == "stage"
    assert stage_of("library", workspace).name.startswith("finetune")


def test_an_unknown_name_lists_the_near_ones(sweep: Path, workspace: Workspace, tmp_path: Path) -> None:
    for of in (stage_of, find_model):
        with pytest.raises(BadInput, match=r"Did you mean library\?"):
            of("librari", workspace)
        with pytest.raises(BadInput, match="Did you mean finetune-0123456789abcdef"):
            of("finetune-0123456789abcdee", workspace)
    with pytest.raises(BadInput, match="the name of a sweep, but got 'x'"):
        stage_of("x", Workspace(tmp_path / "empty"))
