"""The presets of the cross-lingual method: every value, with the place in Ding et al. that prints it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from test_contract import setting  # type: ignore[import-not-found]

from stillhouse.losses.multilingual import MultilingualContrast, MultilingualCrossEntropy
from stillhouse.methods import hyper_parameters, load_method, with_defaults
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.transformer import TransformerStudent
from stillhouse.values.stage import Stage

METHOD = load_method("crosslingual")
PAPER: dict[str, Any] = {
    "learning_rate": 2e-5,  # section 4.2
    "batch_size": 64,  # section 4.2
    "warmup": 0.1,  # section 4.2
    "unit": 3,  # Tables 1 and 2
    "repeats": 0,  # caption of Table 1: layers of the model / |RU|
    "bottleneck": 128,  # Tables 1 and 2
    "bottleneck_start": "random",  # section 4.6, "untrained embedding bottleneck layers"
    "dimensions": "sum",  # eq. 2-4 and 6
    "contrast": "teacher",  # eq. 5
    "contrast_weight": 1.0,  # eq. 7
    "temperature": 0.05,  # section 4.5
    "recipe": "multi",  # Table 6
    "contrast_epochs": 0.0,  # section 4.2: 60; here the budget
}
REPO = {**PAPER, "learning_rate": 8e-5, "batch_size": 512, "dimensions": "mean"}
ELSEWHERE = ("optimizer", "weight_decay", "decay", "clip_norm")
"""Held by the test of all methods' optimisers."""


def plan(preset: str, **values: Any) -> dict[str, Stage]:
    last = METHOD.plan(hyper_parameters(METHOD, values, preset), setting())
    return {stage.label: stage for stage in last.chain()}


@pytest.mark.parametrize(("preset", "printed"), [("paper", PAPER), ("repo", REPO)])
def test_every_value_of_a_preset(preset: str, printed: dict[str, Any]) -> None:
    values = vars(METHOD.PRESETS[preset])
    assert {name: value for name, value in values.items() if name not in ELSEWHERE} == printed


@pytest.mark.parametrize(("preset", "rate", "reduction"), [("paper", 2e-5, "sum"), ("repo", 8e-5, "mean")])
def test_every_stage_of_a_preset(preset: str, rate: float, reduction: str) -> None:
    stages = plan(preset)
    assert list(stages) == ["assistant", "align", "student", "contrast"]
    assert METHOD.PRUNABLE_FROM == "contrast", "figures of stages 1 to 3 are of other students"
    for stage in stages.values():
        assert (stage.optimizer.learning_rate, stage.optimizer.warmup) == (rate, 0.1), "section 4.2"
        assert stage.batch_size == (64 if preset == "paper" else 512), "section 4.2; 64 on each of 8 GPUs"
        assert stage.budget == 4096
        mse = stage.objective.kwargs["mse"]
        assert mse.kwargs == {"dimensions": reduction}, "eq. 2-4 and 6"
    # Stage 1: the full encoder, fitted to the teacher's vectors of the sources (eq. 2).
    assistant = stages["assistant"]
    assert assistant.student.target is TransformerStudent and "layers" not in assistant.student.kwargs
    assert set(assistant.stores) == {"source"} and assistant.stores["source"].teacher == setting().teacher
    # Stage 2: the embedding layer alone, fitted to the assistant's as it runs (eq. 3).
    align = stages["align"]
    assert align.student.kwargs["repeats"] == 0 and align.student.kwargs["bottleneck"] == 128
    assert align.live is not None and align.live.start_from == align.start_from == assistant
    assert align.live.model.kwargs["repeats"] == 0 and "bottleneck" not in align.live.model.kwargs
    # Stage 3: the recurrent student, fitted to the assistant's vectors of both sides (eq. 4).
    student = stages["student"]
    assert student.student.target is RecurrentStudent and student.student.kwargs["unit"] == 3
    assert student.student.kwargs["repeats"] is None and student.student.kwargs["bottleneck"] == 128
    assert student.start_from == align and set(student.stores) == {"source", "target"}
    assert all(store.teacher == assistant for store in student.stores.values())
    # Stage 4: the same student, fitted to the teacher again, with the contrast (eq. 5-7).
    contrast = stages["contrast"]
    assert contrast.student == student.student and contrast.start_from == student
    assert contrast.stores == assistant.stores and contrast.objective.kwargs["weight"] == 1.0
    assert contrast.objective.kwargs["contrast"].target is MultilingualContrast
    assert contrast.objective.kwargs["contrast"].kwargs == {"labels": "teacher"}


def test_the_contrasts_of_table_5() -> None:
    found = {
        name: plan("paper", contrast=name)["contrast"].objective.kwargs["contrast"]
        for name in ("teacher", "same", "ce", "none")
    }
    assert found["teacher"].kwargs == {"labels": "teacher"} and found["same"].kwargs == {"labels": "same"}
    assert found["ce"].target is MultilingualCrossEntropy and found["ce"].kwargs == {"temperature": 0.05}
    assert found["none"] is None


def test_a_user_s_budget_wins_over_that_of_the_method() -> None:
    from stillhouse.experiments.budget import Budget
    from stillhouse.experiments.experiment import Experiment

    assert METHOD.BUDGET == {"distil": 32_768}  # type: ignore[attr-defined]
    assert with_defaults(METHOD, Experiment()).budget == Budget(distil=32_768, finetune=768)
    given = Budget(distil=100, finetune=0)
    assert with_defaults(METHOD, Experiment(budget=given)).budget == given


def test_every_value_of_the_search_space() -> None:
    path = Path(__file__).resolve().parents[2] / "search_spaces" / "crosslingual.yaml"
    assert yaml.safe_load(path.read_text()) == {
        "method": "crosslingual",
        "search": {
            "space": {
                "unit": [3, 6, 12],  # 3 and 12: Tables 1 and 2; 6: Tables 7 and 8
                "bottleneck": [0, 128, 256],  # 0 and 128: Tables 1 and 2; 256: Tables 7 and 8
                "contrast": ["teacher", "same", "ce", "none"],  # Table 5
            },
            "continuous": {
                "learning_rate": {"low": "1e-5", "high": "3e-4", "log": True},  # around section 4.2's 2e-5
                "batch_size": {"low": 32, "high": 128, "step": 32},  # around section 4.2's 64
                "unit": [3, 6, 12],
                "bottleneck": [0, 128, 256],
                "contrast": ["teacher", "same", "ce", "none"],
            },
            "first": {
                "learning_rate": "2e-5",
                "batch_size": 64,
                "unit": 3,
                "bottleneck": 128,
                "contrast": "teacher",
            },
        },
    }
