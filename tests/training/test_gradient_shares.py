"""The share of each term in the gradient: against a plain computation, and without any effect on training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from metrics_lines import read_metrics
from rows import each_row
from stand_ins import Regress, Tiny, stage, table, tensors  # type: ignore[import-not-found]
from torch import Tensor, nn

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.identity import spec
from stillhouse.core.types import Batch, Encoding, Terms
from stillhouse.objectives.objective import Objective
from stillhouse.training import checkpoint
from stillhouse.training import fit as loop
from stillhouse.training.fit import fit
from stillhouse.training.progress import Diverged
from stillhouse.training.rank_sync import Interrupted
from stillhouse.training.sampler import Order
from stillhouse.training.term_gradients import STEPS, logged_shares, mean_shares, measured_at
from stillhouse.values.stage import Optimizer

pytestmark = pytest.mark.usefixtures("one_thread", "bare_encoder")


class Mixed(Objective):
    """Three terms: on the vectors, on the hidden states alone, and on nothing that the student trains."""

    def __init__(self, student_dim: int, teacher_dim: int, weight: float = 0.01) -> None:
        super().__init__()
        self.W = nn.Linear(student_dim, teacher_dim, bias=False)
        self.weight = weight

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        text = student["text"]
        apart = (self.W(text.embedding_BD) - teacher["text"].embedding_BD).pow(2).mean()
        deep: Tensor = text.hidden[0].pow(2).sum(dim=(1, 2)).mean()
        return {"own": self.W.weight.pow(2).mean(), "deep": self.weight * deep, "mse": apart}


def shares_in(folder: Path) -> dict[int, dict[str, float]]:
    """The logged shares by step."""
    found = {}
    for line in read_metrics(folder / "metrics.jsonl"):
        shares = {n: v for n, v in line["metrics"].items() if n.startswith("gradient_share/")}
        if shares:
            assert line["step"] not in found
            found[line["step"]] = {n.removeprefix("gradient_share/"): v for n, v in shares.items()}
    return found


@pytest.mark.parametrize("accumulate", [1, 2])
def test_shares_are_norms_of_the_gradients_of_the_student(tmp_path: Path, accumulate: int) -> None:
    """The first step again, term by term; with accumulation only its first micro-batch."""
    plan = stage(
        student=spec(Tiny, dropout=0.0), objective=spec(Mixed), accumulate=accumulate, budget=128 * 8
    )
    fit(plan, table(), tmp_path)
    checkpoint.seed_everything(plan.seed)
    student, rows = Tiny(dropout=0.0), table()
    objective = Mixed(student.dim, 6)
    batch = rows.batch(Order(200, plan.seed).take(0, 8 // accumulate))
    norms = {}
    for name in ("own", "deep", "mse"):
        student.zero_grad()
        objective({"text": student(batch.tokens["text"])}, batch.teacher, batch)[name].backward()
        squares = [p.grad.square().sum() for p in student.parameters() if p.grad is not None]
        norms[name] = float(torch.stack(squares).sum().sqrt()) if squares else 0.0
    logged = shares_in(tmp_path)
    assert list(logged) == list(STEPS) == [1, 2, 4, 8]
    assert logged[1] == pytest.approx({n: norm / sum(norms.values()) for n, norm in norms.items()}, rel=1e-4)
    assert logged[1]["own"] == 0 and 0.01 < logged[1]["deep"] < 0.99
    mean = {name: sum(logged[step][name] for step in STEPS) / 4 for name in norms}
    assert read_manifest(tmp_path)["gradient_shares"] == pytest.approx(mean)
    assert logged_shares(tmp_path) == pytest.approx(mean)


@each_row("steps", [8, 20, 63, 127, 128])
def test_a_sixteenth_of_a_stage_is_measured(steps: int) -> None:
    """Each measured step costs a backward pass for each term: half of a stage of eight steps had it."""
    measured = [step for step in range(1, steps + 1) if measured_at(step, steps)]
    assert measured == [step for step in STEPS if step == 1 or step * 16 <= steps]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_measuring_changes_nothing(tmp_path: Path, accumulate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout and a bank, the weights are the same to the last bit."""
    plan = stage(budget=20 * 8, accumulate=accumulate)
    fit(plan, table(), tmp_path / "measured")
    monkeypatch.setattr(loop, "measured_at", lambda step, steps: False)
    fit(plan, table(), tmp_path / "bare")
    assert shares_in(tmp_path / "measured") and not shares_in(tmp_path / "bare")
    for name in ("student.safetensors", "objective.safetensors"):
        measured, bare = tensors(tmp_path / "measured" / name), tensors(tmp_path / "bare" / name)
        assert all(torch.equal(measured[key], bare[key]) for key in bare)


@each_row("stops_after", [1, 3, 8])
def test_an_interrupted_stage_measures_each_step_once(tmp_path: Path, stops_after: int) -> None:
    plan = stage(budget=128 * 8)
    fit(plan, table(), tmp_path / "whole")
    polls = iter(range(1, 100))
    with pytest.raises(Interrupted):
        fit(plan, table(), tmp_path / "cut", stop_requested=lambda: next(polls) >= stops_after)
    assert logged_shares(tmp_path / "cut"), "an unfinished stage has logged its shares"
    fit(plan, table(), tmp_path / "cut")
    assert shares_in(tmp_path / "cut") == shares_in(tmp_path / "whole")
    whole, cut = (read_manifest(tmp_path / name) for name in ("whole", "cut"))
    assert cut["gradient_shares"] == whole["gradient_shares"] != {}
    assert cut["weights_sha256"] == whole["weights_sha256"]


def test_a_checkpoint_without_shares_is_continued(tmp_path: Path) -> None:
    """One that an earlier version wrote."""
    plan, polls = stage(budget=20 * 8), iter(range(1, 100))
    with pytest.raises(Interrupted):
        fit(plan, table(), tmp_path, stop_requested=lambda: next(polls) >= 9)
    state = checkpoint.load(tmp_path, 9)
    del state["progress"]["gradient_shares"]
    checkpoint.save(tmp_path, 9, state)
    fit(plan, table(), tmp_path)
    assert read_manifest(tmp_path)["gradient_shares"] == {}


def test_a_single_term_is_not_measured(tmp_path: Path) -> None:
    class_of: Any = Single
    fit(stage(objective=spec(class_of)), table(), tmp_path)
    assert not shares_in(tmp_path) and read_manifest(tmp_path)["gradient_shares"] == {}


class Single(Regress):  # type: ignore[misc]
    """One term."""

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        return {"mse": super().forward(student, teacher, batch)["mse"]}


def test_a_loss_that_is_not_finite_has_no_shares(tmp_path: Path) -> None:
    with pytest.raises(Diverged):
        fit(stage(objective=spec(Regress, poison=1), optimizer=Optimizer(1e-2)), table(), tmp_path)
    assert not shares_in(tmp_path)


def test_a_term_that_a_step_lacks_counts_as_0() -> None:
    assert mean_shares([{"a": 1.0}, {"a": 0.5, "b": 0.5}]) == {"a": 0.75, "b": 0.25}
    assert mean_shares([]) == {}
