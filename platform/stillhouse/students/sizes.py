"""How many parameters a recurrent student has, from the base model's configuration alone."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stillhouse.plan.data import Model
from stillhouse.students.backbone import (
    build_options,
    fresh,
    layer_count,
    layer_stack,
    quiet,
    read_config,
    with_layers,
)
from stillhouse.students.factorised import narrow_words
from stillhouse.students.recurrent import checked_repeats


@dataclass(frozen=True)
class ParameterCount:
    """Parameters by part; tied layers count once.

    Attributes:
        words: V·H, or V·B + B·H.
        positions: One vector of H a position.
        small: Token types and LayerNorms outside the layers.
        encoder: The layers.
    """

    words: int
    positions: int
    small: int
    encoder: int

    @property
    def embedding(self) -> int:
        """What the paper's tables call the embedding size: words and positions, without types and LayerNorm.

        So XLM-R base has 192.40 M, with B = 128 32.49 M. The paper's figures for MiniLM follow no one rule:
        96.21 M counts as here, 32.05 M and 64.10 M leave the positions out (here 32.25 M and 64.30 M).
        """
        return self.words + self.positions

    @property
    def total(self) -> int:
        """All of them."""
        return self.words + self.positions + self.small + self.encoder


def count_parameters(base: Model, unit: int | None = None, bottleneck: int = 0) -> ParameterCount:
    """Count without loading or drawing a weight.

    Args:
        base: Needs only its ``config.json``.
        unit: |RU|; None counts the base's whole depth.
        bottleneck: B; 0 is none.

    Raises:
        BadInput: A value out of range, or a base that is no encoder.
    """
    config, depth = read_config(base), layer_count(base)
    kept = depth if unit is None else unit
    checked_repeats(kept, 1, depth)
    with quiet(), torch.device("meta"):
        backbone: Any = fresh(with_layers(config, tuple(range(kept))), build_options(config, "sdpa"), seed=0)
        narrow_words(backbone, bottleneck, seed=0)
    words = _size(backbone.get_input_embeddings())
    positions = sum(
        _size(module) for name, module in backbone.named_modules() if name.endswith("position_embeddings")
    )
    encoder = _size(backbone.get_submodule(layer_stack(backbone)))
    return ParameterCount(words, positions, _size(backbone) - words - positions - encoder, encoder)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
