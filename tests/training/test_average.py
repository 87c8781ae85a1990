"""The moving average of the weights: its recursion, what is measured and kept, and that no step changes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from stand_ins import dev, stage, table, tensors  # type: ignore[import-not-found]
from torch import Tensor, nn

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.experiments.budget import Budget
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.methods import load_method
from stillhouse.teachers.weights import resolve_model
from stillhouse.training import fit as fitting
from stillhouse.training.average import WeightAverage
from stillhouse.training.fit import fit
from stillhouse.values.stage import Stage

pytestmark = pytest.mark.usefixtures("one_thread", "bare_encoder")
DECAY = 0.7


class Tied(nn.Module):
    """A weight with two names, a frozen one, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2, bias=False)
        self.second = nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.bank: Tensor
        self.register_buffer("bank", torch.zeros(2))


def test_the_recursion_with_its_warm_up() -> None:
    module = Tied()
    average, weights = WeightAverage(module, DECAY), [module.first.weight.detach().double()]
    expected = weights[0]
    for step in range(1, 40):
        with torch.no_grad():
            module.first.weight.add_(0.1 * step).mul_(-1)
            module.bank.add_(1)
        average.update(step)
        decay = min(DECAY, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * module.first.weight.detach().double()
        torch.testing.assert_close(average.state()["first.weight"].double(), expected, rtol=1e-5, atol=1e-5)
    assert (1 + 39) / (10 + 39) > DECAY > (1 + 1) / (10 + 1), "both bounds were in force"
    state = average.state()
    assert set(state) == {"first.weight", "second.weight"} and state["first.weight"] is state["second.weight"]


def test_a_block_has_the_averages_and_the_weights_come_back_bit_for_bit() -> None:
    module = Tied()
    average, first = WeightAverage(module, DECAY), module.first.weight.detach().clone()
    with torch.no_grad():
        module.first.weight.mul_(3.3)
    now = module.first.weight.detach().clone()
    with pytest.raises(RuntimeError, match="inside"), average.in_place():
        assert torch.equal(module.first.weight, first) and module.second.weight is module.first.weight
        raise RuntimeError("inside")
    assert torch.equal(module.first.weight, now)


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[str, Tensor]]:
    """The weights after every step, of a stage that averages."""
    weights: dict[int, dict[str, Tensor]] = {}

    class Following(WeightAverage):
        def __init__(self, module: nn.Module, decay: float) -> None:
            super().__init__(module, decay)
            self.module = module
            self.keep(0)

        def keep(self, step: int) -> None:
            weights[step] = {n: w.detach().clone() for n, w in self.module.named_parameters()}

        def update(self, step: int) -> None:
            self.keep(step)
            super().update(step)

    monkeypatch.setattr(fitting, "WeightAverage", Following)
    return weights


def averages(weights: dict[int, dict[str, Tensor]], last: int, decay: float) -> dict[str, Tensor]:
    """The averages after a step, from the weights of all steps before."""
    found = {name: weight.double() for name, weight in weights[0].items()}
    for step in range(1, last + 1):
        share = min(decay, (1 + step) / (10 + step))
        found = {name: share * found[name] + (1 - share) * w for name, w in weights[step].items()}
    return found


def kept(folder: Path) -> dict[str, Tensor]:
    parts = ("student", "objective")
    return {f"{p}.{n}": w for p in parts for n, w in tensors(folder / f"{p}.safetensors").items()}


def without_buffers(weights: dict[str, Tensor], names: Any) -> dict[str, Tensor]:
    return {name: weights[name].double() for name in names}


@pytest.mark.parametrize("best", [20, 60])
def test_the_average_of_the_best_step_is_measured_and_kept(
    best: int, tmp_path: Path, followed: dict[int, dict[str, Tensor]]
) -> None:
    """Also where that step is not the last one, and its checkpoint is read."""
    measured: list[Tensor] = []

    def evaluate(encoder: Any) -> dict[str, float]:
        measured.append(encoder.out.weight.detach().double())
        return {"figure": float(len(measured) * 20 == best)}

    fit(
        stage(dev=dev(), evaluate_every=20 * 8, average=DECAY),
        table(),
        tmp_path,
        evaluate=evaluate,
    )
    assert read_manifest(tmp_path)["chosen_step"] == best and list(followed) == list(range(61))
    for step, vector in zip((20, 40, 60), measured, strict=True):
        average = averages(followed, step, DECAY)["student.out.weight"]
        torch.testing.assert_close(vector, average, rtol=1e-5, atol=1e-6)
        assert (vector - followed[step]["student.out.weight"]).abs().max() > 3e-4
    expected = averages(followed, best, DECAY)
    assert "objective.W.weight" in expected
    torch.testing.assert_close(
        without_buffers(kept(tmp_path), expected), expected, rtol=1e-5, atol=1e-6, check_dtype=False
    )


def test_training_is_the_same_with_and_without(
    tmp_path: Path, followed: dict[int, dict[str, Tensor]]
) -> None:
    """The average changes no step, however often it is measured; buffers are those of the last step."""

    def figure(encoder: Any) -> dict[str, float]:
        return {"figure": 0.0}

    fit(stage(), table(), tmp_path / "plain")
    fit(stage(dev=dev(), evaluate_every=40, average=DECAY), table(), tmp_path / "averaged", evaluate=figure)
    plain, both = kept(tmp_path / "plain"), kept(tmp_path / "averaged")
    for name, weight in followed[60].items():
        assert torch.equal(plain[name], weight), name
    assert set(plain) == set(both) and {"objective.bank", "objective.calls"} <= set(plain)


def test_that_of_the_budget_reaches_every_stage(tiny_model: Path) -> None:
    data = (Sentences("a.txt"), Pairs("pairs.jsonl"))
    experiment = Experiment(data=data, budget=Budget(average=DECAY))
    setting, method = experiment.of(resolve_model(str(tiny_model))).sketch(), load_method("mse")
    stages = list(method.plan(method.HyperParameters(), setting).chain())
    assert [(each.label, each.average) for each in stages] == [("mse", DECAY), ("finetune", DECAY)]


def test_a_decay_out_of_range_is_refused() -> None:
    for average in (-0.1, 1.0):
        with pytest.raises(BadInput, match="0 <= average < 1"):
            stage(average=average)
        with pytest.raises(BadInput, match=r"0 <= budget\.average < 1"):
            Budget(average=average)


def test_without_an_average_the_name_of_a_stage_is_as_before() -> None:
    plain: Stage = stage()
    assert plain.fingerprint == stage(average=0.0).fingerprint != stage(average=DECAY).fingerprint
