"""The presets of SRA, SRA + KD and BiLSTM_KD: every value, with the place in Wu et al. that prints it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from rows import each_row
from test_contract import setting  # type: ignore[import-not-found]

from stillhouse.methods import load_method
from stillhouse.objectives.matching import CosineApproximation
from stillhouse.students.bilstm import BiLSTMStudent
from stillhouse.values.data import Recorded

STUDENT: dict[str, Any] = {
    "hidden": 512,  # section 4.3
    "head_hidden": 256,  # section 4.3
    "pooling": "max",  # not printed; the BiLSTM of GLUE, which section 3.2 follows
    "freeze_words": False,  # section 3.2: all parameters are optimised
    "dropout": 0.0,  # not printed
    "warmup": 0.0,  # not printed
}
DISTIL: dict[str, Any] = {
    "distil_learning_rate": 1e-3,  # section 4.3
    "distil_batch_size": 1024,  # section 4.3
}
FINETUNE: dict[str, Any] = {
    "finetune_learning_rate": 5e-4,  # section 4.3: of {2, 3, 5, 10}e-4, on the validation set
    "finetune_batch_size": 64,  # not printed
}
TRANSFER: dict[str, Any] = {
    "kd_weight": 1.0,  # section 4.2: as in Tang et al., a regression on logits alone
    "augment": "none",  # Table 1, rows 10 and 12
    "teacher_learning_rate": 3e-5,  # not printed
    "teacher_batch_size": 32,  # not printed
    "teacher_budget": 0,  # not printed
}
PRINTED = {
    "sra": STUDENT | DISTIL | FINETUNE,
    "sra_kd": STUDENT | DISTIL | FINETUNE | TRANSFER,
    "bilstm_kd": STUDENT | TRANSFER | {"fits": "logits", "learning_rate": 5e-4, "batch_size": 64},
}
BUDGETS = {
    "sra": {"distil": 262_144, "finetune": 32_768},
    "sra_kd": {"distil": 262_144, "finetune": 32_768},
    "bilstm_kd": {"finetune": 32_768},
}
ELSEWHERE = ("optimizer", "weight_decay", "decay", "clip_norm")


@each_row("name", PRINTED)
@each_row("preset", ["paper", "repo"])
def test_every_value_of_a_preset(name: str, preset: str) -> None:
    method: Any = load_method(name)
    values = vars(method.PRESETS.get(preset, method.PRESETS["paper"]))
    assert {key: value for key, value in values.items() if key not in ELSEWHERE} == PRINTED[name]
    assert method.BUDGET == BUDGETS[name]


@pytest.mark.parametrize("name", ["sra", "sra_kd"])
def test_the_stages_of_sra(name: str) -> None:
    method = load_method(name)
    stages = {stage.label: stage for stage in method.plan(method.PRESETS["paper"], setting()).chain()}
    assert sorted(stages) == (["finetune", "sra"] if name == "sra" else ["finetune", "sra", "teacher"])
    sra, finetune = stages["sra"], stages["finetune"]
    assert sra.objective.target is CosineApproximation, "eq. 1"
    assert (sra.batch_size, sra.optimizer.learning_rate, sra.budget) == (1024, 1e-3, 4096), "section 4.3"
    assert sra.student.target is BiLSTMStudent and sra.student.kwargs["hidden"] == 512, "section 4.3"
    assert sra.student.kwargs["dim"] == setting().teacher_dim, "section 3.1: H is mapped to T_x"
    assert sra.stores["text"].teacher == setting().teacher and sra.start_from is None
    assert finetune.start_from == sra and finetune.student == sra.student
    assert (finetune.batch_size, finetune.optimizer.learning_rate, finetune.budget) == (64, 5e-4, 1024)
    head = finetune.objective.kwargs["head"].kwargs
    assert head == {"classes": 3, "pair": True, "hidden": 256, "dropout": 0.0}, "section 4.3"
    alpha = finetune.objective.kwargs["loss"].kwargs["alpha"]
    assert alpha == (1.0 if name == "sra" else 0.0), "labels for SRA, the teacher's logits for SRA + KD"
    if name == "sra_kd":
        _check_teacher(stages["teacher"])
        assert isinstance(finetune.examples.origin, Recorded)
        assert finetune.examples.origin.stage == stages["teacher"]


def test_the_stages_of_bilstm_kd() -> None:
    method = load_method("bilstm_kd")
    teacher, kd = method.plan(method.PRESETS["paper"], setting()).chain()
    _check_teacher(teacher)
    assert (kd.label, kd.batch_size, kd.optimizer.learning_rate, kd.budget) == ("kd", 64, 5e-4, 1024)
    assert kd.student.target is BiLSTMStudent and kd.student.kwargs["hidden"] == 512 and kd.start_from is None
    assert kd.objective.kwargs["loss"].kwargs["alpha"] == 0.0 and not kd.stores


def _check_teacher(teacher: Any) -> None:
    assert (teacher.label, teacher.batch_size, teacher.optimizer.learning_rate) == ("teacher", 32, 3e-5)
    assert teacher.budget == 1024 and teacher.objective.kwargs["loss"].kwargs["alpha"] == 1.0


SPACE = ["2e-4", "3e-4", "5e-4", "1e-3"]
"""Section 4.3: {2, 3, 5, 10} x 1e-4."""
RATE = {"low": "1e-4", "high": "3e-3", "log": True}
FIRST = {
    "distil_learning_rate": "1e-3",
    "distil_batch_size": 1024,
    "finetune_learning_rate": "5e-4",
    "finetune_batch_size": 64,
    "dropout": 0.0,
}
CONTINUOUS = {
    "distil_learning_rate": {"low": "1e-4", "high": "1e-2", "log": True},
    "distil_batch_size": {"low": 64, "high": 1024, "step": 64},
    "finetune_learning_rate": RATE,
    "finetune_batch_size": {"low": 32, "high": 256, "step": 32},
    "dropout": {"low": 0.0, "high": 0.5},
}
WEIGHT = {"kd_weight": {"low": 0.1, "high": 1.0}}
SEARCHED: dict[str, dict[str, Any]] = {
    "sra": {"space": {"finetune_learning_rate": SPACE}, "continuous": CONTINUOUS, "first": FIRST},
    "sra_kd": {
        "space": {"finetune_learning_rate": SPACE},
        "continuous": WEIGHT | CONTINUOUS,
        "first": {"kd_weight": 1.0} | FIRST,
    },
    "bilstm_kd": {
        "space": {"learning_rate": SPACE},
        "continuous": WEIGHT
        | {
            "learning_rate": RATE,
            "batch_size": {"low": 32, "high": 256, "step": 32},
            "dropout": {"low": 0.0, "high": 0.5},
        },
        "first": {"kd_weight": 1.0, "learning_rate": "5e-4", "batch_size": 64, "dropout": 0.0},
    },
}


@each_row("name", SEARCHED)
def test_every_value_of_the_search_space(name: str) -> None:
    path = Path(__file__).resolve().parents[2] / "search_spaces" / f"{name}.yaml"
    assert yaml.safe_load(path.read_text()) == {"method": name, "search": SEARCHED[name]}
