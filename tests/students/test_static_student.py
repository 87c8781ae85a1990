import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rows import each_row
from sklearn.decomposition import PCA

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import fingerprint, spec
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.core.types import Tokens
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.sentence_transformers import check_parity, export_student
from stillhouse.students.static import StaticStudent
from stillhouse.students.transformer import TransformerStudent, load_weights
from stillhouse.training.grouped import encode_grouped
from stillhouse.values.data import Model

MakeModel = Callable[[str], Model]
MAX_LENGTH = 12
CLS, PAD, SEP = 0, 1, 2
TEXTS = [
    "The river.",
    "a model of the river, long enough to be cut in two",
    "z",
    "the MODEL [SEP], 0 1 2 3 4",
    "[PAD] a [CLS]",
]


def tokens(*texts: list[int]) -> Tokens:
    longest = max(len(ids) for ids in texts) + 2
    rows = [[CLS, *ids, SEP] for ids in texts]
    ids_BT = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
    mask_BT = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return Tokens(ids_BT, mask_BT)


@pytest.fixture
def base(make_model: MakeModel) -> Model:
    return make_model("bert")


@pytest.mark.parametrize("normalize", [True, False])
def test_a_text_is_the_mean_of_its_tokens(normalize: bool, base: Model) -> None:
    student = StaticStudent(base, normalize=normalize)
    table = student.words.weight.detach().double()
    encoding = student(tokens([5, 9, 9], [7], [SEP, 11]))
    expected = torch.stack([(table[5] + 2 * table[9]) / 3, table[7], (table[SEP] + table[11]) / 2])
    if normalize:
        expected = expected / expected.norm(dim=1, keepdim=True)
    torch.testing.assert_close(encoding.embedding_BD.double(), expected, rtol=1e-5, atol=1e-6)
    assert encoding.embedding_BD.shape == (3, student.dim)


def test_a_text_without_tokens_is_zero(base: Model) -> None:
    assert not StaticStudent(base)(tokens([], [5])).embedding_BD[0].any()


def test_padding_changes_nothing(base: Model) -> None:
    student = StaticStudent(base)
    alone, together = student(tokens([5, 9])), student(tokens([5, 9], [4] * 9))
    torch.testing.assert_close(alone.embedding_BD[0], together.embedding_BD[0])


def test_words_start_at_the_base_models_table(base: Model) -> None:
    student = StaticStudent(base)
    words = TransformerStudent(base).backbone.get_input_embeddings().weight
    assert torch.equal(student.words.weight, words)
    assert (student.dim, student.hidden_size) == (32, 32)


@each_row("pooling", ["mean", "cls", "max"])
@each_row("kind", ["bert", "roberta"])
def test_contextless_equals_the_base_model_on_single_tokens(
    pooling: str, kind: str, make_model: MakeModel
) -> None:
    base = make_model(kind)
    table = StaticStudent(base, start="contextless", pooling=pooling).words.weight
    whole = TransformerStudent(base, pooling=pooling, normalize=False).eval()
    with torch.no_grad():
        for token in (3, 6, len(table) - 1):
            alone = whole(tokens([token])).embedding_BD[0]
            torch.testing.assert_close(table[token], alone, rtol=1e-4, atol=1e-5)


def test_training_does_not_change_the_cached_start(base: Model) -> None:
    first = StaticStudent(base, start="contextless")
    with torch.no_grad():
        first.words.weight.zero_()
    assert StaticStudent(base, start="contextless").words.weight.abs().max() > 0


def test_pca_of_the_table_matches_scikit_learn(base: Model) -> None:
    table = StaticStudent(base).words.weight.detach().numpy()
    student = StaticStudent(base, dim=6)
    expected = PCA(6, svd_solver="full").fit_transform(table.astype(np.float64))
    np.testing.assert_allclose(student.words.weight.detach().numpy(), expected, atol=1e-4)
    assert student.dim == 6


def test_weights_follow_zipfs_law(base: Model) -> None:
    plain, weighed = StaticStudent(base), StaticStudent(base, zipf=1e-3)
    rows = len(plain.words.weight)
    total = sum(1 / rank for rank in range(1, rows + 1))
    for token in (0, 1, rows - 1):
        weight = 1e-3 / (1e-3 + 1 / (token + 1) / total)
        torch.testing.assert_close(weighed.words.weight[token], plain.words.weight[token] * weight)


def test_only_tokens_in_the_texts_get_a_gradient(base: Model) -> None:
    student = StaticStudent(base, dim=6, zipf=1e-3)
    student(tokens([5, 9], [7])).embedding_BD.sum().backward()
    (gradient,) = (parameter.grad for parameter in student.parameters())
    assert gradient is not None
    touched = gradient.abs().sum(dim=1).nonzero().flatten()
    assert touched.tolist() == [5, 7, 9]


def test_grouping_by_length_gives_the_same_encoding(base: Model) -> None:
    student, batch = StaticStudent(base), tokens([5, 9, 8], [7], [6, 6], [4, 3, 5, 6])
    whole, grouped = student(batch), encode_grouped(student, batch, size=2)
    torch.testing.assert_close(whole.embedding_BD, grouped.embedding_BD)
    inside = batch.attention_mask_BT.bool()
    torch.testing.assert_close(whole.hidden[0][inside], grouped.hidden[0][inside])


def test_it_rebuilds_from_its_spec_and_weights(base: Model, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    planned = spec(StaticStudent, base=base, dim=6)
    assert fingerprint(planned) != fingerprint(planned.replace(start="contextless"))
    student, other = planned.build(), planned.build()
    assert torch.equal(student.words.weight, other.words.weight)
    with torch.no_grad():
        student.words.weight.normal_()
    save_file(student.state_dict(), tmp_path / "student.safetensors")
    load_weights(other, tmp_path / "student.safetensors")
    assert torch.equal(student.words.weight, other.words.weight)


@each_row("kind", ["bert", "roberta"])
@each_row("normalize", [True, False])
@each_row(("dim", "activation"), [(0, None), (6, ""), (6, "tanh")])
def test_the_stock_library_gives_the_same_vectors(
    kind: str, normalize: bool, dim: int, activation: str | None, make_model: MakeModel, tmp_path: Path
) -> None:
    ending: dict[str, Any] = (
        {} if activation is None else {"projection": 4, "projection_activation": activation}
    )
    student = StaticStudent(make_model(kind), dim=dim, normalize=normalize, zipf=1e-3, **ending)
    assert student.dim == (4 if ending else dim or 32)
    encoder = StudentEncoder(student, student.tokenizer.path, MAX_LENGTH)
    export_student(student, student.tokenizer.path, MAX_LENGTH, tmp_path / "export")
    assert check_parity(encoder, tmp_path / "export", TEXTS, minimum=0.999999) <= 1 + 1e-6
    modules = json.loads((tmp_path / "export" / "modules.json").read_bytes())
    expected = ["StaticEmbedding", *["Dense"] * bool(ending), *["Normalize"] * normalize]
    assert [m["type"].rpartition(".")[2] for m in modules] == expected
    tokenizer = FastTokenizer(tmp_path / "export", MAX_LENGTH)
    assert tokenizer.special_tokens_around() == ([], [])
    assert tokenizer(TEXTS)[1].max() <= len(TEXTS) * (MAX_LENGTH - 2)


def test_lowercasing_outside_the_tokenizer_is_exported(base: Model, tmp_path: Path) -> None:
    folder = tmp_path / "cased"
    shutil.copytree(base.path, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_bytes())
    tokenizer["normalizer"] = None
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 12, "do_lower_case": true}')
    student = StaticStudent(dataclasses.replace(base, path=str(folder)))
    encoder = StudentEncoder(student, folder, MAX_LENGTH)
    export_student(student, folder, MAX_LENGTH, tmp_path / "export")
    texts = ["The RIVER", "the MODEL of a river"]
    assert check_parity(encoder, tmp_path / "export", texts, minimum=0.999999) > 0.999999


@each_row(
    ("switches", "rule"),
    [
        ({"start": "random"}, "start in"),
        ({"pooling": "sum"}, "pooling in"),
        ({"dim": -1}, "dim >= 0"),
        ({"dim": 33}, "dim <= dimension of the vectors"),
        ({"zipf": -1.0}, "zipf >= 0"),
        ({"projection": 0}, "projection >= 1"),
        ({"projection_activation": "tanh"}, "tanh with a projection"),
    ],
)
def test_bad_values_are_refused(switches: dict[str, Any], rule: str, base: Model) -> None:
    with pytest.raises(BadInput, match=rule):
        StaticStudent(base, **switches)


def test_a_base_that_is_not_a_transformer_is_refused(base: Model, tmp_path: Path) -> None:
    student = StaticStudent(base)
    export_student(student, student.tokenizer.path, MAX_LENGTH, tmp_path / "export")
    with pytest.raises(BadInput, match="is a table of token vectors"):
        StaticStudent(dataclasses.replace(base, path=str(tmp_path / "export")))
