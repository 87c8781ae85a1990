"""CPU attention matches the fused kernel, with and without gradients, on short and long texts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from rows import each_row
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from stillhouse.students.cpu import attention
from stillhouse.students.cpu.attention import NAME, SHORT, prefer_quick_attention


def model(**changes: Any) -> Any:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    settings: Any = {"vocab_size": 50, "attn_implementation": "sdpa", **shape, **changes}
    bert: nn.Module = BertModel(BertConfig(**settings)).double()
    return bert.eval()


def hidden_states(bert: Any, length: int) -> Tensor:
    ids = torch.randint(1, 50, (3, length), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, length // 2 :] = 0
    return torch.as_tensor(bert(input_ids=ids, attention_mask=mask).last_hidden_state * mask[..., None])


@each_row("length", [4, SHORT, SHORT + 1, 3 * SHORT])
def test_states_and_gradients_match_the_fused_kernel(length: int) -> None:
    fused, quick = model(), model()
    prefer_quick_attention(quick, "cpu")
    assert (fused.config._attn_implementation, quick.config._attn_implementation) == ("sdpa", NAME)
    with torch.inference_mode():
        torch.testing.assert_close(hidden_states(quick, length), hidden_states(fused, length))
    for each in (fused, quick):
        torch.autograd.backward(hidden_states(each, length).square().sum())
    for ours, theirs in zip(quick.parameters(), fused.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("length", [8, 3 * SHORT])
def test_half_precision_hides_what_the_mask_hides_and_stays_close(length: int) -> None:
    exact, half = model().float(), model().float()
    prefer_quick_attention(half, "cpu")
    expected = hidden_states(exact, length)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = hidden_states(half, length)
    torch.testing.assert_close(found.float(), expected, atol=0.05, rtol=0.0)
    # Text 1 is half as long: what stands behind its end must not matter.
    short = torch.randint(1, 50, (3, length), generator=torch.Generator().manual_seed(1))[1:2, : length // 2]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        alone = half(input_ids=short, attention_mask=torch.ones_like(short)).last_hidden_state
    torch.testing.assert_close(found[1:2, : length // 2].float(), alone.float(), atol=0.05, rtol=0.0)


def test_a_text_without_a_visible_token_gives_numbers() -> None:
    half, ids = model().float(), torch.ones(2, 8, dtype=torch.long)
    prefer_quick_attention(half, "cpu")
    mask = torch.ones_like(ids)
    mask[1] = 0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = half(input_ids=ids, attention_mask=mask).last_hidden_state
    states.float().square().sum().backward()
    assert torch.isfinite(states).all()
    assert all(torch.isfinite(p.grad).all() for p in half.parameters() if p.grad is not None)


def test_kernel_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    kernel = nn.functional.scaled_dot_product_attention

    def counting(*given: Any, **named: Any) -> Tensor:
        calls.append(1)
        return kernel(*given, **named)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", counting)
    bert = model()
    prefer_quick_attention(bert, "cpu")
    with torch.inference_mode():
        hidden_states(bert, SHORT)
        assert calls == []
        hidden_states(bert, SHORT + 1)
        assert len(calls) == 2
    hidden_states(bert, SHORT + 1)
    assert len(calls) == 2, "never with gradients"


def test_a_decoder_still_attends_only_to_the_past() -> None:
    fused, quick = model(is_decoder=True), model(is_decoder=True)
    prefer_quick_attention(quick, "cpu")
    with torch.inference_mode():
        torch.testing.assert_close(hidden_states(quick, 8), hidden_states(fused, 8))


def test_other_devices_and_kernels_are_unaffected() -> None:
    bert = model()
    prefer_quick_attention(bert, "cuda")
    assert bert.config._attn_implementation == "sdpa"
    bert.set_attn_implementation("eager")
    prefer_quick_attention(bert, "cpu")
    assert bert.config._attn_implementation == "eager"
    prefer_quick_attention(nn.Linear(2, 2), "cpu")


def test_a_saved_model_keeps_its_own_attention(tmp_path: Path) -> None:
    bert = model()
    prefer_quick_attention(bert, "cpu")
    bert.save_pretrained(tmp_path)
    assert attention.NAME not in (tmp_path / "config.json").read_text()
    assert BertModel.from_pretrained(tmp_path).config._attn_implementation == "sdpa"
