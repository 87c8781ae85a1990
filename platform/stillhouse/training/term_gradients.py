"""The share of each term of an objective in the gradient, measured in the first steps of a stage.

The gradient of a term is that of its weighted value with respect to the parameters of the student. Its
share is its norm divided by the sum of the norms of all terms: a term whose share is tiny hardly moves the
student, whatever its value in the loss is. Parameters of the objective (W, heads) are left out, since each
belongs to one term. The gradient with respect to the student's vectors would cost less, but misses every term
that reads hidden states.

Each measured step costs one more backward pass for every term but the last, whose gradient is what is left of
the sum. With accumulation the first micro-batch stands for the step. The gradient that the optimiser uses is
computed as in any other step, and no random number is drawn: training is the same to the last bit.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stillhouse.core.artifacts import Workspace
from stillhouse.core.distributed import world_size
from stillhouse.core.types import Terms
from stillhouse.training.metrics_log import NAME, read_lines
from stillhouse.values.stage import Stage

STEPS = (1, 2, 4, 8)
"""The steps that may be measured; none later."""
SHARE = 1 / 16
"""The share of a stage in which its steps are measured; the first step always is."""
PREFIX = "gradient_share/"
"""Start of the names under which shares are logged."""


def measured_at(step: int, steps: int) -> bool:
    """Return whether a step, counted from 1, of a stage of so many steps is measured."""
    return step in STEPS and step <= max(1, SHARE * steps)


class TermGradients:
    """The gradients of the terms of one step, before which those of the trained parameters are None.

    Every rank calls both methods.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._names: list[str] = []
        self._gradients: list[Sequence[Tensor | None]] = []

    def before_backward(self, terms: Terms) -> None:
        """Compute the gradient of every term but the last; the graph is kept for the backward pass."""
        self._names = list(terms)
        self._gradients = [self._gradient(term) for term in list(terms.values())[:-1]]

    def shares(self, *, scale: float, averaged: bool) -> dict[str, float]:
        """Return the share of each term, after the backward pass of the loss; empty if all gradients are 0.

        Args:
            scale: The factor between the loss and the value whose backward pass was run.
            averaged: Whether the gradients of the parameters are already means over the ranks.
        """
        squares = torch.zeros(len(self._names), device=self._parameters[0].device)
        for parameter, *gradients in zip(self._parameters, *self._gradients, strict=True):
            # One parameter at a time: no second copy of a large model's gradients.
            parts = [_mean_over_ranks(_or_zeros(gradient, parameter)) for gradient in gradients]
            last = _or_zeros(parameter.grad, parameter) / scale
            last = last if averaged else _mean_over_ranks(last)
            for part in parts:
                last = last - part
            squares += torch.stack([part.float().square().sum() for part in (*parts, last)])
        norms = squares.sqrt().tolist()
        whole = sum(norms)
        if not math.isfinite(whole) or whole == 0:
            return {}
        return {name: norm / whole for name, norm in zip(self._names, norms, strict=True)}

    def _gradient(self, term: Tensor) -> Sequence[Tensor | None]:
        if not term.requires_grad:
            return [None] * len(self._parameters)
        return torch.autograd.grad(term, self._parameters, retain_graph=True, allow_unused=True)


def mean_shares(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean share of each term over the measured steps; a term that a step lacks counts as 0."""
    names = dict.fromkeys(name for shares in measured for name in shares)
    return {name: sum(shares.get(name, 0.0) for shares in measured) / len(measured) for name in names}


def logged_shares(folder: Path) -> dict[str, float]:
    """Return the mean shares that a stage has logged; it need not be finished. Empty if there are none."""
    found = []
    for line in read_lines(folder / NAME):
        shares = {n.removeprefix(PREFIX): v for n, v in line["metrics"].items() if n.startswith(PREFIX)}
        if shares:
            found.append(shares)
        if line["step"] > STEPS[-1]:
            break
    return mean_shares(found)


def shares_of(plan: Stage, workspace: Workspace) -> dict[str, dict[str, float]]:
    """Return the logged shares of the terms of each stage that has several, by the stage's label."""
    shares = {stage.label: logged_shares(workspace.path(stage)) for stage in plan.chain()}
    return {label: terms for label, terms in shares.items() if terms}


def _or_zeros(gradient: Tensor | None, parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if gradient is None else gradient.detach()


def _mean_over_ranks(gradient: Tensor) -> Tensor:
    if world_size() == 1:
        return gradient
    summed = gradient.clone()
    dist.all_reduce(summed)
    return summed / world_size()
