"""The walk over what values name: inputs first, nothing behind what is finished, other parts in place."""

from dataclasses import replace
from typing import Any

from stillhouse.core.identity import spec
from stillhouse.evaluation.agreement import Agreement
from stillhouse.values.data import (
    Examples,
    Given,
    Mined,
    Model,
    Recorded,
    Store,
    StoreEnsemble,
    TextTable,
    sample,
)
from stillhouse.values.graph import missing, reached, swapped
from stillhouse.values.stage import DevSuite, Optimizer, Stage

QUERIES, PASSAGES = TextTable("q", label="queries"), TextTable("p", label="passages")
COLUMNS = {"query": QUERIES, "passage": PASSAGES}
PAIRS = Examples(COLUMNS, Given("g"))
TEACHER = Model("t")
NEAR, FAR = Store(QUERIES, TEACHER), Store(PASSAGES, TEACHER)
MINED = Examples({**COLUMNS, "negatives": PASSAGES}, Mined(PAIRS, NEAR, FAR, negatives=1))


def stage_of(examples: Examples, **changes: Any) -> Stage:
    given: dict[str, Any] = {
        "label": "s",
        "student": spec(Optimizer, learning_rate=1.0),
        "objective": spec(Optimizer, learning_rate=1.0),
    }
    stage = Stage(**given, examples=examples, stores={}, budget=8, batch_size=2, optimizer=Optimizer(1e-3))
    return replace(stage, **changes)


def test_inputs_come_first_and_nothing_is_behind_what_is_finished() -> None:
    dev = DevSuite((spec(Agreement, store=FAR, pairs=3),), select="x")
    stage = stage_of(sample(MINED, 0.5), stores={"query": NEAR}, dev=dev)
    assert missing([stage, {"again": MINED}], lambda _: False) == [NEAR, FAR, MINED]
    assert missing([stage], lambda artifact: artifact == MINED) == [NEAR, FAR], (
        "the stage and dev read them too"
    )
    assert missing([MINED, PAIRS, None, "text"], lambda artifact: artifact in (MINED, FAR)) == []


def test_what_needs_a_stage_waits_for_it() -> None:
    teacher = stage_of(MINED)
    student = stage_of(Examples(COLUMNS, Recorded(PAIRS, teacher)), start_from=teacher)
    taught = Store(PASSAGES, teacher)
    assert missing([student, taught], lambda _: False) == [], "nor are the inputs of another stage made"
    assert missing([student, taught], lambda artifact: artifact == teacher) == [student.examples, taught]
    assert reached(Store, student) == [NEAR, FAR]


def test_parts_are_swapped_wherever_they_are() -> None:
    joined = StoreEnsemble(QUERIES, (NEAR, NEAR), (0.5, 0.5))
    suite = DevSuite((spec(Agreement, store=joined, pairs=3),), select="x")
    other = replace(NEAR, prompt="query: ")

    def change(store: Store) -> Store:
        return other if store == NEAR else store

    found = swapped({"dev": suite, "mined": (MINED,)}, Store, change)
    assert reached(Store, found) == [other, FAR]
    assert swapped(suite, Store, lambda part: part) is suite
    kept = swapped((MINED, NEAR), Store, change, but=Examples)
    assert kept[0] is MINED and kept[1] == other
