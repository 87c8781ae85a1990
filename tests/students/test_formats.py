"""Every form of every kind of student gives its vectors in its own runtime, or says why there is none."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from stillhouse.core.errors import BadInput
from stillhouse.corpora.word_vectors import write_vocabulary
from stillhouse.plan.data import Model
from stillhouse.students.bilstm import BiLSTMStudent
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.formats import FORMATS, why_not, write_format
from stillhouse.students.export.onnx import OnnxEncoder
from stillhouse.students.export.sentence_transformers import same_vectors
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.static import StaticStudent
from stillhouse.students.transformer import TransformerStudent

MakeModel = Callable[[str], Model]
TEXTS = ["The river.", "a model of the river, long enough to be cut in two", "z", "river river"]
STOCK, ONNX, INT8, COMPACT = FORMATS


@pytest.fixture
def words(tmp_path: Path) -> Model:
    write_vocabulary("the a river model of long two z enough".split(), tmp_path / "words", dim=6)
    return Model("words", path=str(tmp_path / "words"))


def student_of(kind: str, base: Model, words: Model) -> Any:
    match kind:
        case "transformer":
            return TransformerStudent(base, layers=(2,), projection=8, projection_activation="tanh")
        case "recurrent":
            return RecurrentStudent(base, unit=1, repeats=2, bottleneck=8)
        case "static":
            return StaticStudent(base, dim=16, projection=8)
    return BiLSTMStudent(words, hidden=5, dim=8, pooling=kind)


@pytest.mark.parametrize(
    ("kind", "forms"),
    [
        ("transformer", (STOCK,)),
        ("recurrent", (STOCK, COMPACT)),
        ("static", (STOCK,)),
        ("max", (STOCK,)),
        ("last", (ONNX,)),
    ],
)
def test_the_forms_of_each_kind(
    kind: str, forms: tuple[str, ...], make_model: MakeModel, words: Model, tmp_path: Path
) -> None:
    if set(forms) & {ONNX, INT8}:
        pytest.importorskip("onnxscript")
    student = student_of(kind, make_model("bert"), words)
    encoder = StudentEncoder(student, student.tokenizer.path, 12)
    for form in forms:
        least = 0.95 if form == INT8 else 0.9999
        assert write_format(form, encoder, tmp_path / form, TEXTS) >= least
    for form in {STOCK, COMPACT} - set(forms):
        with pytest.raises(BadInput, match=f"the form {form}, but: .*It has the forms"):
            write_format(form, encoder, tmp_path / form, TEXTS)
        assert not (tmp_path / form).exists()


def test_eight_bits_are_smaller_and_stand_in_one_file(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript")
    student = StaticStudent(make_model("bert"), projection=8, normalize=False)
    student.words = nn.Embedding(4000, 32)
    encoder = StudentEncoder(student, student.tokenizer.path, 12)
    monkeypatch.setattr("stillhouse.students.export.onnx._LARGEST_FILE", 100)
    write_format(INT8, encoder, tmp_path / INT8, TEXTS)
    assert (tmp_path / INT8 / "model.onnx").stat().st_size < 0.4 * 4 * 4000 * 32
    assert not (tmp_path / INT8 / "model.onnx.data").exists()
    with pytest.raises(RuntimeError, match="Do not publish"):
        nn.init.normal_(student.words.weight)
        same_vectors(OnnxEncoder(tmp_path / INT8).encode(TEXTS), encoder, tmp_path, TEXTS, 0.95, 0.1)


def test_a_missing_extra_is_one_sentence(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if "onnx" in name else found(name))
    student = StaticStudent(make_model("bert"))
    encoder = StudentEncoder(student, student.tokenizer.path, 12)
    with pytest.raises(BadInput, match=r'pip install "stillhouse\[onnx\]"'):
        write_format(ONNX, encoder, tmp_path / "onnx", TEXTS)


def test_a_stage_without_layers_has_no_stock_form(make_model: MakeModel) -> None:
    assert "no layers" in why_not(RecurrentStudent(make_model("bert"), unit=2, repeats=0), STOCK)
    assert "cannot express Linear" in why_not(nn.Linear(2, 2), STOCK)
