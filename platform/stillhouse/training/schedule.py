"""Learning rate by step, and the optimiser with its parameter groups."""

import math

import torch
from torch import nn

from stillhouse.plan.stage import Optimizer


def learning_rate(optimizer: Optimizer, step: int, steps: int) -> float:
    """The rate of one step.

    Args:
        optimizer: Peak, warm-up and decay.
        step: The step that is about to be made, from 0.
        steps: Steps in all.

    Returns:
        It grows linearly over the warm-up (the first step is not 0), then falls towards 0, which would be
        reached one step after the last.
    """
    warmup = round(optimizer.warmup * steps)
    if step < warmup:
        return optimizer.learning_rate * (step + 1) / (warmup + 1)
    done = (step - warmup) / max(1, steps - warmup)
    share = {
        "constant": 1.0,
        "linear": 1.0 - done,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
    }[optimizer.decay]
    return optimizer.learning_rate * share


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Trainable parameters in two groups: matrices decay; biases, LayerNorm and single numbers do not."""
    trainable = [p for p in module.parameters() if p.requires_grad]
    matrices = [p for p in trainable if p.ndim >= 2]
    others = [p for p in trainable if p.ndim < 2]
    groups: list[dict[str, object]] = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def make_optimizer(module: nn.Module, optimizer: Optimizer, device: str) -> torch.optim.Optimizer:
    """Adam or AdamW over a module; Adam's weight decay is an L2 term, as in its paper.

    The fused kernel makes a step 3 times faster on one CPU thread, and is used where there is one.
    """
    kind = torch.optim.AdamW if optimizer.name == "adamw" else torch.optim.Adam
    groups = parameter_groups(module, optimizer.weight_decay)
    fused = torch.device(device).type in ("cpu", "cuda")
    return kind(groups, lr=optimizer.learning_rate, fused=fused)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group the rate of this step."""
    for group in optimizer.param_groups:
        group["lr"] = rate
