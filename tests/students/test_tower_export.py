"""Two towers loaded by stock sentence-transformers: their inner product is the score."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stillhouse.core.errors import BadInput
from stillhouse.corpora.word_vector_files import write_vocabulary
from stillhouse.losses.pair_head import Joiner
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.tower_folders import export_towers
from stillhouse.students.towers import SimpleCNN, SimpleLSTM
from stillhouse.training.tower_scorer import ExportedTowers
from stillhouse.values.data import Model

WORDS = [f"word{row}" for row in range(30)]
CLAIMS = ["word1 word2", "word3 other word4 word5 word6"]
DOCUMENTS = ["word1", "word9 word8 word7", "word3 word4 word5 " * 9, "other"]


@pytest.fixture
def words(tmp_path: Path) -> Model:
    write_vocabulary(WORDS, tmp_path / "words", dim=6)
    return Model("words", path=str(tmp_path / "words"))


def tower(name: str, words: Model) -> Any:
    if name == "cnn":
        return SimpleCNN(words, filters=5, width=3, train_words=True)
    return SimpleLSTM(words, units=4, pooling=name, train_words=True)


def vectors(folder: Path, texts: list[str]) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    stock = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    assert stock.similarity_fn_name == "dot"
    return np.asarray(stock.encode(texts, show_progress_bar=False), np.float64)


@pytest.mark.parametrize(
    ("name", "kind"), itertools.product(("cnn", "max", "mean"), ("bilinear", "features"))
)
def test_the_exported_towers_reproduce_the_scores(name: str, kind: str, words: Model, tmp_path: Path) -> None:
    student, joiner = tower(name, words), Joiner(claim_dim=5 if name == "cnn" else 8, kind=kind)
    with torch.no_grad():
        for weight in (*joiner.parameters(), *student.parameters()):
            weight[...] = torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
        student.words.weight[0] = 0  # Padding gets no gradient.
    export_towers(student, joiner, 12, tmp_path / "export")
    encoder = StudentEncoder(student, words.path, 12)
    claims, documents = (torch.from_numpy(encoder.encode(texts)) for texts in (CLAIMS, DOCUMENTS))
    expected = joiner(claims, documents.expand(len(CLAIMS), -1, -1)).detach().numpy()
    c, d = (
        vectors(tmp_path / "export" / "claims", CLAIMS),
        vectors(tmp_path / "export" / "documents", DOCUMENTS),
    )
    if kind == "bilinear":
        scores = c @ d.T
    else:
        w = load_file(tmp_path / "export" / "joiner.safetensors")["weight"].numpy()[0]
        scores = np.array([[w @ np.concatenate([a, b, a * b, abs(a - b)]) for b in d] for a in c])
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    exported = ExportedTowers(tmp_path / "export")
    pairs = [[claim, document] for claim in CLAIMS for document in DOCUMENTS]
    scored = exported.score(*map(list, zip(*pairs, strict=True)))
    np.testing.assert_allclose(scored.reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(exported.encode(DOCUMENTS), encoder.encode(DOCUMENTS), rtol=1e-4, atol=1e-5)


def test_towers_without_a_stock_equivalent_are_refused(words: Model, tmp_path: Path) -> None:
    joiner = Joiner(claim_dim=8)
    with pytest.raises(BadInput, match=r"pooling in \(mean, max\)"):
        export_towers(tower("last", words), joiner, 12, tmp_path / "export")
    assert not (tmp_path / "export").exists()
    with pytest.raises(BadInput, match="without a norm"):
        export_towers(SimpleLSTM(words, units=4, normalize=True), joiner, 12, tmp_path / "export")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(BadInput, match="replaces nothing but an export"):
        export_towers(tower("max", words), joiner, 12, tmp_path / "full")
