"""The presets of retrieval KD: every value, with the place in Shakeri et al. that prints it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from test_contract import setting  # type: ignore[import-not-found]

from stillhouse.experiments.kinds.claims import Claims
from stillhouse.losses.softlabel import SoftLabelCE, SoftLabelMSE
from stillhouse.methods import hyper_parameters, load_method
from stillhouse.students.towers import SeparateTowers, SimpleCNN, SimpleLSTM
from stillhouse.values.data import Scored
from stillhouse.values.stage import Optimizer

METHOD = load_method("retrieval_kd")
PRINTED: dict[str, Any] = {
    "encoder": "lstm",  # section 3.2; the better one, Table 5
    "towers": "tied",  # the 141 k parameters of Table 8 are those of one tower
    "units": 50,  # the 141 k parameters of Table 8
    "soft_loss": "mse",  # Table 3, best
    "alpha": 0.2,  # Table 3, best
    "temperature": 3.0,  # Table 3, best
    "softened": "teacher",  # eq. 1
    "scale": False,  # eq. 2 and 3 print no T²
    "compared": "probabilities",  # eq. 2
    "gold": "sum",  # eq. 2
    "train_words": False,  # the 141 k parameters of Table 8
    "teacher_model": "coattention",  # section 3.1
    "teacher_units": 256,  # the 2.85 M parameters of Table 8
}
OURS: dict[str, Any] = {
    "learning_rate": 1e-3,
    "batch_size": 32,
    "pooling": "max",
    "joiner": "bilinear",
    "dropout": 0.0,
    "teacher_learning_rate": 0.0,  # by the kind of teacher
    "teacher_batch_size": 16,
    "teacher_budget": 0,
    "warmup": 0.0,
}
"""Not printed."""
ELSEWHERE = ("optimizer", "weight_decay", "decay", "clip_norm")


@pytest.mark.parametrize("preset", ["paper", "repo"])
def test_every_value_of_a_preset(preset: str) -> None:
    values = vars(METHOD.PRESETS.get(preset, METHOD.PRESETS["paper"]))
    assert {name: value for name, value in values.items() if name not in ELSEWHERE} == PRINTED | OURS


def test_every_stage() -> None:
    teacher, student = METHOD.plan(METHOD.PRESETS["paper"], setting()).chain()
    assert (teacher.label, student.label) == ("teacher", "retrieval_kd")
    assert teacher.objective.kwargs["hard"].kwargs == {"gold": "sum"}
    assert teacher.student.kwargs["units"] == 256 and not teacher.student.kwargs["train_words"]
    assert (teacher.batch_size, teacher.budget, teacher.optimizer.learning_rate) == (16, 4096, 1e-3)
    assert student.student.target is SimpleLSTM
    kept = {name: student.student.kwargs[name] for name in ("units", "pooling", "train_words", "dropout")}
    assert kept == {"units": 50, "pooling": "max", "train_words": False, "dropout": 0.0}
    loss = student.objective.kwargs["loss"].kwargs
    assert loss["alpha"] == 0.2 and loss["hard"].kwargs == {"gold": "sum"}, "Table 3 and eq. 3"
    assert loss["soft"].target is SoftLabelMSE, "Table 3"
    assert loss["soft"].kwargs == {
        "temperature": 3.0,
        "softened": "teacher",
        "scale": False,
        "compared": "probabilities",
    }, "Table 3, eq. 1 and 2"
    assert student.objective.kwargs["joiner"].kwargs == {"kind": "bilinear"}
    assert (student.batch_size, student.budget, student.optimizer.learning_rate) == (32, 4096, 1e-3)
    assert isinstance(student.examples.origin, Scored) and student.examples.origin.teacher == teacher


def test_the_options_reach_the_plan() -> None:
    values: dict[str, Any] = {"soft_loss": "ce", "softened": "both", "scale": True}
    values |= {"towers": "separate", "encoder": "cnn"}
    values |= {"temperature": 5.0, "alpha": 0.5, "teacher_budget": 640}
    plan = METHOD.plan(hyper_parameters(METHOD, values), setting())
    assert [stage.budget for stage in plan.chain()] == [640, 4096]
    soft = plan.objective.kwargs["loss"].kwargs["soft"]
    assert soft.target is SoftLabelCE
    transformer = METHOD.plan(hyper_parameters(METHOD, {"teacher_model": "transformer"}), setting())
    assert next(transformer.chain()).optimizer == Optimizer(3e-5, "adamw", 0.01, 0.1, "linear", 1.0), "BERT's"
    assert soft.kwargs == {"temperature": 5.0, "softened": "both", "scale": True}
    assert plan.student.target is SeparateTowers and plan.student.kwargs["tower"].target is SimpleCNN
    assert plan.student.kwargs["tower"].kwargs["filters"] == 50


def test_the_candidates_and_the_split_of_section_2_1() -> None:
    claims = Claims("fever")
    assert claims.candidates == 10 and claims.split_by == "claim"


def test_every_value_of_the_search_space() -> None:
    path = Path(__file__).resolve().parents[2] / "search_spaces" / "retrieval_kd.yaml"
    assert yaml.safe_load(path.read_text()) == {
        "method": "retrieval_kd",
        "search": {
            "space": {
                "encoder": ["lstm", "cnn"],  # section 3.2
                "soft_loss": ["mse", "ce"],  # eq. 2
                "alpha": [0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0],  # Tables 3, 4, 6 and 7
                "temperature": [1, 2, 3, 4, 5, 6],  # Tables 3, 4, 6 and 7
            },
            "continuous": {
                "learning_rate": {"low": "1e-4", "high": "1e-2", "log": True},  # not printed
                "encoder": ["lstm", "cnn"],
                "soft_loss": ["mse", "ce"],
                "alpha": {"low": 0.1, "high": 1.0},
                "temperature": {"low": 1.0, "high": 6.0},
            },
            "first": {
                "learning_rate": "1e-3",
                "encoder": "lstm",
                "soft_loss": "mse",
                "alpha": 0.2,
                "temperature": 3.0,
            },
        },
    }
