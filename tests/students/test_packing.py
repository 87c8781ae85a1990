"""A batch as one row: the states and gradients of the padded batch, whatever stands beside a text."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rows import each_row
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    CamembertConfig,
    CamembertModel,
    ElectraConfig,
    ElectraModel,
    MPNetConfig,
    MPNetModel,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from stillhouse.core.errors import BadInput
from stillhouse.core.types import Tokens
from stillhouse.students.backbone import max_tokens, packs, run_backbone, run_packed
from stillhouse.students.cpu.attention import prefer_quick_attention
from stillhouse.students.cpu.packing import Packing, current_packing, pack

SHAPE: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
}
LENGTHS = [3, 17, 5, 9, 1, 6, 17]
CPU = torch.device("cpu")


def bert(**changes: Any) -> Any:
    return BertModel(BertConfig(**{"vocab_size": 50, **SHAPE, **changes}), add_pooling_layer=False)


def electra() -> Any:
    return ElectraModel(ElectraConfig(vocab_size=50, embedding_size=8, **SHAPE))


def roberta() -> Any:
    return RobertaModel(RobertaConfig(vocab_size=50, **SHAPE), add_pooling_layer=False)


def xlm_roberta() -> Any:
    return XLMRobertaModel(XLMRobertaConfig(vocab_size=50, **SHAPE), add_pooling_layer=False)


def camembert() -> Any:
    return CamembertModel(CamembertConfig(vocab_size=50, **SHAPE), add_pooling_layer=False)


def mpnet() -> Any:
    return MPNetModel(MPNetConfig(vocab_size=50, **SHAPE), add_pooling_layer=False)


def made(make: Callable[[], Any], seed: int = 0) -> Any:
    """A model in float64 without dropout, with this package's attention."""
    torch.manual_seed(seed)
    model = make().double().eval()
    prefer_quick_attention(model, "cpu")
    return model


def batch(lengths: list[int] = LENGTHS, seed: int = 1) -> Tokens:
    random = torch.Generator().manual_seed(seed)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    # 1 is the padding id of RoBERTa and its relatives, and no token.
    ids = torch.randint(5, 50, mask.shape, generator=random)
    return Tokens(torch.where(mask == 1, ids, 1), mask)


def packing_of(tokens: Tokens, size: int) -> Packing:
    return pack(tokens, torch.argsort(tokens.attention_mask_BT.sum(dim=1), stable=True), size)


def unpacked(states_NH: Tensor, packing: Packing, tokens: Tokens) -> Tensor:
    """The states of a row as (B, T, H), zeros for padding."""
    width = tokens.input_ids_BT.shape[1]
    found = states_NH.new_zeros(*tokens.input_ids_BT.shape, states_NH.shape[1])
    for group, own in zip(packing.groups, packing.split(states_NH), strict=True):
        states = (group.padded(own) * group.tokens.attention_mask_BT[..., None])[:, :width]
        found[group.texts_G] = nn.functional.pad(states, (0, 0, 0, width - states.shape[1]))
    return found


def test_a_row_holds_the_tokens_of_each_text_in_turn() -> None:
    tokens = batch([2, 4, 3])
    packing = packing_of(tokens, 2)
    ids = [tokens.input_ids_BT[text, :length].tolist() for text, length in ((0, 2), (2, 3), (1, 4))]
    assert packing.ids_N[:9].tolist() == [*ids[0], *ids[1], *ids[2]] and packing.real == 9
    assert packing.positions_N[:9].tolist() == [0, 1, 0, 1, 2, 0, 1, 2, 3]
    assert len(packing.ids_N) == len(packing.positions_N) == 256 and not packing.ids_N[9:].any()
    first, second = packing.groups
    assert first.texts_G.tolist() == [0, 2] and second.texts_G.tolist() == [1]
    assert first.tokens.input_ids_BT.shape == (2, 16) and second.tokens.input_ids_BT.shape == (1, 16)
    row = torch.arange(256.0)[:, None]
    assert [own.shape[0] for own in packing.split(row)] == [5, 4]
    padded = first.padded(packing.split(row)[0])
    assert padded[0, :2, 0].tolist() == [0, 1] and padded[1, :3, 0].tolist() == [2, 3, 4]
    assert torch.equal(first.unpadded(padded), row[:5])


@each_row("make", [bert, electra, roberta, xlm_roberta, camembert])
@each_row("size", [7, 4, 1])
def test_states_and_gradients_are_those_of_the_padded_batch(make: Callable[[], Any], size: int) -> None:
    one, row, tokens = made(make), made(make), batch()
    assert packs(row, CPU)
    packing = packing_of(tokens, size)
    last, hidden = run_backbone(one, max_tokens(one), tokens, None)
    states = run_packed(row, max_tokens(row), packing)
    assert len(states) == len(hidden) == 3 and current_packing() is None
    mask = tokens.attention_mask_BT[..., None]
    weights = torch.linspace(-1, 1, hidden[0].numel()).view_as(hidden[0])
    for ours, theirs in zip(states, hidden, strict=True):
        torch.testing.assert_close(unpacked(ours, packing, tokens), theirs * mask)
    (last * mask * weights + hidden[1] * mask).sin().sum().backward()  # type: ignore[no-untyped-call]
    (
        unpacked(states[-1], packing, tokens) * weights + unpacked(states[1], packing, tokens)
    ).sin().sum().backward()  # type: ignore[no-untyped-call]
    for ours, theirs in zip(row.parameters(), one.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_what_stands_beside_a_text_does_not_matter() -> None:
    model, tokens = made(bert), batch()
    other = Tokens(tokens.input_ids_BT.clone(), tokens.attention_mask_BT)
    other.input_ids_BT[1:] = batch(seed=2).input_ids_BT[1:]
    found = []
    for each in (tokens, other):
        packing = packing_of(each, 4)
        found.append(unpacked(run_packed(model, 512, packing)[-1], packing, each))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0, atol=1e-12)
    assert (found[0][1] - found[1][1]).abs().max() > 0.1


def test_half_precision_stays_close() -> None:
    exact, half, tokens = made(bert), made(bert).float(), batch()
    packing = packing_of(tokens, 4)
    expected = unpacked(run_packed(exact, 512, packing)[-1], packing, tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = run_packed(half, 512, packing)
    torch.testing.assert_close(unpacked(states[-1], packing, tokens).double(), expected, rtol=0.0, atol=0.05)


def test_which_models_and_devices_pack() -> None:
    plain = bert()
    assert not packs(plain, CPU), "not with another attention"
    assert packs(made(bert), CPU) and not packs(made(bert), torch.device("meta"))
    assert not packs(made(mpnet), CPU), "its attention has a bias by position"
    assert not packs(made(lambda: bert(is_decoder=True)), CPU)


def test_a_text_that_is_too_long_is_refused() -> None:
    model = made(lambda: bert(max_position_embeddings=16))
    with pytest.raises(BadInput, match="tokens <= positions of the model"):
        run_packed(model, max_tokens(model), packing_of(batch(), 7))
