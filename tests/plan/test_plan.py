"""Only a dev suite can steer training: a test suite has another type, accepted only by reports."""

from typing import Any

import pytest

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.losses.regression import MSE
from stillhouse.methods import hyper_parameters, load_method
from stillhouse.plan.data import AllRows, Examples, Model, Store, TextTable
from stillhouse.plan.setting import SentenceData, Setting
from stillhouse.plan.stage import DevSuite, Optimizer, Stage, TestSuite
from stillhouse.students.transformer import TransformerStudent

TEACHER, TEXTS = Model("teacher"), TextTable("texts")
STUDENT = spec(TransformerStudent, base=TEACHER, layers=(0,))


def stage(dev: Any) -> Stage:
    return Stage(
        label="distil",
        student=STUDENT,
        objective=spec(MSE),
        examples=Examples({"text": TEXTS}, AllRows()),
        stores={},
        budget=64,
        batch_size=16,
        optimizer=Optimizer(1e-3),
        dev=dev,
    )


def sweep(dev: Any) -> Stage:
    """Return the context from which the trials of a sweep are planned."""
    method = load_method("mse")
    data = {Sentences.key: SentenceData(Store(TEXTS, TEACHER), rows=64)}
    setting = Setting(TEACHER, STUDENT, dev, data, 64, teacher_dim=4)
    return method.plan(hyper_parameters(method, {"batch_size": 16}, "paper"), setting)


@pytest.mark.parametrize("build", [stage, sweep])
def test_neither_a_stage_nor_a_sweep_takes_a_test_suite(build: Any) -> None:
    suite = DevSuite((), select="quality")
    assert build(suite).dev == suite
    with pytest.raises(BadInput, match=r"never a test suite.*suite='TestSuite'"):
        build(TestSuite(()))
