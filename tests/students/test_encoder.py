from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from stillhouse.core.errors import BadInput
from stillhouse.core.types import Encoding, Tokens
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.transformer import TransformerStudent
from stillhouse.values.data import Model

MakeModel = Callable[[str], Model]
TEXTS = [
    "the river",
    "a model of the river, long enough to be cut",
    "",
    "the the the",
    "0 1 2 3 4 5 6 7",
    "z",
    "the model",
] * 3


@pytest.fixture
def encoder(make_model: MakeModel) -> StudentEncoder:
    student = TransformerStudent(make_model("bert"), layers=(0, 2))
    return StudentEncoder(student, student.tokenizer.path, max_length=12)


def test_rows_are_returned_in_order_and_do_not_depend_on_their_batch(encoder: StudentEncoder) -> None:
    together = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    assert together.dtype == np.float32 and together.shape == (len(TEXTS), encoder.dim)
    np.testing.assert_allclose(together, alone, rtol=0, atol=2e-6)
    encoder.batch_tokens = 20
    np.testing.assert_allclose(encoder.encode(TEXTS), alone, rtol=0, atol=2e-6)


def test_vectors_are_the_students_own(encoder: StudentEncoder) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(encoder.student.tokenizer.path)
    tokens = tokenizer(TEXTS[1], truncation=True, max_length=12, return_tensors="pt")
    assert tokens["input_ids"].shape == (1, 12)
    assert isinstance(encoder.student, TransformerStudent)
    with torch.no_grad():
        expected = encoder.student.eval()(Tokens(tokens["input_ids"], tokens["attention_mask"]))
    np.testing.assert_allclose(encoder.encode(TEXTS[1:2]), expected.embedding_BD.numpy(), atol=1e-6)


def test_no_texts_give_no_vectors(encoder: StudentEncoder) -> None:
    assert encoder.encode([]).shape == (0, 32)


def test_modes_are_restored_and_no_gradient_is_kept(encoder: StudentEncoder) -> None:
    student = encoder.student
    assert isinstance(student, TransformerStudent)
    student.train()
    student.backbone.embeddings.eval()
    np.testing.assert_array_equal(encoder.encode(TEXTS), encoder.encode(TEXTS))  # no dropout
    assert student.training and student.backbone.encoder.training
    assert not student.backbone.embeddings.training
    assert all(parameter.grad is None and parameter.requires_grad for parameter in student.parameters())


def test_modes_are_restored_after_an_error(encoder: StudentEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(nn.Module):
        dim = 3

        def forward(self, tokens: Tokens) -> Encoding:
            raise RuntimeError("broken")

    broken = Broken().train()
    monkeypatch.setattr(encoder, "student", broken)
    with pytest.raises(RuntimeError, match="broken"):
        encoder.encode(TEXTS)
    assert broken.training


def test_bfloat16_is_close_and_float32_on_return(make_model: MakeModel) -> None:
    student = TransformerStudent(make_model("roberta"), layers=(0, 1))
    exact = StudentEncoder(student, student.tokenizer.path, 12).encode(TEXTS)
    rounded = StudentEncoder(student, student.tokenizer.path, 12, autocast="bfloat16").encode(TEXTS)
    assert rounded.dtype == np.float32
    assert not np.array_equal(rounded, exact)
    assert (rounded * exact).sum(axis=1).min() > 0.99


def test_weights_changed_between_two_calls_are_used(encoder: StudentEncoder) -> None:
    before = encoder.encode(TEXTS)
    assert isinstance(encoder.student, TransformerStudent)
    with torch.no_grad():
        encoder.student.backbone.embeddings.word_embeddings.weight.mul_(1.5)
    assert not np.allclose(encoder.encode(TEXTS), before)


@pytest.mark.parametrize(
    ("wrong", "message"), [({"autocast": "float16"}, "autocast"), ({"batch_tokens": 0}, "batch_tokens")]
)
def test_wrong_values_are_refused(wrong: dict[str, object], message: str, encoder: StudentEncoder) -> None:
    with pytest.raises(BadInput, match=message):
        StudentEncoder(encoder.student, ".", 12, **wrong)  # type: ignore[arg-type]


def test_a_folder_without_a_tokenizer_is_refused(encoder: StudentEncoder, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="tokenizer"):
        StudentEncoder(encoder.student, tmp_path, 12)
