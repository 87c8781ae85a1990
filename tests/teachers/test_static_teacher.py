"""Static teachers (tables of token vectors) in a store."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.core.types import FloatArray
from stillhouse.corpora.tables import write_texts
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.store import open_store
from stillhouse.teachers.weights import resolve_model
from stillhouse.values.data import Model, Store


@pytest.fixture
def static_model(tiny_model: Path, tmp_path: Path) -> Path:
    """A folder as saved by stock sentence-transformers, with padding set in its tokenizer."""
    return save(tiny_model, tmp_path / "static")


def save(tiny_model: Path, folder: Path, *after: Any, cut: int = 0) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    tokenizer.no_truncation()
    if cut:
        tokenizer.enable_truncation(cut)
    table = torch.randn(tokenizer.get_vocab_size(), 16, generator=torch.Generator().manual_seed(0))
    modules = [StaticEmbedding(tokenizer, embedding_weights=table), *after, Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    return folder


def built(workspace: Workspace, store: Store) -> FloatArray:
    build_stores(workspace, [store], local=True)
    reader = open_store(workspace, store)
    return np.asarray(reader.gather(reader.rows))


def planned(store: Store, folder: Path) -> Store:
    return replace(store, teacher=resolve_model(str(folder)), dtype="float32")


def assert_same(vectors: FloatArray, expected: FloatArray) -> None:
    cosines = (vectors * expected).sum(axis=1)
    cosines /= np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    assert vectors.shape == expected.shape and cosines.min() > 0.999999


@pytest.mark.parametrize("prompt", ["", "name of "])
def test_store_vectors_equal_encode(
    prompt: str, workspace: Workspace, store: Store, static_model: Path, texts: list[str]
) -> None:
    store = replace(planned(store, static_model), prompt=prompt, max_length=128)
    assert isinstance(store.teacher, Model)
    expected = load_sentence_transformer(store.teacher).encode([prompt + text for text in texts])
    assert_same(built(workspace, store), expected)


@pytest.mark.parametrize("cut", [0, 5])
def test_a_text_is_truncated_at_the_shorter_of_two_limits(
    cut: int, workspace: Workspace, store: Store, tiny_model: Path, texts: list[str], tmp_path: Path
) -> None:
    store = planned(store, save(tiny_model, tmp_path / "static", cut=cut))
    store = replace(store, max_length=64 if cut else 5)
    stock = load_sentence_transformer(resolve_model(str(save(tiny_model, tmp_path / "five", cut=5))))
    assert_same(built(workspace, store), stock.encode(texts))


def test_modules_after_the_table_are_applied(
    workspace: Workspace, store: Store, tiny_model: Path, texts: list[str], tmp_path: Path
) -> None:
    from sentence_transformers.sentence_transformer.modules import Dense

    folder = save(tiny_model, tmp_path / "dense", Dense(16, 8))
    store = replace(planned(store, folder), max_length=128)
    assert isinstance(store.teacher, Model)
    expected = load_sentence_transformer(store.teacher).encode(texts)
    assert expected.shape == (44, 8)
    assert_same(built(workspace, store), expected)


def test_half_precision_is_supported(
    workspace: Workspace, store: Store, static_model: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stillhouse.teachers.embedding._has_bfloat16", lambda kind: True)
    exact = built(workspace, planned(store, static_model))
    rounded = built(workspace, replace(planned(store, static_model), compute="bfloat16", dtype="float16"))
    assert np.abs(exact - rounded).max() < 0.01


def test_a_text_without_tokens_is_quarantined(workspace: Workspace, store: Store, static_model: Path) -> None:
    table = write_texts(workspace, "odd", ["the cat", "\u200b\u200b", "a dog"], rows_per_shard=10)
    store = replace(planned(store, static_model), texts=table)
    build_stores(workspace, [store], local=True)
    assert open_store(workspace, store).rows.tolist() == [0, 2]


def test_the_tokenizer_adds_no_special_tokens(static_model: Path, tiny_model: Path) -> None:
    static, around = FastTokenizer(static_model, 8), FastTokenizer(tiny_model, 8)
    before, after = around.special_tokens_around()
    assert (len(before), len(after)) == (1, 1) and static.special_tokens_around() == ([], [])
    assert [*before, *static(["the cat"])[0], *after] == around(["the cat"])[0].tolist()
    assert len(static([""])[0]) == 0


def test_another_first_module_is_refused(workspace: Workspace, store: Store, static_model: Path) -> None:
    described = static_model / "modules.json"
    described.write_text(described.read_text().replace("StaticEmbedding", "WordEmbeddings"))
    with pytest.raises(BadInput, match=r"first module must be one of .*module='WordEmbeddings'"):
        build_stores(workspace, [planned(store, static_model)], local=True)


def test_a_static_model_without_its_tokenizer_is_refused(static_model: Path) -> None:
    (static_model / "tokenizer.json").unlink()
    with pytest.raises(BadInput, match=r"tokenizer\.json"):
        FastTokenizer(static_model, 8)
