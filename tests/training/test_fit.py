import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from metrics_lines import read_metrics
from rows import each_row
from stand_ins import Classes, Flatten, Regress, Tiny, dev, stage, table, tensors, weight_figure  # type: ignore[import-not-found]
from torch.optim.optimizer import register_optimizer_step_post_hook

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.core.types import Batch, Terms
from stillhouse.core.watchdog import Watchdog
from stillhouse.training import checkpoint, metrics_log, watch
from stillhouse.training import fit as loop
from stillhouse.training.estimate import course_in
from stillhouse.training.fit import fit
from stillhouse.training.progress import Diverged, Evaluation, Stopped
from stillhouse.training.rank_sync import Interrupted
from stillhouse.values.stage import Optimizer

pytestmark = pytest.mark.usefixtures("one_thread", "bare_encoder")


def figures(values: list[float]) -> Any:
    """Return an evaluator that returns these figures in turn."""
    left: Iterator[float] = iter(values)
    return lambda encoder: {"figure": next(left)}


def recording_to(evaluations: list[Evaluation]) -> Callable[[Evaluation], bool]:
    def listen(evaluation: Evaluation) -> bool:
        evaluations.append(evaluation)
        return False

    return listen


def test_fit_learns_and_leaves_a_complete_folder(tmp_path: Path) -> None:
    plan = stage(budget=300 * 8, student=spec(Tiny, dropout=0.0))
    fit(plan, table(16), tmp_path)
    manifest = read_manifest(tmp_path)
    assert manifest["steps"] == 300 and manifest["examples"] == 2400 and manifest["seconds"] > 0
    assert manifest["label"] == "distil" and manifest["fingerprint"] == plan.fingerprint
    assert manifest["weights_sha256"] == checkpoint.weights_sha256(tensors(tmp_path / "student.safetensors"))
    assert set(tensors(tmp_path / "objective.safetensors")) == {"W.weight", "bank", "calls"}
    assert not (tmp_path / "checkpoints").exists()
    lines = read_metrics(tmp_path / "metrics.jsonl")
    losses = [line["metrics"]["loss/mse"] for line in lines if "loss" in line["metrics"]]
    assert losses[-1] < 0.5 * losses[0]
    expected = {"loss", "loss/mse", "loss/away", "grad_norm", "learning_rate", "examples_per_second"}
    assert set(lines[0]["metrics"]) == expected
    means = lines[0]["metrics"]
    assert means["loss"] == pytest.approx(means["loss/mse"] + means["loss/away"], rel=1e-5)


CONSTANT = Optimizer(1e-2, decay="constant")
SCHEDULED = Optimizer(1e-2, warmup=0.2, decay="linear", clip_norm=0.05)


@pytest.mark.parametrize("optimizer", [CONSTANT, SCHEDULED])
def test_the_loop_is_plain_torch(tmp_path: Path, optimizer: Optimizer) -> None:
    """The numbers equal those of a few lines of torch, with the schedule written out."""
    plan = stage(budget=20 * 8, student=spec(Tiny, dropout=0.0), optimizer=optimizer)
    fit(plan, table(), tmp_path)
    from stillhouse.training.sampler import Order

    checkpoint.seed_everything(plan.seed)
    student, rows, order = Tiny(dropout=0.0), table(), Order(200, plan.seed)
    objective = Regress(student.dim, 6)
    parameters = [*student.parameters(), *objective.parameters()]
    adam = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.0)
    norms = []
    for step in range(20):
        batch = rows.batch(order.take(step * 8, 8))
        terms = objective({"text": student(batch.tokens["text"])}, batch.teacher, batch)
        (terms["mse"] + terms["away"]).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, optimizer.clip_norm)))
        if optimizer is SCHEDULED:
            adam.param_groups[0]["lr"] = 1e-2 * ((step + 1) / 5 if step < 4 else (20 - step) / 16)
        adam.step()
        adam.zero_grad()
    assert optimizer is CONSTANT or min(norms) > 2 * optimizer.clip_norm, "every step is clipped"
    trained = tensors(tmp_path / "student.safetensors")
    for name, value in student.state_dict().items():
        torch.testing.assert_close(trained[name], value, rtol=1e-4, atol=1e-6)


def test_accumulation_without_coupling_changes_nothing(tmp_path: Path) -> None:
    plain = {"objective": spec(Regress, bank=0), "student": spec(Tiny, dropout=0.0)}
    fit(stage(budget=160, **plain), table(), tmp_path / "whole")
    fit(stage(budget=160, accumulate=4, **plain), table(), tmp_path / "parts")
    whole, parts = (tensors(tmp_path / name / "student.safetensors") for name in ("whole", "parts"))
    for name in whole:
        torch.testing.assert_close(whole[name], parts[name], rtol=1e-3, atol=1e-5)


def test_a_step_that_does_not_fit_is_made_of_smaller_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stage(budget=160, objective=spec(Regress, bank=0), student=spec(Tiny, dropout=0.0))
    rows, forward, room = table(), Regress.forward, 8

    def limited(self: Regress, student: Any, teacher: Any, batch: Batch) -> Terms:
        if len(student["text"].embedding_BD) > room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        terms: Terms = forward(self, student, teacher, batch)
        return terms

    monkeypatch.setattr(Regress, "forward", limited)
    fit(plan, rows, tmp_path / "whole")
    room = 2
    with pytest.raises(torch.OutOfMemoryError):
        fit(plan, rows, tmp_path / "coupled")
    assert "going on" not in capsys.readouterr().err
    monkeypatch.setattr(Regress, "why_coupled", lambda self: "")
    fit(plan, rows, tmp_path / "parts")
    assert re.findall("going on in (.) parts", capsys.readouterr().err) == ["2", "4"]
    whole, parts = (tensors(tmp_path / name / "student.safetensors") for name in ("whole", "parts"))
    for name in whole:
        torch.testing.assert_close(whole[name], parts[name], rtol=1e-3, atol=1e-5)
    logs = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "parts")]
    one, other = ([line["metrics"]["loss"] for line in lines if "loss" in line["metrics"]] for lines in logs)
    assert one == pytest.approx(other, rel=1e-4)
    room = 0
    with pytest.raises(torch.OutOfMemoryError):
        fit(plan, rows, tmp_path / "none")


def test_the_best_checkpoint_is_kept(tmp_path: Path) -> None:
    seen: dict[int, str] = {}
    values = iter([0.1, 0.9, 0.3, float("nan")])

    def evaluate(encoder: Any) -> dict[str, float]:
        seen[len(seen)] = checkpoint.weights_sha256(encoder.state_dict())
        return {"figure": next(values)}

    fit(stage(dev=dev(), evaluate_every=120), table(), tmp_path, evaluate=evaluate)
    manifest = read_manifest(tmp_path)
    assert manifest["chosen_step"] == 30 and manifest["metrics"] == {"figure": 0.9}
    assert manifest["weights_sha256"] == seen[1] != seen[3]
    assert [point["examples"] for point in manifest["evaluations"]] == [120, 240, 360, 480]


def test_every_step_feeds_the_watchdog_and_an_evaluation_may_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[str] = []
    monkeypatch.setattr(Watchdog, "feed", lambda dog: fed.append(f"step, {dog.limit_s:g} s"))
    monkeypatch.setattr(Watchdog, "rest", lambda dog: fed.append("rest"))

    def evaluate(_encoder: Any) -> dict[str, float]:
        fed.append("evaluation")
        return {"figure": 0.5}

    plan = stage(budget=240, dev=dev(), evaluate_every=120)
    fit(plan, table(), tmp_path, evaluate=evaluate, step_limit_s=7.0)
    half = ["step, 7 s"] * (120 // plan.batch_size) + ["rest", "evaluation"]
    assert fed[: 2 * len(half)] == [*half, *half] and fed[-1] == "rest"


def test_it_tells_how_far_it_is_between_two_lines_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_log, "PULSE_S", 0.0)
    told: list[int] = []

    def listen() -> bool:
        told.append(course_in(tmp_path).seen)
        return False

    fit(stage(budget=40 * 8), table(), tmp_path, stop_requested=listen)
    assert told == [8 * step for step in range(1, 40)]
    assert len(read_metrics(tmp_path / "metrics.jsonl")) < 20 and not (tmp_path / "checkpoints").exists()


def test_it_tells_so_every_few_seconds_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_log, "PULSE_S", 3600.0)
    told: list[int] = []

    def listen() -> bool:
        told.append(json.loads((tmp_path / "checkpoints" / metrics_log.PULSE).read_bytes())["examples"])
        return False

    fit(stage(budget=40 * 8), table(), tmp_path, stop_requested=listen)
    assert told == [8] * 39, "at the first step, and not again within the hour"


def test_without_dev_the_last_checkpoint_is_kept(tmp_path: Path) -> None:
    fit(stage(evaluate_every=120), table(), tmp_path)
    manifest = read_manifest(tmp_path)
    assert manifest["chosen_step"] == 60 and manifest["metrics"] == {}


def test_patience_ends_the_stage(tmp_path: Path) -> None:
    evaluations: list[Evaluation] = []
    fit(
        stage(dev=dev(), evaluate_every=48, patience=2),
        table(),
        tmp_path,
        evaluate=figures([0.1, 0.5, 0.4, 0.5, 0.9]),
        on_evaluation=recording_to(evaluations),
    )
    manifest = read_manifest(tmp_path)
    assert manifest["steps"] == 24 and manifest["chosen_step"] == 12
    assert [evaluation.final for evaluation in evaluations] == [False, False, False, True]
    assert [evaluation.examples for evaluation in evaluations] == [48, 96, 144, 192]


def test_nan_ends_the_stage_with_a_reason(tmp_path: Path) -> None:
    plan = stage(objective=spec(Regress, poison=10))
    with pytest.raises(Diverged, match=r"must be finite, but at step 12 of 60 .*loss/mse=nan"):
        fit(plan, table(), tmp_path)
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize(("times", "saved"), [(0, 59), (1e9, 1)])
def test_checkpoints_take_a_small_part_of_the_time(
    times: float, saved: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each step but the last where they cost nothing; where they cost much, the first."""
    save, steps = checkpoint.save, set[int]()

    def counted(folder: Path, step: int, state: Any) -> None:
        steps.add(step)
        save(folder, step, state)

    monkeypatch.setattr("stillhouse.training.fit._SAVED_FOR", times)
    monkeypatch.setattr(checkpoint, "save", counted)
    fit(stage(), table(), tmp_path, checkpoint_seconds=0.0)
    assert len(steps) == saved


def test_weights_that_are_not_finite_are_in_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same stage, begun again without the fault, ends with the weights of one without it."""
    seen = [0]

    def spoil(optimizer: Any, *_: Any) -> None:
        seen[0] += 1
        if seen[0] == 23:
            optimizer.param_groups[0]["params"][0].data.view(-1)[0] = math.inf

    monkeypatch.setattr("stillhouse.training.fit._SAVED_FOR", 0)
    plan = stage(evaluate_every=96)
    handle = register_optimizer_step_post_hook(spoil)
    try:
        with pytest.raises(Diverged, match=r"the weights must be finite, but at step 23 of 60"):
            fit(plan, table(), tmp_path / "spoilt", checkpoint_seconds=0.0)
    finally:
        handle.remove()
    for name in ("spoilt", "whole"):
        fit(plan, table(), tmp_path / name)
    spoilt, whole = (read_manifest(tmp_path / name)["weights_sha256"] for name in ("spoilt", "whole"))
    assert spoilt == whole


def test_a_collapse_ends_the_stage_with_a_reason(tmp_path: Path) -> None:
    plan = stage(
        objective=spec(Flatten),
        budget=4000,
        student=spec(Tiny, dim=32, dropout=0.0),
        optimizer=Optimizer(3e-2, decay="constant"),
        evaluate_every=800,
        dev=dev(),
    )
    with pytest.raises(Diverged, match=r"the student collapsed by step \d+ of 500 .*mean cosine"):
        fit(plan, table(), tmp_path, evaluate=weight_figure)


@pytest.mark.parametrize(("objective", "few"), [(Regress, False), (Classes, True)])
def test_the_rank_is_judged_unless_classes_are_fitted(
    objective: type[Regress], few: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[bool] = []
    monkeypatch.setattr(watch, "collapse", lambda vectors, few_directions: judged.append(few_directions))
    fit(stage(objective=spec(objective), dev=dev()), table(), tmp_path, evaluate=weight_figure)
    assert judged and set(judged) == {few}


def test_a_callback_stops_training_and_it_resumes(tmp_path: Path) -> None:
    plan = stage(dev=dev(), evaluate_every=120)
    with pytest.raises(Stopped, match="after 240 examples"):
        fit(plan, table(), tmp_path, evaluate=weight_figure, on_evaluation=lambda e: e.examples >= 240)
    assert checkpoint.steps(tmp_path)[-1] == 30
    with pytest.raises(Stopped, match="after 240 examples"):
        fit(plan, table(), tmp_path, evaluate=weight_figure, on_evaluation=lambda e: e.examples >= 240)
    evaluations: list[Evaluation] = []
    fit(plan, table(), tmp_path, evaluate=weight_figure, on_evaluation=recording_to(evaluations))
    assert [evaluation.examples for evaluation in evaluations] == [120, 240, 360, 480]
    fit(plan, table(), tmp_path / "straight", evaluate=weight_figure)
    assert _hash(tmp_path) == _hash(tmp_path / "straight")


def test_the_manifest_is_written_before_the_last_evaluation_is_reported(tmp_path: Path) -> None:
    """A tuner may end the process during the last report."""

    def listen(evaluation: Evaluation) -> bool:
        if evaluation.final:
            raise SystemExit(0)
        return False

    with pytest.raises(SystemExit):
        fit(stage(dev=dev()), table(), tmp_path, evaluate=weight_figure, on_evaluation=listen)
    assert read_manifest(tmp_path)["steps"] == 60


@each_row(("accumulate", "average"), [(1, 0.0), (2, 0.0), (1, 0.9)])
def test_interrupted_at_any_step_equals_uninterrupted(
    tmp_path: Path, accumulate: int, average: float
) -> None:
    """Dropout, bank, Adam's moments, averages, order, best figure and metrics agree bit for bit."""
    plan = stage(dev=dev(), evaluate_every=160, accumulate=accumulate, average=average)
    fit(plan, table(), tmp_path / "straight", evaluate=weight_figure)
    for round_ in range(50):
        wait = iter([False] * (round_ % 7) + [True])
        try:
            fit(plan, table(), tmp_path / "broken", evaluate=weight_figure, stop_requested=lambda: next(wait))  # noqa: B023
            break
        except Interrupted:
            continue
    assert round_ > 5
    assert _hash(tmp_path / "broken") == _hash(tmp_path / "straight")
    objective = "objective.safetensors"
    assert (tmp_path / "broken" / objective).read_bytes() == (tmp_path / "straight" / objective).read_bytes()
    assert _timeless(tmp_path / "broken") == _timeless(tmp_path / "straight")


def test_checkpoints_are_frequent_while_a_node_is_about_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks go on until they are ended: what they do then is not repeated."""
    saved: list[int] = []
    save = checkpoint.save

    def noted(folder: Path, step: int, state: Any) -> None:
        saved.append(step)
        save(folder, step, state)

    monkeypatch.setattr(checkpoint, "save", noted)
    monkeypatch.setattr(loop, "_OFTEN_S", 0.0)
    plan = stage()
    fit(plan, table(), tmp_path / "calm")
    calm, saved[:] = list(saved), []
    fit(plan, table(), tmp_path / "going", save_requested=lambda: True)
    assert len(saved) >= plan.steps - 1 > len(calm)
    assert _hash(tmp_path / "going") == _hash(tmp_path / "calm")


def test_checkpoints_need_no_pickle(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        fit(stage(), table(), tmp_path, stop_requested=lambda: True)
    (step,) = checkpoint.steps(tmp_path)
    state = torch.load(checkpoint.path_of(tmp_path, step), weights_only=True)
    assert set(state) == {"progress", "student", "objective", "optimizer", "meter", "rng"}


def test_a_metric_that_is_not_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"select='figur'.*Did you mean figure"):
        fit(stage(dev=dev("figur")), table(), tmp_path, evaluate=weight_figure)


def test_training_starts_from_the_weights_of_the_previous_stage(tmp_path: Path) -> None:
    fit(stage(), table(), tmp_path / "one")
    weights = tmp_path / "one" / "student.safetensors"
    again = stage(optimizer=Optimizer(1e-12), start_from=stage())
    fit(again, table(), tmp_path / "two", first_weights=weights)
    for name, value in tensors(tmp_path / "two" / "student.safetensors").items():
        torch.testing.assert_close(value, tensors(weights)[name])


def _hash(folder: Path) -> str:
    return str(read_manifest(folder)["weights_sha256"])


def _timeless(folder: Path) -> list[str]:
    lines = read_metrics(folder / "metrics.jsonl")
    for line in lines:
        line.pop("time")
        line["metrics"].pop("examples_per_second", None)
    return [json.dumps(line) for line in lines]
