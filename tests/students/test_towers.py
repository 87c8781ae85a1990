"""Towers over word vectors: SimpleCNN and SimpleLSTM."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rows import each_row
from safetensors.torch import load_file, save_file
from torch import nn

from stillhouse.core.errors import BadInput
from stillhouse.core.types import Encoding, Tokens
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.towers import SimpleCNN, SimpleLSTM
from stillhouse.students.transformer import load_weights
from stillhouse.values.data import Model

WORDS = ["[PAD]", "[UNK]", *"the red green river sun moon flows past a big house slowly".split()]
DIM = 6
Tower = SimpleCNN | SimpleLSTM
Build = Callable[..., Tower]
KINDS: dict[str, Build] = {
    "cnn": SimpleCNN,
    "lstm": SimpleLSTM,
    "one way": functools.partial(SimpleLSTM, bidirectional=False),
}
each_kind = pytest.mark.parametrize("build", KINDS.values(), ids=KINDS)


def write_words(folder: Path, vectors: torch.Tensor | None) -> Model:
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    ids = {word: row for row, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    parts: Any = tokenizer
    parts.normalizer = normalizers.Lowercase()
    parts.pre_tokenizer = pre_tokenizers.Whitespace()
    wrap: Any = PreTrainedTokenizerFast
    wrap(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_max_length=64,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)
    if vectors is not None:
        save_file({"words": vectors}, folder / "model.safetensors")
    return Model(sha256="words", name="words", path=str(folder))


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Model:
    vectors = torch.randn(len(WORDS), DIM, generator=torch.Generator().manual_seed(0))
    return write_words(tmp_path_factory.mktemp("words"), vectors)


@pytest.fixture(scope="session")
def bare_words(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_words(tmp_path_factory.mktemp("bare"), None)


def tokens(*rows: list[int], width: int = 0, padding: int = 0) -> Tokens:
    width = max(width, *map(len, rows))
    ids_BT = torch.tensor([row + [padding] * (width - len(row)) for row in rows])
    mask_BT = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return Tokens(ids_BT, mask_BT)


TEXTS = [[2, 3, 5, 8], [6], [4, 5, 8, 9, 2, 10, 11, 12], [7, 7]]


def encoded(tower: Tower, batch: Tokens) -> torch.Tensor:
    with torch.no_grad():
        encoding: Encoding = tower.eval()(batch)
    return encoding.embedding_BD


@each_kind
def test_padding_changes_nothing(build: Build, words: Model) -> None:
    tower = build(words)
    together = encoded(tower, tokens(*TEXTS, width=20, padding=9))
    for row, text in enumerate(TEXTS):
        torch.testing.assert_close(together[row : row + 1], encoded(tower, tokens(text)), rtol=0, atol=1e-6)


@each_kind
def test_a_text_without_tokens_is_zero_and_does_not_affect_others(build: Build, words: Model) -> None:
    tower = build(words)
    vectors = encoded(tower, tokens([2, 3], []))
    assert not vectors[1].any() and vectors.isfinite().all()
    torch.testing.assert_close(vectors[:1], encoded(tower, tokens([2, 3])), rtol=0, atol=1e-6)


def test_the_convolution_matches_its_formula(words: Model) -> None:
    tower = SimpleCNN(words, filters=4, width=3)
    text = TEXTS[2]
    vectors = [[0.0] * DIM, *(tower.words.weight[i].tolist() for i in text), [0.0] * DIM]
    weight, bias = tower.convolution.weight.tolist(), tower.convolution.bias
    assert bias is not None
    for f in range(4):
        answers = [
            max(
                0.0,
                bias[f].item()
                + sum(weight[f][d][o] * vectors[t + o][d] for d in range(DIM) for o in range(3)),
            )
            for t in range(len(text))
        ]
        assert encoded(tower, tokens(text))[0, f].item() == pytest.approx(max(answers), abs=1e-6)


def test_the_recurrence_gives_torchs_last_states(words: Model) -> None:
    tower = SimpleLSTM(words, units=4)
    alone = tokens(TEXTS[2])
    with torch.no_grad():
        stock = nn.LSTM(DIM, 4, batch_first=True, bidirectional=True)
        stock.load_state_dict(tower.recurrence.stock_weights())
        outputs, (last, _) = stock(tower.words(alone.input_ids_BT))
        found = tower.eval()(alone)
    torch.testing.assert_close(found.embedding_BD[0], torch.cat([last[0, 0], last[1, 0]]))
    torch.testing.assert_close(found.hidden[1], outputs)


@each_kind
def test_the_order_of_words_counts(build: Build, words: Model) -> None:
    tower = build(words)
    assert not torch.allclose(encoded(tower, tokens([2, 3, 5])), encoded(tower, tokens([5, 3, 2])))


def test_parameter_counts(words: Model, bare_words: Model) -> None:
    def trained(tower: Tower) -> int:
        return sum(weight.numel() for weight in tower.parameters() if weight.requires_grad)

    assert (SimpleLSTM(words).dim, SimpleLSTM(words, bidirectional=False).dim) == (100, 50)
    assert SimpleCNN(words, filters=7).dim == 7
    vocabulary = 300 * len(WORDS)
    # The paper's SimpleLSTM: 141 k.
    assert trained(SimpleLSTM(bare_words, train_words=True)) - vocabulary == 140_800
    assert trained(SimpleCNN(bare_words, train_words=True)) - vocabulary == 100 * (3 * 300 + 1)
    assert trained(SimpleLSTM(words, units=3)) == 2 * 4 * 3 * (DIM + 3 + 2)


@each_kind
@pytest.mark.parametrize("train_words", [False, True])
def test_every_trainable_parameter_gets_a_gradient(build: Build, train_words: bool, words: Model) -> None:
    tower = build(words, train_words=train_words)
    tower(tokens(*TEXTS)).embedding_BD.square().sum().backward()
    for name, weight in tower.named_parameters():
        reached = weight.grad is not None and bool(weight.grad.any())
        assert reached == weight.requires_grad == (train_words or name != "words.weight")


@each_kind
def test_published_vectors_are_used(build: Build, words: Model) -> None:
    published = load_file(Path(words.path) / "model.safetensors")["words"]
    assert torch.equal(build(words).words.weight, published)


@each_kind
def test_hidden_states_and_normalisation(build: Build, words: Model) -> None:
    batch = tokens(*TEXTS)
    with torch.no_grad():
        plain, unit = build(words).eval()(batch), build(words, normalize=True).eval()(batch)
    assert [tuple(state.shape[:2]) for state in plain.hidden] == [(4, 8)] * 2
    assert plain.hidden[0].shape[2] == DIM and plain.hidden[1].shape[2] == plain.embedding_BD.shape[1]
    assert plain.mask_BT is batch.attention_mask_BT
    torch.testing.assert_close(unit.embedding_BD, nn.functional.normalize(plain.embedding_BD, dim=-1))


@each_kind
def test_the_seed_decides_and_the_global_random_state_is_kept(build: Build, bare_words: Model) -> None:
    before = torch.get_rng_state()
    one, two, other = (build(bare_words, train_words=True, word_dim=5, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    batch = tokens(*TEXTS)
    assert torch.equal(encoded(one, batch), encoded(two, batch))
    assert not torch.allclose(encoded(one, batch), encoded(other, batch))


@each_kind
def test_dropout_is_for_training_only(build: Build, words: Model) -> None:
    tower, batch = build(words, dropout=0.5), tokens(*TEXTS)
    with torch.no_grad():
        assert not torch.equal(tower.train()(batch).embedding_BD, tower(batch).embedding_BD)
    assert torch.equal(encoded(tower, batch), encoded(build(words), batch))


@each_kind
def test_saved_weights_give_the_same_vectors(build: Build, words: Model, tmp_path: Path) -> None:
    first, second = build(words, seed=1), build(words, seed=2)
    save_file(first.state_dict(), tmp_path / "student.safetensors")
    load_weights(second, tmp_path / "student.safetensors", new=())
    assert torch.equal(encoded(first, tokens(*TEXTS)), encoded(second, tokens(*TEXTS)))


@each_kind
def test_the_encoder_takes_a_tower(build: Build, words: Model) -> None:
    tower = build(words)
    encoder = StudentEncoder(tower, tower.tokenizer.path, max_length=8, batch_tokens=8)
    texts = ["The red river", "zebra", "sun", "the big house flows slowly past the red moon"]
    vectors = encoder.encode(texts)
    assert vectors.shape == (4, tower.dim) and vectors.dtype == np.float32
    expected = encoded(tower, tokens([2, 3, 5], [1], [6], [2, 11, 12, 8, 13, 9, 2, 3]))
    np.testing.assert_allclose(vectors, expected.numpy(), atol=1e-6)


@each_kind
def test_the_embedding_stays_float32_under_autocast(build: Build, words: Model) -> None:
    tower, batch = build(words).eval(), tokens(*TEXTS)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        vectors = tower(batch).embedding_BD
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors, encoded(tower, batch), atol=0.03, rtol=0.03)


@each_row(
    ("build", "switches", "message"),
    [
        (SimpleCNN, {"filters": 0}, "filters"),
        (SimpleCNN, {"width": 2}, "odd"),
        (SimpleCNN, {"dropout": 1.0}, "dropout"),
        (SimpleLSTM, {"units": 0}, "units"),
        (SimpleLSTM, {"dropout": -0.1}, "dropout"),
        (SimpleLSTM, {"word_dim": 300}, "published=6"),
    ],
)
def test_values_out_of_range_are_refused(
    build: Build, switches: dict[str, Any], message: str, words: Model
) -> None:
    with pytest.raises(BadInput, match=message):
        build(words, **switches)


def test_folders_without_word_vectors_are_refused(bare_words: Model, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Set train_words"):
        SimpleCNN(bare_words)
    folder = Model(sha256="x", path=str(tmp_path))
    with pytest.raises(BadInput, match=r"tokenizer\.json"):
        SimpleCNN(folder)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BadInput, match="must be a tokenizer"):
        SimpleCNN(folder)
    for tensors in ({"a": torch.ones(3, 2)}, {"a": torch.ones(14, 2), "b": torch.ones(14, 2)}):
        (tmp_path / "model.safetensors").unlink(missing_ok=True)
        mismatched = write_words(tmp_path, None)
        save_file(tensors, tmp_path / "model.safetensors")
        with pytest.raises(BadInput, match="one tensor"):
            SimpleCNN(mismatched)
