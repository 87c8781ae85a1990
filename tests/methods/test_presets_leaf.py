"""LEAF (Vujanic and Rueckstiess, arXiv:2509.12539): every value of its preset and of its search space."""

from dataclasses import replace
from typing import Any

import pytest
from preset_arguments import first, grid, stage_arguments
from test_contract import setting  # type: ignore[import-not-found]

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.methods import hyper_parameters, load_method
from stillhouse.students.bilstm import BiLSTMStudent
from stillhouse.values.data import Model
from stillhouse.values.kinds import needed

LEAF: dict[str, Any] = {
    "objective": "Alignment",
    "batch_size": 32,  # to the best of our knowledge
    "budget": 4096,  # the setting's
    "learning_rate": 1e-4,  # to the best of our knowledge
    "name": "adamw",  # to the best of our knowledge
    "weight_decay": 0.01,  # ours
    "warmup": 0.1,  # ours
    "decay": "linear",  # to the best of our knowledge
    "clip_norm": 1.0,  # ours
    "student.projection": 24,  # the teacher's dimension
    "mse.projection": False,  # it is the student's
    "mse.bias": False,
    "mse.identity_init": True,
    "mse.dimensions": "sum",  # the squared distance
    "mse.normalize": False,
    "normalize": True,  # the setting's teacher has any length, its student length 1
    "relational_weight": 0.0,
    "cosine_weight": 0.0,
    "spread_weight": 0.0,
}
WEIGHTS = {"relational_weight": 3.0, "cosine_weight": 0.5, "spread_weight": 0.2}


def test_every_value_of_the_preset() -> None:
    assert list(load_method("leaf").PRESETS) == ["paper"]
    assert stage_arguments("leaf", "paper", setting()) == {"leaf": LEAF}


def test_every_weight_and_the_epochs_reach_the_stage() -> None:
    method = load_method("leaf")
    counted = replace(setting(), rows={setting()[Sentences].examples.fingerprint: 1000})
    plan = method.plan(hyper_parameters(method, {**WEIGHTS, "epochs": 3}), counted)
    assert {name: plan.objective.kwargs[name] for name in WEIGHTS} == WEIGHTS
    assert plan.budget == 3000
    with pytest.raises(BadInput, match="epochs >= 0"):
        hyper_parameters(method, {"epochs": -1})


def test_it_reads_texts_and_vectors_alone() -> None:
    method = load_method("leaf")
    assert [(need.kind, need.required) for need in needed(method.needs)] == [(Sentences, True)]
    (stage,) = method.plan(method.HyperParameters(), setting()).chain()
    assert list(stage.stores) == ["text"] and stage.live is None


def test_a_student_that_cannot_end_in_a_layer_is_refused() -> None:
    method, given = load_method("leaf"), setting()
    given = given.__class__(**{**vars(given), "student": spec(BiLSTMStudent, words=Model("w"))})
    with pytest.raises(BadInput, match="the method sets projection, which BiLSTMStudent does not have"):
        method.plan(method.HyperParameters(), given)


def test_the_search_space() -> None:
    assert grid("leaf") == {
        "learning_rate": (1e-4, 3e-4, 1e-3),
        "batch_size": (16, 32, 256),  # to the best of our knowledge, those that the paper compares
        "relational_weight": (0, 1, 10),
        "cosine_weight": (0, 1),
        "spread_weight": (0, 0.1, 1),
    }
    assert grid("leaf", "continuous") == {
        "learning_rate": (3e-5, 5e-3, {"log": True}),
        "batch_size": (32, 256, {"step": 32, "log": False}),
        "relational_weight": (0.0, 20.0, {"log": False}),
        "spread_weight": (0.0, 1.0, {"log": False}),
    }
    published = {"learning_rate": 1e-4, "batch_size": 32, "relational_weight": 0, "spread_weight": 0}
    assert first("leaf") == {**published, "cosine_weight": 0}
    assert first("leaf", "continuous") == published
