"""Random weights are told from trained ones, whatever the architecture, and nothing trained is accused."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from rows import each_row
from safetensors.torch import load_file, save_file

from stillhouse.preflight.trained_weights import drawn, layer_of, look_at
from stillhouse.teachers.weights import PACKAGED, model_folder

SHAPES: dict[str, dict[str, Any]] = {
    "BertConfig": {"intermediate_size": 64},
    "MPNetConfig": {"intermediate_size": 64},
    "ModernBertConfig": {"intermediate_size": 64, "pad_token_id": 0},
    "Qwen3Config": {"intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 16},
    "Gemma3TextConfig": {"intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 16},
}
"""Norms with a bias and without, of 1 and of 0, layers with biases and without."""


def random_model(folder: Path, name: str, **changes: Any) -> Path:
    import transformers
    from transformers import AutoModel

    config = getattr(transformers, name)(
        vocab_size=200, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, **SHAPES[name], **changes
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        build: Any = AutoModel.from_config
        build(config).save_pretrained(folder)
    return folder


def changed(folder: Path, copy: Path, change: Any) -> Path:
    """A copy of a plain folder whose tensors are changed one by one."""
    shutil.copytree(folder, copy)
    (file,) = copy.glob("*.safetensors")
    save_file({name: change(name, tensor).contiguous() for name, tensor in load_file(file).items()}, file)
    return copy


@each_row("name", SHAPES)
def test_a_fresh_model_of_every_architecture_is_random_in_all_layers(name: str, tmp_path: Path) -> None:
    layers = look_at(random_model(tmp_path / "model", name))
    assert len(layers.names) == 3 and layers.untrained == layers.names and layers.all_untrained


@pytest.mark.parametrize("rate", [1e-2, 1e-5])
def test_training_is_seen_after_a_single_step(rate: float, tmp_path: Path) -> None:
    """One step of Adam moves every norm and bias."""
    folder = random_model(tmp_path / "model", "BertConfig")
    stepped = changed(folder, tmp_path / "stepped", lambda _, tensor: tensor + rate)
    assert not look_at(stepped).untrained


def test_a_trained_model_is_not_accused(trained_model: Path) -> None:
    layers = look_at(trained_model)
    assert len(layers.names) == 4 and not layers.untrained


def test_the_packaged_teacher_is_not_accused() -> None:
    layers = look_at(model_folder(PACKAGED[0]))
    assert len(layers.names) == 6 and not layers.untrained


def test_norms_that_were_folded_into_the_next_matrix_do_not_make_a_trained_model_random(
    tmp_path: Path,
) -> None:
    """Such a model has norms of 1 and biases of 0, and the columns of its matrices differ in length."""
    scales_N = torch.linspace(0.3, 2, 32)

    def folded(name: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor * scales_N if tensor.ndim == 2 and tensor.shape[1] == 32 else tensor

    folder = random_model(tmp_path / "model", "BertConfig")
    assert not look_at(changed(folder, tmp_path / "folded", folded)).untrained


def test_some_random_layers_among_trained_ones_are_named(trained_model: Path, tmp_path: Path) -> None:
    def reset(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if not layer_of(name).endswith(".3"):
            return tensor
        return (
            torch.zeros_like(tensor)
            if "bias" in name
            else (torch.ones_like(tensor) if tensor.ndim == 1 else 0.02 * torch.randn(tensor.shape))
        )

    torch.manual_seed(0)
    layers = look_at(changed(trained_model, tmp_path / "reset", reset))
    assert [name.rpartition(".")[2] for name in layers.untrained] == ["3"] and not layers.all_untrained
    assert not layers.of([0, 2]).untrained and layers.of([0, 3]).untrained


@each_row("shape", [(16, 16), (32, 64), (256, 384), (256, 32)])
def test_draws_of_any_usual_distribution_are_draws(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    normal = torch.randn(shape, generator=generator)
    uniform = torch.rand(shape, generator=generator) - 0.5
    assert drawn(0.02 * normal) and drawn(uniform) and drawn(normal.clamp(-2, 2))
    assert drawn(torch.cat([torch.zeros(1, shape[1]), normal])), "the row of the padding token"


@pytest.mark.parametrize("shape", [(256, 384), (256, 32)])
def test_rows_or_columns_of_unequal_length_and_long_tails_are_no_draws(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    normal = torch.randn(shape, generator=generator)
    rows, columns = (torch.linspace(0.7, 1.3, count) for count in shape)
    assert not drawn(normal * rows[:, None]) and not drawn(normal * columns)
    assert not drawn(normal.pow(3))
