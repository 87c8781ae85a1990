"""Every export form of every kind of student reproduces its vectors or is refused with a reason."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from stillhouse.core.errors import BadInput
from stillhouse.core.types import (
    Encoding,
    Exportable,
    PairModel,
    StockModule,
    Tokens,
    WeightAdapter,
    WordEmbedder,
)
from stillhouse.corpora.word_vector_files import write_vocabulary
from stillhouse.students.bilstm import BiLSTMStudent
from stillhouse.students.coattention import CoattentionScorer
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.folder_modules import Dense
from stillhouse.students.export.formats import FORMATS, why_not, write_format
from stillhouse.students.export.onnx import OnnxEncoder
from stillhouse.students.export.sentence_transformers import same_vectors
from stillhouse.students.pair_transformer import TransformerScorer
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.static import StaticStudent
from stillhouse.students.towers import SimpleCNN, SimpleLSTM
from stillhouse.students.transformer import TransformerStudent
from stillhouse.values.data import Model

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
def test_export_forms_of_each_kind(
    kind: str, forms: tuple[str, ...], make_model: MakeModel, words: Model, tmp_path: Path
) -> None:
    student = student_of(kind, make_model("bert"), words)
    encoder = StudentEncoder(student, student.tokenizer.path, 12)
    for form in forms:
        least = 0.95 if form == INT8 else 0.9999
        assert write_format(form, encoder, tmp_path / form, TEXTS) >= least
    for form in {STOCK, COMPACT} - set(forms):
        with pytest.raises(BadInput, match=f"the form {form}, but: .*It has the forms"):
            write_format(form, encoder, tmp_path / form, TEXTS)
        assert not (tmp_path / form).exists()


def test_int8_is_smaller_and_a_single_file(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student = StaticStudent(make_model("bert"), projection=8, normalize=False)
    student.words = nn.Embedding(4000, 32)
    encoder = StudentEncoder(student, student.tokenizer.path, 12)
    monkeypatch.setattr("stillhouse.students.export.onnx._LARGEST_FILE", 100)
    write_format(INT8, encoder, tmp_path / INT8, TEXTS)
    (graph,) = (tmp_path / INT8 / "onnx").iterdir()
    assert graph.name == "model_qint8_quantized.onnx" and graph.stat().st_size < 0.4 * 4 * 4000 * 32
    with pytest.raises(BadInput, match="must give the evaluated vectors"):
        nn.init.normal_(student.words.weight)
        same_vectors(OnnxEncoder(tmp_path / INT8).encode(TEXTS), encoder.encode(TEXTS), TEXTS, 0.95, 0.1)


def test_int8_does_not_overflow_where_a_cpu_adds_two_products_in_16_bits(
    make_model: MakeModel, tmp_path: Path
) -> None:
    """As CPUs without VNNI do; on others the vectors are the same with and without the eighth bit."""
    import onnx

    student = TransformerStudent(make_model("bert"), layers=(0,))
    encoder = StudentEncoder(student, student.tokenizer.path, 12)
    write_format(INT8, encoder, tmp_path / INT8, TEXTS)
    graph = onnx.load(tmp_path / INT8 / "onnx" / "model_qint8_quantized.onnx").graph
    arrays = [onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer]
    weights = [array for array in arrays if array.dtype == np.int8 and array.ndim == 2]
    assert len(weights) > 3
    largest = max(int(np.abs(array.astype(int)).max()) for array in weights)
    assert 255 * largest * 2 < 1 << 15 and largest > 60


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


class Doubled(nn.Module):
    """A kind of student unknown to the package: the export uses its methods, not its class."""

    export_sides: ClassVar[tuple[str, ...]] = ()

    def __init__(self, base: Model) -> None:
        super().__init__()
        self.inner, self.max_tokens, self.tokenizer = TransformerStudent(base, layers=(0,)), 64, base
        self.dim = self.inner.dim
        self.twice = nn.Linear(self.dim, self.dim, bias=False)
        self.twice.weight = nn.Parameter(2 * torch.eye(self.dim))

    def forward(self, tokens: Tokens) -> Encoding:
        return Encoding(self.twice(self.inner(tokens).embedding_BD))

    def stock_modules(self) -> Sequence[StockModule]:
        return [*self.inner.stock_modules(), Dense(self.twice, nn.Identity())]

    def why_not(self, form: str) -> str:
        return "" if form == STOCK else "only its folder is written"


def test_a_new_kind_of_student_needs_no_change_of_the_export(make_model: MakeModel, tmp_path: Path) -> None:
    student = Doubled(make_model("bert"))
    encoder = StudentEncoder(student, student.tokenizer.path, 12)
    assert write_format(STOCK, encoder, tmp_path / "export", TEXTS) >= 0.9999
    assert why_not(student, ONNX) == "only its folder is written"


def test_every_kind_declares_its_contracts(make_model: MakeModel, words: Model) -> None:
    base = make_model("bert")
    transformer = TransformerStudent(base, layers=(0,))
    recurrent = RecurrentStudent(base, unit=1)
    static, bilstm = StaticStudent(base), BiLSTMStudent(words, hidden=5, dim=8)
    towers: list[Exportable] = [
        SimpleCNN(words, train_words=True),
        SimpleLSTM(words, train_words=True),
    ]
    exportable: list[Exportable] = [transformer, recurrent, static, bilstm, *towers]
    embedders: list[WordEmbedder] = [transformer, recurrent, static, bilstm]
    assert all(isinstance(student, Exportable) for student in exportable)
    assert all(isinstance(student, WordEmbedder) for student in embedders)
    assert not any(isinstance(tower, WordEmbedder) for tower in towers)
    adapter: WeightAdapter = recurrent
    assert [student is adapter for student in exportable if isinstance(student, WeightAdapter)] == [True]
    scorers: list[PairModel] = [
        CoattentionScorer(words, train_words=True),
        TransformerScorer(base, layers=(0,)),
    ]
    assert all(isinstance(scorer, PairModel) for scorer in scorers)
    assert not any(isinstance(student, PairModel) for student in exportable)
