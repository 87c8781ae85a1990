"""What makes a model quick on a CPU, whoever runs it: a trainer, a teacher's actor, an evaluator."""

from typing import TYPE_CHECKING

import torch
from torch import nn

from stillhouse.core.allocation import keep_large_blocks
from stillhouse.students.cpu.attention import prefer_quick_attention

if TYPE_CHECKING:
    from stillhouse.students.encoder import StudentModule


def suit_cpu(model: "nn.Module | StudentModule", device: str) -> None:
    """On a CPU: attention by length, and memory that this process keeps. Elsewhere nothing.

    Args:
        model: Its transformers are switched, see `prefer_quick_attention`.
        device: Where it runs.
    """
    if torch.device(device).type == "cpu":
        keep_large_blocks()
        prefer_quick_attention(model, device)
