"""One folder of stock sentence-transformers: queries by the student, documents by the teacher."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from card_snippets import run_snippets
from onnx_graphs import trace
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.roles import NO_PROMPTS, Prompts
from stillhouse.reports.model_card import usage
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.asymmetric import QUERY_ONNX, check_sides, export_asymmetric, is_router
from stillhouse.students.export.folder_modules import ROUTED
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.static import StaticStudent
from stillhouse.students.transformer import TransformerStudent
from stillhouse.sweeps.stage_export import describe_export
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.prompts import prompts_of
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.models import find_model
from stillhouse.values.data import Model

MakeModel = Callable[[str], Model]
TEXTS = ["The river and the model.", "a", "THE MODEL of the river " * 12]
SHORT = 9


@pytest.fixture
def teacher(tiny_model: Path) -> Model:
    """A model of 32 dimensions that reads 128 tokens, with prompts by role."""
    return replace(resolve_model(str(tiny_model)), prompts=Prompts("query: ", "passage: ", "plain: "))


def encoder_of(student: Any, prompts: Prompts = NO_PROMPTS) -> StudentEncoder:
    return StudentEncoder(student, student.tokenizer.path, SHORT, prompts=prompts)


def cosines(first: Any, second: Any) -> Any:
    first, second = (np.asarray(each, np.float64) for each in (first, second))
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(axis=1) / norms


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    trace(monkeypatch)


@pytest.fixture
def without_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ONNX graph, which takes most of an export's time, as without its extra."""
    monkeypatch.setattr("stillhouse.students.export.asymmetric.why_not", lambda student, form: "no extra")


@pytest.mark.usefixtures("without_graph")
@pytest.mark.parametrize("kind", ["transformer", "lowered", "recurrent", "static"])
def test_each_role_gives_the_vectors_of_its_model(
    kind: str, make_model: MakeModel, lowered: Model, teacher: Model, tmp_path: Path, workspace: Workspace
) -> None:
    """Stock classes, each side with its own prompt, tokenizer and maximum length."""
    base = make_model("bert")
    make: Any = {
        "recurrent": lambda: RecurrentStudent(base, unit=1, repeats=2),
        "static": lambda: StaticStudent(base, dim=32),
        "lowered": lambda: TransformerStudent(lowered, layers=(0,)),
    }.get(kind, lambda: TransformerStudent(base, layers=(0, 2), projection=32))
    queries = encoder_of(make(), Prompts("where is ", "never used ", "never used "))
    documents, folder = load_sentence_transformer(teacher), tmp_path / "both"
    parity = export_asymmetric(queries, documents, prompts_of(teacher), folder, TEXTS)
    assert parity >= 0.9999
    stock: Any = SentenceTransformer(str(folder), device="cpu")
    plain: Any = SentenceTransformer(teacher.path, device="cpu")
    assert isinstance(stock[0], Router) and stock.prompts["query"] == "where is "
    expected = plain.encode(TEXTS, prompt="passage: ")
    assert cosines(stock.encode_document(TEXTS), expected).min() >= 0.9999
    assert cosines(stock.encode_query(TEXTS), queries.encode_query(TEXTS)).min() >= 0.9999
    assert cosines(stock.encode_query(TEXTS), queries.encode(TEXTS)).max() < 0.9999, "the prompt counts"
    assert cosines(stock.encode(TEXTS), plain.encode(TEXTS, prompt="plain: ")).min() >= 0.9999
    opened = find_model(str(folder), workspace)
    assert opened.form == ROUTED and opened.identity()
    assert cosines(opened.open().encode_query(TEXTS), queries.encode_query(TEXTS)).min() >= 0.9999
    assert not (folder / QUERY_ONNX).exists()
    assert not [path for path in folder.rglob("*") if path.name.startswith(".")]


@pytest.mark.usefixtures("without_graph")
def test_the_head_that_an_experiment_gives_the_teacher_is_exported(
    make_model: MakeModel, teacher: Model, tmp_path: Path
) -> None:
    """Another pooling, and the first dimensions alone."""
    cut = replace(teacher, pooling="cls", dimension=24)
    queries = encoder_of(TransformerStudent(make_model("bert"), layers=(0,), projection=24))
    documents = load_sentence_transformer(cut)
    export_asymmetric(queries, documents, prompts_of(cut), tmp_path / "both", TEXTS)
    stock: Any = SentenceTransformer(str(tmp_path / "both"), device="cpu")
    found = stock.encode_document(TEXTS)
    assert found.shape == (3, 24)
    whole: Any = load_sentence_transformer(replace(teacher, pooling="cls"))
    expected = whole.encode_document(TEXTS)[:, :24]
    assert cosines(found, expected).min() >= 0.9999
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-4)


@pytest.mark.usefixtures("without_graph")
def test_loading_reports_no_missing_weights(
    make_model: MakeModel, teacher: Model, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The student has no pooler head, and stock transformers is told so."""
    queries = encoder_of(TransformerStudent(make_model("bert"), layers=(0, 2), projection=32))
    documents = load_sentence_transformer(teacher)
    export_asymmetric(queries, documents, prompts_of(teacher), tmp_path / "both", TEXTS)
    capfd.readouterr()
    stock: Any = SentenceTransformer(str(tmp_path / "both"), device="cpu")
    assert stock[0].sub_modules["query"][0].auto_model.pooler is None
    assert "MISSING" not in "".join(capfd.readouterr())


@pytest.mark.usefixtures("backend", "traced")
def test_the_card_has_programs_that_run(
    make_model: MakeModel,
    teacher: Model,
    tmp_path: Path,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That of both sides, and that of the queries' graph alone, which `stillhouse` opens too."""
    queries = encoder_of(TransformerStudent(make_model("bert"), layers=(0,), projection=32))
    documents = load_sentence_transformer(replace(teacher, prompts=NO_PROMPTS))
    monkeypatch.chdir(tmp_path)
    parity = export_asymmetric(queries, documents, NO_PROMPTS, Path("my search"), TEXTS)
    card = usage(describe_export(queries, Path("my search"), ROUTED, parity), "tiny")
    whole, graph = run_snippets(card)
    plain: Any = SentenceTransformer(teacher.path, device="cpu")
    shown = ["First document.", "Second document."]
    np.testing.assert_allclose(whole["vectors"], plain.encode(shown), atol=1e-4)
    expected = cosines(queries.encode(["A query."]).repeat(2, axis=0), plain.encode(shown))
    np.testing.assert_allclose(np.asarray(whole["scores"])[0], expected, atol=1e-4)
    np.testing.assert_allclose(
        graph["vectors"], queries.encode(["First sentence.", "Second sentence."]), atol=1e-4
    )
    opened = find_model(f"my search/{QUERY_ONNX}", workspace).open()
    assert cosines(opened.encode_query(TEXTS), queries.encode_query(TEXTS)).min() >= 0.9999
    assert '"my search/query-onnx' in card and "`tiny`" in card


@pytest.mark.usefixtures("without_graph")
def test_a_folder_with_other_vectors_is_refused(
    make_model: MakeModel, teacher: Model, tmp_path: Path
) -> None:
    queries = encoder_of(TransformerStudent(make_model("bert"), layers=(0, 2), projection=32))
    documents, folder = load_sentence_transformer(teacher), tmp_path / "both"
    export_asymmetric(queries, documents, prompts_of(teacher), folder, TEXTS)
    assert is_router(folder) and check_sides(queries, documents, folder, TEXTS) >= 0.9999
    other = load_sentence_transformer(replace(teacher, pooling="cls"))
    with pytest.raises(BadInput, match="must give the evaluated vectors"):
        check_sides(queries, other, folder, TEXTS)
    with torch.no_grad():
        for weight in queries.student.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    with pytest.raises(BadInput, match="must give the evaluated vectors"):
        check_sides(queries, documents, folder, TEXTS)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="holds something else"):
        export_asymmetric(queries, documents, NO_PROMPTS, tmp_path / "full", TEXTS)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["notes.txt"]
