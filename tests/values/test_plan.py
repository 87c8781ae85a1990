"""Only a dev suite can steer training, and whatever changes a result changes the name of its artifact."""

import dataclasses
from typing import Any

import pytest
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import fingerprint, spec
from stillhouse.core.roles import Prompts
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.losses.regression import MSE
from stillhouse.methods import hyper_parameters, load_method
from stillhouse.students.transformer import TransformerStudent
from stillhouse.values.data import AllRows, Examples, Model, Store, TextTable
from stillhouse.values.setting import PairData, SentenceData, Setting
from stillhouse.values.stage import DevSuite, Live, Optimizer, Stage, TestSuite

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


STORE = Store(TEXTS, TEACHER)
OTHER: dict[type, dict[str, Any]] = {
    Store: {
        "texts": TextTable("other"),
        "teacher": Model("other"),
        "max_length": 64,
        "prompt": "query: ",
        "compute": "bfloat16",
        "dtype": "float32",
        "runtime": "openvino",
    },
    Optimizer: {
        "learning_rate": 1e-4,
        "name": "adam",
        "weight_decay": 0.01,
        "warmup": 0.1,
        "decay": "cosine",
        "clip_norm": 0.0,
    },
    Stage: {
        "label": "finetune",
        "student": spec(TransformerStudent, base=TEACHER, layers=(1,)),
        "objective": spec(MSE, dimensions="sum"),
        "examples": Examples({"text": TextTable("other")}, AllRows()),
        "stores": {"text": STORE},
        "budget": 128,
        "batch_size": 32,
        "optimizer": Optimizer(1e-4),
        "max_length": 64,
        "accumulate": 2,
        "autocast": "bfloat16",
        "seed": 1,
        "start_from": stage(None),
        "live": Live(STUDENT),
        "dev": DevSuite((), select="figure"),
        "evaluate_every": 16,
        "evaluate_at": (8,),
        "patience": 3,
        "prompts": Prompts(query="query: "),
        "keeps_objective": True,
        "average": 0.99,
        "soup": 3,
        "batch_tokens": 4096,
        "length_window": 512,
        "shard_window": 4,
        "least_squares": 64,
    },
}
"""Another value of every field."""


@each_row("value", [STORE, Optimizer(1e-3), stage(None)])
def test_every_field_is_part_of_the_name(value: Any) -> None:
    others = OTHER[type(value)]
    assert set(others) == {field.name for field in dataclasses.fields(value)}, (
        "a new field has another value here"
    )
    names = [fingerprint(dataclasses.replace(value, **{name: other})) for name, other in others.items()]
    assert len({*names, fingerprint(value)}) == len(others) + 1


def test_evaluations_are_counted_per_stage_or_in_steps() -> None:
    texts = TextTable("pairs")
    pairs = Examples({"query": texts, "passage": texts}, AllRows())
    data = {
        Sentences.key: SentenceData(Store(TEXTS, TEACHER), rows=64),
        Pairs.key: PairData(pairs, dict.fromkeys(pairs.columns, Store(texts, TEACHER))),
    }
    dev = DevSuite((), select="quality")
    setting = Setting(
        TEACHER, STUDENT, dev, data, 4096, teacher_dim=4, finetune_budget=1024, evaluations=4, patience=3
    )
    method = load_method("mse")
    hp = hyper_parameters(method, {"batch_size": 16, "finetune_batch_size": 8}, "paper")

    def schedules(**changes: Any) -> list[tuple[int, int]]:
        chain = method.plan(hp, dataclasses.replace(setting, **changes)).chain()
        return [(stage.evaluate_every, stage.patience) for stage in chain]

    assert schedules() == [(1024, 3), (256, 3)]
    assert schedules(every=5) == [(5 * 16, 3), (5 * 8, 3)]
    assert schedules(every=5, finetune_patience=0) == [(5 * 16, 3), (5 * 8, 0)]
    assert schedules(finetune_patience=7) == [(1024, 3), (256, 7)]
