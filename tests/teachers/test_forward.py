import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from stillhouse.core.errors import BadInput
from stillhouse.core.tokenizing import FastTokenizer, pad
from stillhouse.core.types import Tokens
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers.forward import Forward, cast_products
from stillhouse.teachers.weights import resolve_model

TEXTS = ["a cat", "the river runs by the old house", "red", "two dogs and one cat sat on the mat", "a moon"]


@pytest.fixture
def student(tiny_model: Path) -> TransformerStudent:
    return TransformerStudent(resolve_model(str(tiny_model)), projection=8).eval()


def test_order_and_batches_change_nothing(student: TransformerStudent, tiny_model: Path) -> None:
    tokenizer = FastTokenizer(tiny_model, 16)
    ids, offsets = tokenizer(TEXTS)
    seen: list[int] = []

    def teacher(tokens: Tokens) -> torch.Tensor:
        seen.append(tokens.input_ids_BT.shape[1])
        embedding_BD: torch.Tensor = student(tokens).embedding_BD
        return embedding_BD

    vectors = Forward(teacher, tokenizer.pad_id, batch_tokens=24)(ids, offsets)
    alone = [
        student(pad(ids, offsets[row : row + 1], np.diff(offsets)[row : row + 1], 0)).embedding_BD[0].detach()
        for row in range(len(TEXTS))
    ]
    np.testing.assert_allclose(vectors, torch.stack(alone).numpy(), atol=1e-6)
    assert len(seen) > 1 and seen == sorted(seen, reverse=True)


def test_batches_shrink_to_what_the_memory_of_a_gpu_holds(
    student: TransformerStudent, tiny_model: Path
) -> None:
    tokenizer = FastTokenizer(tiny_model, 16)
    ids, offsets = tokenizer(TEXTS)
    longest = int(np.diff(offsets).max())

    def teacher(tokens: Tokens) -> torch.Tensor:
        if tokens.input_ids_BT.numel() > room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        embedding_BD: torch.Tensor = student(tokens).embedding_BD
        return embedding_BD

    room = 10**6
    whole = Forward(teacher, 0, batch_tokens=1024)
    expected, room = whole(ids, offsets), longest + 3
    np.testing.assert_allclose(whole(ids, offsets), expected, atol=1e-6)
    assert longest <= whole.batch_tokens < 2 * room
    room = longest - 1
    with pytest.raises(BadInput, match="must hold the teacher and one text"):
        whole(ids, offsets)


def test_the_event_of_a_copy_is_of_the_gpu_that_copies(
    tiny_model: Path, student: TransformerStudent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event of another GPU, which is idle, would be over before the vectors are there."""
    current, noted = ["cuda:0"], list[str]()

    class Event:
        def record(self) -> None:
            noted.append(current[-1])

        def synchronize(self) -> None:
            """Nothing is copied here."""

    @contextlib.contextmanager
    def device(name: str) -> Iterator[None]:
        current.append(name)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(Tokens, "to", lambda tokens, _: tokens)
    tokenizer = FastTokenizer(tiny_model, 16)
    Forward(lambda tokens: student(tokens).embedding_BD, 0, 24, device="cuda:1")(*tokenizer(TEXTS))
    assert noted and set(noted) == {"cuda:1"} and current == ["cuda:0"]


def test_casting_weights_once_equals_autocast_bit_for_bit(
    student: TransformerStudent, tiny_model: Path
) -> None:
    tokenizer = FastTokenizer(tiny_model, 16)
    forward = Forward(
        lambda tokens: student(tokens).embedding_BD, tokenizer.pad_id, batch_tokens=64, compute="bfloat16"
    )
    before = forward(*tokenizer(TEXTS))
    cast_products(student, "float32")
    assert {p.dtype for p in student.parameters()} == {torch.float32}
    cast_products(student, "bfloat16")
    assert torch.bfloat16 in {p.dtype for p in student.parameters()}
    np.testing.assert_array_equal(forward(*tokenizer(TEXTS)), before)
