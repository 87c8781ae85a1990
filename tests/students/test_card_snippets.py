"""The program in the card of every form gives the student's vectors, with the folder's own path."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from card_snippets import run_snippets
from onnx_graphs import trace

from stillhouse.corpora.word_vector_files import write_vocabulary
from stillhouse.losses.pair_head import Joiner
from stillhouse.reports.model_card import usage
from stillhouse.students.bilstm import BiLSTMStudent
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.folder_modules import COMPACT, ONNX, ONNX_INT8, STOCK, TOWERS
from stillhouse.students.export.formats import write_format
from stillhouse.students.export.tower_folders import export_towers
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.static import StaticStudent
from stillhouse.students.towers import SimpleCNN
from stillhouse.students.transformer import TransformerStudent
from stillhouse.sweeps.stage_export import describe_export
from stillhouse.values.data import Model

MakeModel = Callable[[str], Model]
SHOWN = ["First sentence.", "Second sentence."]
MAX_LENGTH = 12


@pytest.fixture(autouse=True)
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    trace(monkeypatch)


@pytest.fixture
def words(tmp_path: Path) -> Model:
    write_vocabulary("first second sentence a document another one claim".split(), tmp_path / "words", dim=6)
    return Model("words", path=str(tmp_path / "words"))


@pytest.mark.parametrize(
    ("kind", "form", "programs"),
    [
        ("transformer", STOCK, 1),
        pytest.param("transformer", ONNX, 2, marks=pytest.mark.long),
        ("transformer", ONNX_INT8, 2),
        pytest.param("roberta", ONNX, 2, marks=pytest.mark.long),
        pytest.param("lowered", ONNX, 2, marks=pytest.mark.long),
        ("recurrent", COMPACT, 1),
        ("static", STOCK, 1),
        ("static", ONNX, 1),
        ("bilstm", ONNX, 1),
    ],
)
@pytest.mark.usefixtures("backend")
def test_the_program_gives_the_students_vectors(
    kind: str,
    form: str,
    programs: int,
    make_model: MakeModel,
    words: Model,
    lowered: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = make_model("roberta" if kind == "roberta" else "bert")
    make: Any = {
        "recurrent": lambda: RecurrentStudent(base, unit=1, repeats=2),
        "static": lambda: StaticStudent(base, dim=8),
        "bilstm": lambda: BiLSTMStudent(words, hidden=5, dim=8, pooling="last"),
        "lowered": lambda: TransformerStudent(lowered, layers=(0,)),
    }.get(kind, lambda: TransformerStudent(base, layers=(0,), projection=8))
    student = make()
    encoder = StudentEncoder(student, student.tokenizer.path, MAX_LENGTH)
    monkeypatch.chdir(tmp_path)
    parity = write_format(form, encoder, Path("my graph"), SHOWN)
    card = usage(describe_export(encoder, Path("my graph"), form, parity))
    ran = run_snippets(card)
    assert len(ran) == programs and '"my graph' in card
    for names in ran:
        tolerance = 0.1 if form == ONNX_INT8 else 1e-4
        np.testing.assert_allclose(names["vectors"], encoder.encode(SHOWN), atol=tolerance)


@pytest.mark.parametrize("kind", ["bilinear", "features"])
def test_the_program_of_two_towers_scores_as_they_do(
    kind: str, words: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student, joiner = SimpleCNN(words, filters=5, width=3, train_words=True), Joiner(claim_dim=5, kind=kind)
    with torch.no_grad():
        for weight in (*joiner.parameters(), *student.parameters()):
            weight[...] = torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
        student.words.weight[0] = 0  # Padding, which no gradient reaches.
    encoder = StudentEncoder(student, words.path, MAX_LENGTH)
    monkeypatch.chdir(tmp_path)
    export_towers(student, joiner, MAX_LENGTH, "pair")
    (names,) = run_snippets(usage(describe_export(encoder, Path("pair"), TOWERS, 1.0)))
    documents = torch.from_numpy(encoder.encode(["A document.", "Another one."]))
    with torch.no_grad():
        expected = joiner(torch.from_numpy(encoder.encode(["A claim."])), documents[None])[0].numpy()
    scores = np.asarray(names["scores"]).ravel()
    if kind == "bilinear":
        expected = expected[names["rows"][0]]
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
