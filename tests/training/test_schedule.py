import math

import pytest
import torch
from rows import each_row
from stand_ins import stage, table  # type: ignore[import-not-found]
from torch import nn

from stillhouse.training.batching import Batching
from stillhouse.training.progress import evaluation_due
from stillhouse.training.schedule import learning_rate, make_optimizer, parameter_groups
from stillhouse.values.stage import Optimizer, Stage


def rates(decay: str, warmup: float = 0.0, steps: int = 10) -> list[float]:
    return [learning_rate(Optimizer(2.0, warmup=warmup, decay=decay), step, steps) for step in range(steps)]


def due_steps(plan: Stage) -> list[int]:
    course, every, points = Batching(plan, table()), plan.evaluate_every, plan.evaluate_at
    return [step for step in range(1, plan.steps + 1) if evaluation_due(course, every, step, points)]


def test_points_are_evaluated_besides_at_the_first_step_that_has_seen_as_many() -> None:
    assert due_steps(stage(budget=80, evaluate_at=(16, 17, 79))) == [2, 3, 10]
    assert due_steps(stage(budget=80, evaluate_every=40, evaluate_at=(8,))) == [1, 5, 10]


def test_decays() -> None:
    assert rates("constant") == [2.0] * 10
    assert rates("linear") == pytest.approx([2.0 * (10 - step) / 10 for step in range(10)])
    assert rates("cosine") == pytest.approx([1 + math.cos(math.pi * step / 10) for step in range(10)])


def test_warmup_grows_from_above_zero_to_the_peak() -> None:
    grown = rates("linear", warmup=0.4)
    assert grown[:5] == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0])
    assert grown[4:] == sorted(grown[4:], reverse=True) and grown[-1] > 0


def test_weight_decay_applies_to_matrices_only() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Embedding(5, 4))
    module[2].weight.requires_grad_(False)
    decayed, plain = parameter_groups(module, 0.1)
    assert decayed["params"] == [module[0].weight] and decayed["weight_decay"] == 0.1
    assert plain["params"] == [module[0].bias, module[1].weight, module[1].bias]
    assert plain["weight_decay"] == 0.0


def test_an_optimizer_has_the_weight_decay_of_its_preset() -> None:
    matrices, others = make_optimizer(nn.Linear(3, 4), Optimizer(1e-3, weight_decay=0.02), "cpu").param_groups
    assert (matrices["weight_decay"], others["weight_decay"]) == (0.02, 0.0)


@pytest.mark.parametrize(("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_presets(name: str, kind: type) -> None:
    optimizer = make_optimizer(nn.Linear(3, 4), Optimizer(1e-3, name=name), "cpu")
    assert type(optimizer) is kind


@each_row(("steps", "evaluations"), [(60, 4), (101, 4), (7, 3), (1000, 7), (5, 5), (3, 8)])
def test_the_requested_number_of_evaluations_is_scheduled(steps: int, evaluations: int) -> None:
    plan = stage(budget=steps * 8, evaluate_every=max(1, steps * 8 // evaluations))
    due = due_steps(plan)
    assert len(due) == min(evaluations, steps) and due[-1] == steps


def test_without_an_interval_only_the_last_step_is_evaluated() -> None:
    assert due_steps(stage()) == [60]
