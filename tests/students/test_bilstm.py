"""The BiLSTM student compared with torch's bidirectional LSTM on packed texts, and its export."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rows import each_row
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import fingerprint, spec
from stillhouse.core.types import Tokens
from stillhouse.corpora.word_vector_files import write_vocabulary
from stillhouse.losses.heads import ClassificationHead
from stillhouse.students.bilstm import BiLSTMStudent
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.sentence_transformers import check_parity, export_student
from stillhouse.students.sizes import sizes
from stillhouse.students.transformer import load_weights
from stillhouse.values.data import Model

POOLINGS = ["last", "mean", "max"]
TEXTS = ["The river.", "it's a model of the river, and far too long to be read whole", "zebra", "THE MODEL"]
MakeWords = Callable[[int], Model]


@pytest.fixture(scope="session")
def make_words(tmp_path_factory: pytest.TempPathFactory) -> MakeWords:
    def make(dim: int) -> Model:
        folder = tmp_path_factory.mktemp("words")
        write_vocabulary("the a of and is it 's . , river model text read whole".split(), folder, dim=dim)
        return Model(sha256=f"words-{dim}", name="words", path=str(folder))

    return make


@pytest.fixture(scope="session")
def words(make_words: MakeWords) -> Model:
    return make_words(6)


def tokens(*rows: list[int], width: int = 0, padding: int = 0) -> Tokens:
    width = max(width, *map(len, rows), 1)
    ids_BT = torch.tensor([row + [padding] * (width - len(row)) for row in rows])
    return Tokens(ids_BT, torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows]))


TOKENS = tokens([3, 7, 8, 9, 4], [5], [6, 10, 11, 12, 13, 14, 3], [8, 4])


def encoded(student: BiLSTMStudent, batch: Tokens = TOKENS) -> Tensor:
    with torch.no_grad():
        vectors_BD: Tensor = student.eval()(batch).embedding_BD
    return vectors_BD


def stock(student: BiLSTMStudent, layers: int) -> nn.LSTM:
    width, hidden = student.words.embedding_dim, student.hidden_size // 2
    lstm = nn.LSTM(width, hidden, layers, batch_first=True, bidirectional=True)
    lstm.load_state_dict(student.lstm.stock_weights())
    return lstm


@each_row("layers", [1, 2])
@each_row("pooling", POOLINGS)
def test_it_is_a_bidirectional_lstm_over_packed_texts(pooling: str, layers: int, words: Model) -> None:
    student = BiLSTMStudent(words, hidden=5, dim=4, pooling=pooling, layers=layers).eval()
    lengths_B = TOKENS.attention_mask_BT.sum(dim=1)
    with torch.no_grad():
        found = student(TOKENS)
        packed = pack_padded_sequence(
            student.words(TOKENS.input_ids_BT), lengths_B, batch_first=True, enforce_sorted=False
        )
        states, (last, _) = stock(student, layers)(packed)
        states_BTH, _ = pad_packed_sequence(states, batch_first=True)
        for row, length in enumerate(lengths_B):
            one_TH = states_BTH[row, :length]
            pooled = {
                "mean": one_TH.mean(dim=0),
                "max": one_TH.amax(dim=0),
                "last": torch.cat([last[-2, row], last[-1, row]]),
            }
            expected = torch.tanh(student.projection.weight @ pooled[pooling])
            torch.testing.assert_close(found.embedding_BD[row], expected, rtol=1e-5, atol=1e-6)
    assert len(found.hidden) == layers + 1
    assert [state.shape[2] for state in found.hidden] == [6, *[10] * layers]
    torch.testing.assert_close(found.hidden[-1], states_BTH, rtol=1e-5, atol=1e-6)
    assert found.mask_BT is TOKENS.attention_mask_BT


@each_row("pooling", POOLINGS)
def test_padding_changes_nothing(pooling: str, words: Model) -> None:
    student = BiLSTMStudent(words, hidden=5, dim=4, pooling=pooling, layers=2)
    alone = encoded(student, tokens([8, 4]))
    torch.testing.assert_close(encoded(student)[3:], alone, rtol=0, atol=1e-6)
    torch.testing.assert_close(
        encoded(student, tokens([8, 4], width=30, padding=9)), alone, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_text_without_words_has_a_zero_vector(pooling: str, words: Model) -> None:
    student = BiLSTMStudent(words, hidden=5, dim=4, pooling=pooling)
    found = encoded(student, tokens([], [8, 4]))
    assert torch.equal(found[0], torch.zeros(4)) and found[1].abs().min() > 0
    assert torch.equal(encoded(student, tokens([])), torch.zeros(1, 4))


def test_precomputed_word_embeddings_change_nothing(words: Model) -> None:
    student = BiLSTMStudent(words, hidden=5, dim=4).eval()
    with torch.no_grad():
        words_BTH = student.embed_words(TOKENS.input_ids_BT)
        garbage_BTH = words_BTH + 9.0 * (1 - TOKENS.attention_mask_BT).unsqueeze(-1)
        given = student(TOKENS, garbage_BTH).embedding_BD
    torch.testing.assert_close(given, encoded(student))


def test_parameter_counts_of_the_paper(make_words: MakeWords) -> None:
    """4.12 M without word vectors (two bias vectors per gate), and 4.91 M with the pair head."""
    student = BiLSTMStudent(make_words(300))
    encoder_parameters = sizes(student)["parameters_encoder"]
    assert encoder_parameters == 4_120_576 == 2 * 4 * 512 * (300 + 512 + 2) + 1024 * 768
    head = ClassificationHead(student_dim=768, classes=2, pair=True)
    assert round((encoder_parameters + sizes(head)["parameters"]) / 1e6, 2) == 4.91
    assert student.projection.bias is None and student.dim == 768 and student.hidden_size == 1024


@each_row("freeze", [False, True])
@each_row("pooling", POOLINGS)
def test_every_trainable_parameter_gets_a_gradient(pooling: str, freeze: bool, words: Model) -> None:
    student = BiLSTMStudent(words, hidden=5, dim=4, pooling=pooling, layers=2, freeze_words=freeze)
    student(TOKENS).embedding_BD.square().mean().backward()
    without = [name for name, weight in student.named_parameters() if weight.grad is None]
    assert without == (["words.weight"] if freeze else [])
    assert all(w.grad.abs().sum() > 0 for w in student.parameters() if w.grad is not None)
    if not freeze:
        assert student.words.weight.grad is not None and student.words.weight.grad[0].abs().sum() == 0


def test_padding_gets_no_gradient(words: Model) -> None:
    student = BiLSTMStudent(words, hidden=5, dim=4, pooling="max")
    batch = tokens([8, 4], [3, 5, 6], padding=9)
    student(batch).embedding_BD.square().mean().backward()
    assert student.words.weight.grad is not None
    assert student.words.weight.grad[9].abs().sum() == 0 < student.words.weight.grad[8].abs().sum()


def test_weights_depend_on_the_seed_alone(words: Model) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two, other = (BiLSTMStudent(words, hidden=5, dim=4, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(encoded(one), encoded(two)) and not torch.allclose(encoded(one), encoded(other))
    assert all(part.training for part in BiLSTMStudent(words, hidden=5, dim=4).modules())


def test_dropout_acts_in_training_only(words: Model) -> None:
    student = BiLSTMStudent(words, hidden=5, dim=4, dropout=0.5)
    with torch.no_grad():
        assert not torch.equal(student(TOKENS).embedding_BD, student(TOKENS).embedding_BD)
    assert torch.equal(encoded(student), encoded(BiLSTMStudent(words, hidden=5, dim=4)))


def test_autocast_leaves_it_in_float32(words: Model) -> None:
    student = BiLSTMStudent(words, hidden=5, dim=4).eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        vectors_BD = student(TOKENS).embedding_BD
    assert torch.equal(vectors_BD, encoded(student)) and vectors_BD.dtype == torch.float32


def test_it_resumes_from_earlier_weights(words: Model, tmp_path: Path) -> None:
    first, second = (BiLSTMStudent(words, hidden=5, dim=4, seed=seed) for seed in (1, 2))
    save_file(first.state_dict(), tmp_path / "student.safetensors")
    load_weights(second, tmp_path / "student.safetensors")
    assert torch.equal(encoded(first), encoded(second))


@each_row("layers", [1, 2])
@each_row("pooling", ["mean", "max"])
def test_the_stock_library_gives_the_same_vectors(
    pooling: str, layers: int, words: Model, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    student = BiLSTMStudent(words, hidden=5, dim=4, pooling=pooling, layers=layers, dropout=0.1)
    encoder = StudentEncoder(student, student.tokenizer.path, 8)
    export_student(student, student.tokenizer.path, 8, tmp_path / "export")
    assert check_parity(encoder, tmp_path / "export", TEXTS, minimum=0.999999) <= 1 + 1e-6
    loaded = SentenceTransformer(str(tmp_path / "export"), device="cpu")
    np.testing.assert_allclose(loaded.encode(TEXTS), encoder.encode(TEXTS), rtol=1e-4, atol=1e-6)
    assert [type(module).__name__ for module in loaded] == ["WordEmbeddings", "LSTM", "Pooling", "Dense"]
    assert not [file for file in (tmp_path / "export").rglob("*") if file.suffix in (".bin", ".pt")]


def test_pooling_last_cannot_be_exported(words: Model, tmp_path: Path) -> None:
    student = BiLSTMStudent(words, hidden=5, dim=4, pooling="last")
    with pytest.raises(BadInput, match=r"pooling in \(mean, max\)"):
        export_student(student, student.tokenizer.path, 8, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@each_row("values", [{"pooling": "cls"}, {"hidden": 0}, {"dim": 0}, {"layers": 0}, {"dropout": 1}])
def test_values_out_of_range_are_refused(values: dict[str, object], words: Model) -> None:
    with pytest.raises(BadInput, match=next(iter(values))):
        BiLSTMStudent(words, **values)  # type: ignore[arg-type]


def test_a_folder_without_word_vectors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="word vectors"):
        BiLSTMStudent(Model(sha256="x", path=str(tmp_path)))
    save_file({"other": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match="other"):
        BiLSTMStudent(Model(sha256="x", path=str(tmp_path)))


def test_grouping_by_length_changes_nothing(words: Model) -> None:
    from stillhouse.training.grouped import encode_grouped

    student = BiLSTMStudent(words, hidden=5, dim=4, layers=2).eval()
    with torch.no_grad():
        whole, grouped = student(TOKENS), encode_grouped(student, TOKENS, size=2)
    torch.testing.assert_close(grouped.embedding_BD, whole.embedding_BD, rtol=0, atol=1e-6)
    for one, other in zip(grouped.hidden, whole.hidden, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_its_fingerprint_covers_its_arguments(words: Model) -> None:
    one = spec(BiLSTMStudent, words=words, hidden=5, dim=4)
    assert fingerprint(one) == fingerprint(one.replace(words=Model(sha256=words.sha256, path="elsewhere")))
    assert fingerprint(one) != fingerprint(one.replace(pooling="mean"))
    assert one.build().dim == 4
