"""The soup: what is averaged, when it is kept, what is reported, and that it survives a resumption."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rows import each_row
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
from stillhouse.training.fit import fit
from stillhouse.training.progress import Evaluation
from stillhouse.training.soup import mean_of

pytestmark = pytest.mark.usefixtures("one_thread", "bare_encoder")
FIGURES = [0.3, 0.9, 0.1, 0.6]
"""Of the evaluations at steps 15, 30, 45 and 60: the best three are those of 30, 60 and 15."""


def test_the_mean_is_of_what_is_trained() -> None:
    module = nn.Module()
    module.register_parameter("w", nn.Parameter(torch.zeros(2)))
    module.register_buffer("bank", torch.zeros(1))
    one = {"w": torch.tensor([1.0, 3.0]), "bank": torch.tensor([5.0])}
    other = {"w": torch.tensor([2.0, 5.0]), "bank": torch.tensor([7.0])}
    mean = mean_of([one, other], module)
    assert mean["w"].tolist() == [1.5, 4.0] and mean["bank"].tolist() == [5.0]
    assert mean["w"].dtype == torch.float32 and mean["bank"] is not one["bank"]


class Dev:
    """A dev suite with given figures, the soup's last; it keeps the weights that it was given."""

    def __init__(self, soup: float, figures: Sequence[float] = FIGURES) -> None:
        self.figures = [*figures, soup]
        self.seen: list[Tensor] = []

    def __call__(self, encoder: Any) -> dict[str, float]:
        self.seen.append(encoder.out.weight.detach().clone())
        return {"figure": self.figures[len(self.seen) - 1]}


def train(folder: Path, evaluate: Any, count: int = 3, **changes: Any) -> list[Evaluation]:
    reported: list[Evaluation] = []

    def note(evaluation: Evaluation) -> bool:
        reported.append(evaluation)
        return False

    changed = {"dev": dev(), "evaluate_every": 15 * 8, "soup": count, **changes}
    fit(stage(**changed), table(), folder, evaluate=evaluate, on_evaluation=note)
    return reported


def mean(parts: list[Tensor]) -> Tensor:
    return torch.stack([part.double() for part in parts]).mean(dim=0).float()


def test_a_better_soup_is_the_result(tmp_path: Path) -> None:
    evaluate = Dev(soup=0.95)
    reported = train(tmp_path, evaluate)
    manifest = read_manifest(tmp_path)
    best = [evaluate.seen[place] for place in (1, 3, 0)]
    assert torch.equal(evaluate.seen[4], mean(best))
    assert torch.equal(tensors(tmp_path / "student.safetensors")["out.weight"], mean(best))
    assert manifest["soup"] == {"steps": [30, 60, 15], "metrics": {"figure": 0.95}, "kept": True}
    assert manifest["metrics"] == {"figure": 0.95} and manifest["chosen_step"] == 60
    # The last evaluation is that of the soup, and is reported once.
    assert [each.metrics["figure"] for each in reported] == [0.3, 0.9, 0.1, 0.95]
    assert [each.final for each in reported] == [False, False, False, True]
    assert [each["metrics"]["figure"] for each in manifest["evaluations"]] == [0.3, 0.9, 0.1, 0.95]


@each_row("figure", [0.9, 0.2, float("nan")])
def test_a_soup_that_is_not_better_is_thrown_away(figure: float, tmp_path: Path) -> None:
    evaluate = Dev(soup=figure)
    reported = train(tmp_path / "soup", evaluate)
    train(tmp_path / "none", Dev(soup=0.0), count=0)
    soup, none = (tensors(tmp_path / name / "student.safetensors") for name in ("soup", "none"))
    assert all(torch.equal(soup[name], none[name]) for name in none)
    manifest = read_manifest(tmp_path / "soup")
    assert manifest["chosen_step"] == 30 and manifest["metrics"] == {"figure": 0.9}
    assert manifest["soup"]["kept"] is False and reported[-1].metrics == {"figure": 0.6}
    assert "soup" not in read_manifest(tmp_path / "none")


def test_the_last_weights_survive_a_worse_soup(tmp_path: Path) -> None:
    rising = [0.1, 0.2, 0.3, 0.4]
    evaluate = Dev(0.2, rising)
    train(tmp_path, evaluate)
    assert torch.equal(tensors(tmp_path / "student.safetensors")["out.weight"], evaluate.seen[3])
    assert not torch.equal(evaluate.seen[4], evaluate.seen[3])


def test_the_objective_is_averaged_too_and_its_bank_is_not(tmp_path: Path) -> None:
    objectives: list[dict[str, Tensor]] = []

    class Watching(fitting._Loop):
        def _evaluate(self, *given: Any) -> None:
            objectives.append({n: v.clone() for n, v in self.module.objective.state_dict().items()})
            super()._evaluate(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_Loop", Watching)
        count = iter([0.3, 0.9, 0.1, 0.6, 0.95])
        fit(
            stage(dev=dev(), evaluate_every=15 * 8, soup=3),
            table(),
            tmp_path,
            evaluate=lambda _: {"figure": next(count)},
        )
    kept = tensors(tmp_path / "objective.safetensors")
    best = [objectives[place] for place in (1, 3, 0)]
    assert torch.equal(kept["W.weight"], mean([each["W.weight"] for each in best]))
    assert torch.equal(kept["bank"], best[0]["bank"]) and not torch.equal(best[0]["bank"], best[1]["bank"])


def test_a_soup_of_averages(tmp_path: Path) -> None:
    """With a moving average, the soup is of what was measured."""
    evaluate = Dev(soup=0.95)
    train(tmp_path, evaluate, average=0.7)
    best = mean([evaluate.seen[place] for place in (1, 3, 0)])
    torch.testing.assert_close(evaluate.seen[4], best, rtol=0, atol=1e-7)
    assert torch.equal(tensors(tmp_path / "student.safetensors")["out.weight"], evaluate.seen[4])


def test_a_run_that_ends_before_its_soup_makes_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(tmp_path / "whole", Dev(soup=0.95))
    finish = fitting._Loop._finish

    def killed(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting._Loop, "_finish", killed)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "parts", Dev(soup=0.0))
    monkeypatch.setattr(fitting._Loop, "_finish", finish)
    resumed = train(tmp_path / "parts", lambda _: {"figure": 0.95})
    assert [each.metrics for each in resumed] == [each.metrics for each in whole]
    one, other = (tensors(tmp_path / name / "student.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_one_evaluation_makes_no_soup(tmp_path: Path) -> None:
    train(tmp_path, Dev(soup=0.0), evaluate_every=0)
    assert "soup" not in read_manifest(tmp_path)


def test_that_of_the_budget_reaches_every_stage(tiny_model: Path) -> None:
    data = (Sentences("a.txt"), Pairs("pairs.jsonl"))
    experiment = Experiment(data=data, budget=Budget(soup=2))
    setting, method = experiment.of(resolve_model(str(tiny_model))).sketch(), load_method("mse")
    stages = list(method.plan(method.HyperParameters(), setting).chain())
    assert [(each.label, each.soup) for each in stages] == [("mse", 2), ("finetune", 2)]


def test_what_cannot_be_averaged_is_refused() -> None:
    for soup in (-1, 1):
        with pytest.raises(BadInput, match="soup >= 2, or 0"):
            stage(soup=soup)
        with pytest.raises(BadInput, match=r"budget\.soup >= 2, or 0"):
            Budget(soup=soup)
    with pytest.raises(BadInput, match=r"budget\.soup <= budget\.evaluations"):
        Budget(soup=3, evaluations=2)
    assert Budget(soup=3, evaluations=2, every=10).soup == 3
    assert Budget(soup=3, evaluations=3).soup == 3


def test_without_a_soup_the_name_of_a_stage_is_as_before() -> None:
    assert stage().fingerprint == stage(soup=0).fingerprint != stage(soup=2).fingerprint
