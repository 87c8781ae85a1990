import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from stillhouse.core.errors import BadInput
from stillhouse.core.types import Encoding, Tokens
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export import onnx as onnx_export
from stillhouse.students.export.onnx import OnnxEncoder, check_onnx, export_onnx
from stillhouse.students.pooling import mean
from stillhouse.students.static import StaticStudent
from stillhouse.students.transformer import TransformerStudent
from stillhouse.values.data import Model

MakeModel = Callable[[str], Model]
TEXTS = [
    "The river.",
    "a model of the river, long enough to be cut in two",
    "z",
    "the MODEL [SEP], 0 1 2 3 4",
    *("the river model " * words for words in (2, 3, 9)),
]
MAX_LENGTH = 12


class LSTMStudent(nn.Module):
    """A student independent of transformers that reads its states in one of four ways."""

    def __init__(self, base: Model, reading: str) -> None:
        super().__init__()
        self.dim, self.reading, self.tokenizer = 8, reading, base
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.words = nn.Embedding(200, 6)
            self.lstm = nn.LSTM(6, 8, batch_first=True)

    def forward(self, tokens: Tokens) -> Encoding:
        mask_BT, words_BTH = tokens.attention_mask_BT, self.words(tokens.input_ids_BT)
        if self.reading in ("mean", "len"):
            states_BTH = self.lstm(words_BTH)[0]
            if self.reading == "mean":
                return Encoding(mean(states_BTH, mask_BT))
            return Encoding(states_BTH[torch.arange(len(mask_BT)), mask_BT.sum(dim=1) - 1])
        texts = nn.utils.rnn.pack_padded_sequence(
            words_BTH, mask_BT.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False
        )
        states, (last_LBH, _) = self.lstm(texts)
        if self.reading == "packed last":
            return Encoding(last_LBH[-1])
        states_BTH, _ = nn.utils.rnn.pad_packed_sequence(
            states, batch_first=True, total_length=mask_BT.shape[1]
        )
        return Encoding(mean(states_BTH, mask_BT))


def assert_exported(student: nn.Module, base: Model, folder: Path) -> None:
    """Check that vectors of single texts and padded batches, in any order, match the student."""
    encoder = StudentEncoder(student, base.path, MAX_LENGTH)
    export_onnx(student, base.path, MAX_LENGTH, folder)
    assert check_onnx(encoder, folder, TEXTS, minimum=0.999999) <= 1 + 1e-6
    exported = OnnxEncoder(folder, threads=1)
    np.testing.assert_allclose(exported.encode(TEXTS), encoder.encode(TEXTS), rtol=1e-3, atol=1e-5)
    alone = np.concatenate([exported.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(exported.encode(TEXTS), alone, rtol=1e-3, atol=1e-5)
    assert exported.dim == student.dim and exported.encode([]).shape == (0, exported.dim)


@pytest.mark.long  # That of BERT is also in test_onnx_stock.py.
@pytest.mark.parametrize("kind", ["bert", "mpnet", "modernbert"])
def test_transformer_architectures(kind: str, make_model: MakeModel, tmp_path: Path) -> None:
    base = make_model(kind)
    assert_exported(TransformerStudent(base, layers=(0, 2), projection=8), base, tmp_path / "onnx")


@pytest.mark.parametrize(
    ("pooling", "normalize"), [pytest.param("cls", True, marks=pytest.mark.long), ("max", False)]
)
def test_every_pooling_and_normalisation(
    pooling: str, normalize: bool, make_model: MakeModel, tmp_path: Path
) -> None:
    base = make_model("bert")
    student = TransformerStudent(base, layers=(0,), pooling=pooling, normalize=normalize)
    assert_exported(student, base, tmp_path / "onnx")


@pytest.mark.parametrize("reading", ["mean", "packed mean"])
def test_a_recurrent_student(reading: str, make_model: MakeModel, tmp_path: Path) -> None:
    base = make_model("bert")
    assert_exported(LSTMStudent(base, reading), base, tmp_path / "onnx")


@pytest.mark.parametrize("reading", ["len", "packed last"])
def test_a_student_that_cannot_be_traced_is_refused(
    reading: str, make_model: MakeModel, tmp_path: Path
) -> None:
    base = make_model("bert")
    with pytest.raises(BadInput, match=r"^LSTMStudent must be a student that torch\.onnx can write"):
        export_onnx(LSTMStudent(base, reading), base.path, MAX_LENGTH, tmp_path / "onnx")
    assert not list(tmp_path.iterdir())


def test_a_graph_with_other_vectors_is_refused(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = make_model("bert")
    monkeypatch.setattr(onnx_export, "_export", lambda *_: None)
    monkeypatch.setattr(onnx_export, "_agrees", lambda *_: False)
    with pytest.raises(BadInput, match="another batch size or length"):
        export_onnx(StaticStudent(base), base.path, MAX_LENGTH, tmp_path / "onnx")


def test_the_folder_is_whole_the_student_unchanged_and_other_vectors_are_detected(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, base = onnx_export._export, make_model("bert")
    student = StaticStudent(base)
    before = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    for export in (onnx_export._trace, write):
        monkeypatch.setattr(onnx_export, "_export", export)
        export_onnx(student, base.path, MAX_LENGTH, tmp_path / "onnx")
    files = {str(file.relative_to(tmp_path / "onnx")) for file in (tmp_path / "onnx").rglob("*")}
    assert {"onnx/model.onnx", "tokenizer.json", "sentence_bert_config.json"} <= files
    assert "modules.json" not in files, "a table of token vectors is no Hugging Face encoder"
    settings = json.loads((tmp_path / "onnx" / "sentence_bert_config.json").read_bytes())
    assert settings == {"max_seq_length": MAX_LENGTH, "do_lower_case": False}
    assert [folder.name for folder in tmp_path.iterdir()] == ["onnx"]
    assert student.training and all(p.requires_grad and p.grad is None for p in student.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in student.state_dict().items())
    nn.init.normal_(student.words.weight)
    with pytest.raises(BadInput, match="must give the evaluated vectors"):
        check_onnx(StudentEncoder(student, base.path, MAX_LENGTH), tmp_path / "onnx", TEXTS)


def test_large_weights_are_stored_next_to_the_graph(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a static student, whose graph with all of its weights is in test_models.py."""
    monkeypatch.setattr(onnx_export, "_LARGEST_FILE", 100)
    base = make_model("bert")
    assert_exported(StaticStudent(base, dim=6, zipf=1e-3), base, tmp_path / "onnx")
    assert {file.name for file in (tmp_path / "onnx" / "onnx").iterdir()} == {"model.onnx", "model.onnx_data"}


def test_unexportable_students_are_refused(make_model: MakeModel, tmp_path: Path) -> None:
    base = make_model("bert")
    student = TransformerStudent(base, layers=(0,))
    with pytest.raises(BadInput, match="positions of the model"):
        export_onnx(student, base.path, 65, tmp_path / "onnx")
    with pytest.raises(BadInput, match="tokenizer's folder"):
        export_onnx(StaticStudent(base), tmp_path, MAX_LENGTH, tmp_path / "onnx")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    with pytest.raises(BadInput, match="replaces nothing but"):
        export_onnx(student, base.path, MAX_LENGTH, tmp_path / "full")
    with pytest.raises(BadInput, match=r"holds onnx/model\.onnx"):
        OnnxEncoder(tmp_path / "full")
    assert [folder.name for folder in tmp_path.iterdir()] == ["full"]


def test_the_extra_is_named_when_it_is_missing(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if "onnx" in name else found(name))
    base = make_model("bert")
    with pytest.raises(
        BadInput, match=r"missing=\['onnx', 'onnxscript', 'onnxruntime'\].*stillhouse\[onnx\]"
    ):
        export_onnx(StaticStudent(base), base.path, MAX_LENGTH, tmp_path / "onnx")
    with pytest.raises(BadInput, match="onnxruntime"):
        OnnxEncoder(tmp_path)
