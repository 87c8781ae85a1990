"""What is put together for `train`, without training it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rows import each_row

from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.sweeps.runs import chosen_runs, training_of


def of_a_sweep(model: Path, corpus: Path, refit: Mapping[str, Any]) -> Experiment:
    """An experiment with these budgets of a refit."""
    fields = {
        "teacher.name": str(model),
        "student.layers": [0],
        "sentences.corpus": str(corpus),
        "pairs": None,
    }
    return changed(Experiment(), {**fields, "budget.distil": 640, **refit})


@pytest.mark.parametrize("refit", [{"budget.refit.distil": 64}, {"budget.refit.distil": 6400}])
def test_one_student_is_trained_without_a_refit(
    refit: Mapping[str, Any], tiny_model: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(f"sentence number {row}" for row in range(300)))
    (run,) = chosen_runs(None, method="mse")
    plain = training_of(run, of_a_sweep(tiny_model, corpus, {}))
    training = training_of(run, of_a_sweep(tiny_model, corpus, refit))
    assert training == plain and not training.experiment.budget.refit.asked_for


@each_row(
    ("changes", "values", "preset", "sizes"),
    [
        ({}, {}, "", (32, 16)),
        ({"budget.distil": 512 * 200}, {}, "", (512, 16)),
        ({"budget.distil": 512 * 200 - 1}, {}, "", (256, 16)),
        ({}, {"batch_size": 256}, "", (256, 16)),
        ({}, {}, "paper", (512, 128)),
        ({"budget.accumulate": 16}, {}, "", (32, 16)),
        ({"budget.finetune": 0}, {}, "", (32, 128)),
    ],
)
def test_a_batch_that_nobody_chose_shrinks_until_there_are_steps(
    changes: Mapping[str, Any],
    values: Mapping[str, Any],
    preset: str,
    sizes: tuple[int, int],
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(f"sentence number {row}" for row in range(300)))
    (tmp_path / "pairs.jsonl").write_text('{"query": "a", "passage": "b"}\n')
    fields = {"pairs.path": str(tmp_path / "pairs.jsonl"), "budget.distil": 7680, "budget.finetune": 768}
    experiment = changed(of_a_sweep(tiny_model, tmp_path / "texts.txt", {}), {**fields, **changes})
    (run,) = chosen_runs(None, method="mse", preset=preset)
    training = training_of(run, experiment, values=values)
    hp = training.hp
    assert (hp.batch_size, hp.finetune_batch_size) == sizes
    assert not capsys.readouterr().err, "not before all is checked"
    training.say_notes()
    said = f"batch_size is {hp.batch_size} instead of 512" in capsys.readouterr().err
    assert said == (hp.batch_size not in (512, values.get("batch_size")))
