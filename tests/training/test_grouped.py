"""Grouping changes only the padding: encodings and gradient stay the same."""

from pathlib import Path
from typing import Any

import pytest
import torch

from stillhouse.core.types import Encoding, Tokens
from stillhouse.students.cpu.attention import prefer_quick_attention
from stillhouse.students.cpu.packing import Packing
from stillhouse.students.pooling import mean_of
from stillhouse.students.transformer import TransformerStudent
from stillhouse.training.grouped import encode_grouped
from stillhouse.values.data import Model


@pytest.fixture
def tokens() -> Tokens:
    torch.manual_seed(0)
    lengths = torch.randint(3, 20, (21,))
    mask = (torch.arange(20) < lengths[:, None]).long()
    return Tokens(torch.randint(5, 100, (21, 20)) * mask, mask)


def student(path: Path) -> TransformerStudent:
    return TransformerStudent(Model("tiny", path=str(path)), dropout=0.0)


def loss_of(encoding: Encoding) -> torch.Tensor:
    assert encoding.mask_BT is not None
    states = [(layer * encoding.mask_BT.unsqueeze(-1)).sum(dim=1) for layer in encoding.hidden]
    weights = torch.linspace(0, 1, len(encoding.embedding_BD)).unsqueeze(-1)
    return (encoding.embedding_BD * weights).sum() + sum((state * weights).sin().mean() for state in states)


@pytest.mark.parametrize("size", [1, 4, 21])
def test_encodings_and_gradient_are_those_of_the_whole_batch(
    tiny_model: Path, tokens: Tokens, size: int
) -> None:
    whole, grouped = student(tiny_model), student(tiny_model)
    a, b = whole(tokens), encode_grouped(grouped, tokens, size)
    torch.testing.assert_close(a.embedding_BD, b.embedding_BD, atol=1e-6, rtol=1e-5)
    assert len(a.hidden) == len(b.hidden)
    loss_of(a).backward()  # type: ignore[no-untyped-call]
    loss_of(b).backward()  # type: ignore[no-untyped-call]
    for one, other in zip(whole.parameters(), grouped.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("size", [21, 5])
def test_a_row_of_all_tokens_gives_the_same(
    tiny_model: Path, tokens: Tokens, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, row = student(tiny_model), student(tiny_model)
    prefer_quick_attention(row, "cpu")
    rows: list[int] = []
    run = row.run_packed

    def noted(packing: Packing) -> Any:
        rows.append(packing.real)
        return run(packing)

    monkeypatch.setattr(row, "run_packed", noted)
    a, b = whole(tokens), encode_grouped(row, tokens, size)
    assert rows == [int(tokens.attention_mask_BT.sum())]
    torch.testing.assert_close(a.embedding_BD, b.embedding_BD, atol=1e-6, rtol=1e-5)
    assert a.mask_BT is not None
    for layer, state in enumerate(a.hidden):
        outside = a.mask_BT[..., None]
        torch.testing.assert_close(b.hidden[layer] * outside, state * outside, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(mean_of(b, layer), mean_of(a, layer), atol=1e-5, rtol=1e-4)
    loss_of(a).backward()  # type: ignore[no-untyped-call]
    loss_of(b).backward()  # type: ignore[no-untyped-call]
    for one, other in zip(whole.parameters(), row.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        encode_grouped(row, tokens, size)
    assert len(rows) == 1, "what needs no gradient is measured as elsewhere"
    tokens.attention_mask_BT[3] = 0
    encode_grouped(row, tokens, size)
    assert len(rows) == 1, "a text without tokens has no place in a row"


def test_states_that_diagnostics_have_read_still_have_gradients(tiny_model: Path, tokens: Tokens) -> None:
    row = student(tiny_model)
    prefer_quick_attention(row, "cpu")
    encoding = encode_grouped(row, tokens, 5)
    with torch.no_grad():
        assert not mean_of(encoding, 0).requires_grad
    mean_of(encoding, 0).sum().backward()  # type: ignore[no-untyped-call]
    words = row.backbone.get_input_embeddings().weight
    assert words.grad is not None and words.grad.abs().sum() > 0


def test_groups_are_padded_to_their_own_longest(tokens: Tokens) -> None:
    seen = []

    def spy(part: Tokens) -> Encoding:
        seen.append(part.input_ids_BT.shape)
        assert int(part.attention_mask_BT.sum(dim=1).max()) == part.input_ids_BT.shape[1]
        return Encoding(part.input_ids_BT[:, :1].float())

    encoding = encode_grouped(spy, tokens, 5)
    assert [rows for rows, _ in seen] == [5, 5, 5, 5, 1]
    assert torch.equal(encoding.embedding_BD, tokens.input_ids_BT[:, :1].float())
