"""Packed texts: the encodings, the hidden states and the gradient of a padded pass."""

from pathlib import Path

import pytest
import torch

from stillhouse.errors import BadInput
from stillhouse.plan import Model
from stillhouse.students.packed import Layout, can_pack
from stillhouse.students.transformer import TransformerStudent
from stillhouse.training.grouped import encode_grouped
from stillhouse.types import Encoding, Tokens


@pytest.fixture
def tokens() -> Tokens:
    torch.manual_seed(0)
    lengths = torch.tensor([3, 17, 4, 3, 9, 4, 20, 3])
    mask = (torch.arange(20) < lengths[:, None]).long()
    return Tokens(torch.randint(5, 100, mask.shape) * mask, mask)


def student(path: Path, **changes: object) -> TransformerStudent:
    return TransformerStudent(Model("tiny", path=str(path)), dropout=0.0, **changes)  # type: ignore[arg-type]


def loss_of(encoding: Encoding) -> torch.Tensor:
    assert encoding.mask_BT is not None
    states = [(layer * encoding.mask_BT.unsqueeze(-1)).sum(dim=1) for layer in encoding.hidden]
    weights = torch.linspace(0, 1, len(encoding.embedding_BD)).unsqueeze(-1)
    return (encoding.embedding_BD * weights).sum() + sum((state * weights).sin().mean() for state in states)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_packed_equals_padded(tiny_model: Path, tokens: Tokens, pooling: str) -> None:
    padded, packed = student(tiny_model, pooling=pooling), student(tiny_model, pooling=pooling)
    a, b = padded(tokens), packed.forward_packed(tokens)
    torch.testing.assert_close(a.embedding_BD, b.embedding_BD, atol=1e-6, rtol=1e-5)
    assert len(a.hidden) == len(b.hidden)
    real = tokens.attention_mask_BT.bool()
    for one, other in zip(a.hidden, b.hidden, strict=True):
        torch.testing.assert_close(one[real], other[real], atol=1e-5, rtol=1e-5)
        assert not other[~real].any()
    loss_of(a).backward()  # type: ignore[no-untyped-call]
    loss_of(b).backward()  # type: ignore[no-untyped-call]
    for one, other in zip(padded.parameters(), packed.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4)


def test_the_training_pass_packs_and_leaves_the_attention_as_it_was(tiny_model: Path, tokens: Tokens) -> None:
    model = student(tiny_model)
    before = model.backbone.config._attn_implementation
    assert model.packs and can_pack(model.backbone)
    torch.testing.assert_close(encode_grouped(model, tokens).embedding_BD, model(tokens).embedding_BD)
    assert model.backbone.config._attn_implementation == before
    model.backbone.config.model_type = "other"
    assert not model.packs


def test_dropout_is_applied_while_training_only(tiny_model: Path, tokens: Tokens) -> None:
    model = TransformerStudent(Model("tiny", path=str(tiny_model)), dropout=0.5)
    one, other = (model.forward_packed(tokens).embedding_BD for _ in range(2))
    assert not torch.allclose(one, other)
    model.eval()
    one, other = (model.forward_packed(tokens).embedding_BD for _ in range(2))
    assert torch.equal(one, other)


def test_a_layout_knows_every_token(tokens: Tokens) -> None:
    layout = Layout(tokens.attention_mask_BT)
    assert layout.runs == [(3, 3), (2, 4), (1, 9), (1, 17), (1, 20)]
    packed = tokens.input_ids_BT.flatten()[layout.places_N]
    assert torch.equal(layout.padded(packed[:, None])[..., 0], tokens.input_ids_BT)
    assert layout.positions_N[:9].tolist() == [0, 1, 2] * 3


def test_too_long_a_text_is_refused(tiny_model: Path) -> None:
    model = student(tiny_model)
    ids = torch.ones(2, model.max_tokens + 1, dtype=torch.long)
    with pytest.raises(BadInput, match="tokens <= positions"):
        model.forward_packed(Tokens(ids, ids))
