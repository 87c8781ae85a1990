"""Grouping changes only the padding: encodings and gradient stay the same."""

import itertools
from pathlib import Path

import pytest
import torch

from stillhouse.core.types import Encoding, Tokens
from stillhouse.plan.data import Model
from stillhouse.students.transformer import TransformerStudent
from stillhouse.training import grouped as grouping
from stillhouse.training.grouped import encode_grouped, group_sizes


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


@pytest.mark.parametrize("sizes", [[1] * 21, [4, 4, 8, 5], [21]])
def test_encodings_and_gradient_are_those_of_the_whole_batch(
    tiny_model: Path, tokens: Tokens, sizes: list[int]
) -> None:
    whole, grouped = student(tiny_model), student(tiny_model)
    a, b = whole(tokens), encode_grouped(grouped, tokens, sizes)
    torch.testing.assert_close(a.embedding_BD, b.embedding_BD, atol=1e-6, rtol=1e-5)
    assert len(a.hidden) == len(b.hidden)
    loss_of(a).backward()  # type: ignore[no-untyped-call]
    loss_of(b).backward()  # type: ignore[no-untyped-call]
    for one, other in zip(whole.parameters(), grouped.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4)


def test_groups_are_padded_to_their_own_longest(tokens: Tokens) -> None:
    seen = []

    def spy(part: Tokens) -> Encoding:
        seen.append(part.input_ids_BT.shape)
        assert int(part.attention_mask_BT.sum(dim=1).max()) == part.input_ids_BT.shape[1]
        return Encoding(part.input_ids_BT[:, :1].float())

    encoding = encode_grouped(spy, tokens, [5, 9, 7])
    assert [rows for rows, _ in seen] == [5, 9, 7]
    assert torch.equal(encoding.embedding_BD, tokens.input_ids_BT[:, :1].float())


def test_a_batch_is_split_as_suits_the_device(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    def groups() -> list[int]:
        seen: list[int] = []

        def spy(part: Tokens) -> Encoding:
            seen.append(len(part.input_ids_BT))
            return Encoding(part.input_ids_BT[:, :1].float())

        encode_grouped(spy, tokens)
        return seen

    monkeypatch.setattr(grouping, "GROUP_COST", {"cpu": 20})
    lengths = tokens.attention_mask_BT.sum(dim=1).tolist()
    assert groups() == group_sizes(lengths, 20) and 1 < len(groups()) < 21
    monkeypatch.setattr(grouping, "GROUP_COST", {})
    assert groups() == [21]


def cost_of(lengths: list[int], sizes: list[int], cost: int) -> int:
    """What a split costs, counted text by text."""
    lengths, total = sorted(lengths), 0
    for size in sizes:
        part, lengths = lengths[:size], lengths[size:]
        total += size * max(part) + cost
    assert not lengths
    return total


@pytest.mark.parametrize("cost", [1, 7, 30, 1000])
def test_no_other_split_costs_less(cost: int) -> None:
    lengths = [9, 2, 3, 3, 20, 8, 2, 12, 3]
    sizes = group_sizes(lengths, cost)
    cuts = itertools.product([False, True], repeat=len(lengths) - 1)
    every = (
        [len(list(part)) for _, part in itertools.groupby(itertools.accumulate([0, *cut]))] for cut in cuts
    )
    assert cost_of(lengths, sizes, cost) == min(cost_of(lengths, other, cost) for other in every)


def test_texts_of_one_length_are_one_group() -> None:
    assert group_sizes([5] * 40, 1) == [40] and group_sizes([7], 300) == [1]
