"""What a stage does in its first steps, recorded while a plan is trained as a user trains it."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stillhouse.core.artifacts import Workspace
from stillhouse.core.types import Batch, Terms
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.stage import Stage


@dataclass
class Step:
    """One optimiser step.

    Attributes:
        batch: What the stage read.
        state: The weights and buffers of student and objective before it, by name.
        terms: The terms of the loss.
        gradients: The gradients of their sum by parameter, before they are clipped.
    """

    batch: Batch
    state: dict[str, Tensor]
    terms: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def objective(self, name: str) -> Tensor:
        """A weight of the objective in float64, ready for a gradient."""
        return self.state[f"objective.{name}"].double().requires_grad_()

    def teacher(self, column: str) -> Tensor:
        """The stored vectors of a column in float64."""
        return self.batch.teacher[column].embedding_BD.double()

    def rows(self, column: str) -> list[Any]:
        """The row ids of a column: a number per example, or a list of them."""
        found: list[Any] = self.batch.rows[column].tolist()
        return found


class Recorder(nn.Module):
    """Stands where the loop wraps its module for several ranks, and keeps every step."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module
        self.steps: list[Step] = []
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._keeping(name))

    def forward(self, batch: Batch) -> Terms:
        state = {name: value.detach().clone() for name, value in self.module.state_dict().items()}
        self.steps.append(Step(batch, state))
        terms: Terms = self.module(batch)
        self.steps[-1].terms = {name: term.detach().clone() for name, term in terms.items()}
        return terms

    def _keeping(self, name: str) -> Any:
        def keep(parameter: Tensor) -> None:
            assert parameter.grad is not None
            self.steps[-1].gradients[name] = parameter.grad.detach().clone()

        return keep


def train_recorded(
    plan: Stage, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[Step]]:
    """Train a plan, and return the steps of every stage by its label."""
    recorders: list[Recorder] = []

    def recording(module: Any) -> Recorder:
        recorders.append(Recorder(module))
        return recorders[-1]

    monkeypatch.setattr("stillhouse.training.fit.distributed", recording)
    # Random encoders of 16 dimensions may look collapsed, which says nothing about the steps.
    monkeypatch.setattr("stillhouse.training.fit.measure", lambda *_: ({}, None))
    run(plan, workspace, where=Where(device="cpu", threads=1))
    labels = [stage.label for stage in plan.chain()]
    assert len(labels) == len(set(labels)) == len(recorders), "every stage was trained, none before this call"
    return {label: recorder.steps for label, recorder in zip(labels, recorders, strict=True)}


def assert_step(
    step: Step, terms: dict[str, Tensor], parameters: dict[str, Tensor], tolerance: float = 2e-4
) -> None:
    """Compare a step with its recomputation: every term, and the gradient of every parameter.

    Args:
        step: What training did.
        terms: The terms in float64.
        parameters: The weights that the terms were computed from, by the names of training.
        tolerance: Relative; training is in float32.
    """
    assert step.terms.keys() == terms.keys()
    for name, term in terms.items():
        expected = term.item()
        assert abs(step.terms[name].item() - expected) <= tolerance * max(abs(expected), 1e-3), (
            name,
            step.terms[name].item(),
            expected,
        )
    loss = torch.stack(list(terms.values())).sum()
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    gradients = {
        name: gradient for name, gradient in zip(parameters, found, strict=True) if gradient is not None
    }
    whole = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
    assert whole > 0
    unknown = [name for name in step.gradients if name not in parameters and step.gradients[name].norm() > 0]
    assert not unknown, unknown
    for name, parameter in parameters.items():
        expected_gradient = gradients.get(name, torch.zeros_like(parameter))
        trained = step.gradients.get(name, torch.zeros_like(parameter)).double()
        apart = (trained - expected_gradient).norm()
        assert apart <= tolerance * expected_gradient.norm() + 1e-5 * whole, (
            name,
            apart.item(),
            whole.item(),
        )
