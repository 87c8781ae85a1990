"""What is put together for `train`, without training it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

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
def test_one_student_is_trained_without_a_refit_which_is_said(
    refit: Mapping[str, Any], tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(f"sentence number {row}" for row in range(300)))
    (run,) = chosen_runs(None, method="mse")
    plain = training_of(run, of_a_sweep(tiny_model, corpus, {}))
    assert not capsys.readouterr().out
    training = training_of(run, of_a_sweep(tiny_model, corpus, refit))
    assert training == plain and not training.experiment.budget.refit.asked_for
    assert "budget.refit is for the best trials of `stillhouse sweep`" in capsys.readouterr().out
