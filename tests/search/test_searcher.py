import dataclasses
import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from rows import each_row
from sqlalchemy import Engine, event
from studies import DISCRETE, FULL, NUMERIC, drive, finish, quality, searcher  # type: ignore[import-not-found]

from stillhouse.core.errors import BadInput
from stillhouse.search import samplers
from stillhouse.search.optuna_params import decode, encode
from stillhouse.search.records import TrialRecord
from stillhouse.search.searcher import ExplainErrors, StudySearcher
from stillhouse.search.space import Categorical, Float, Space

pytestmark = pytest.mark.usefixtures("no_backups")

# Suggesting.


@each_row("sampler", ["tpe", "random", "qmc"])
def test_the_first_point_comes_first_then_distinct_points_of_the_space(tmp_path: Path, sampler: str) -> None:
    search = searcher(tmp_path, sampler=sampler)
    drive(search)
    points = [dict(record.hyper_parameters) for record in search.records()]
    assert points[0] == NUMERIC.first
    assert len(points) == 8 and all(p not in points[:i] for i, p in enumerate(points))
    for point in points:
        assert all(NUMERIC.domains[name].holds(value) for name, value in point.items())
        assert isinstance(point["layers"], tuple)


def test_a_second_point_comes_next(tmp_path: Path) -> None:
    second = {**NUMERIC.first, "layers": NUMERIC.domains["layers"].choices[-1]}
    search = searcher(tmp_path, dataclasses.replace(NUMERIC, second=second), trials=3)
    drive(search)
    points = [record.hyper_parameters for record in search.records()]
    assert points[:2] == [NUMERIC.first, second] and points[2] not in points[:2]


def test_another_seed_is_another_search(tmp_path: Path) -> None:
    searches = [searcher(tmp_path / str(seed), seed=seed) for seed in (1, 2)]
    for search in searches:
        drive(search)
    one, two = ([record.hyper_parameters for record in search.records()] for search in searches)
    assert one[0] == two[0] and all(a != b for a, b in zip(one[1:], two[1:], strict=True))


def test_tpe_learns(tmp_path: Path) -> None:
    means = {}
    for sampler in ("tpe", "random"):
        search = searcher(tmp_path / sampler, sampler=sampler, trials=24)
        drive(search)
        late = [quality(dict(r.hyper_parameters)) for r in search.records()[12:]]
        means[sampler] = sum(late) / len(late)
    assert means["tpe"] > means["random"] + 0.3


def test_grid_visits_every_point_once_and_ends(tmp_path: Path) -> None:
    search = searcher(tmp_path, DISCRETE, sampler="grid", trials=100)
    for turn in range(6):
        assert search.suggest(f"t{turn}") != "FINISHED"
    assert search.suggest("t6") == "FINISHED"
    points = [tuple(r.hyper_parameters.values()) for r in search.records()]
    assert points[0] == (2, "y")
    assert sorted(points) == [(a, b) for a in (1, 2, 3) for b in ("x", "y")]
    assert points[1:] != [p for p in sorted(points) if p != (2, "y")]


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_finite_space_is_exhausted_without_repeats(tmp_path: Path, sampler: str) -> None:
    search = searcher(tmp_path, DISCRETE, sampler=sampler, trials=100)
    for turn in range(6):
        assert search.suggest(f"t{turn}") != "FINISHED"
        finish(search, f"t{turn}", 0.1 * turn)
    assert search.suggest("t6") == "FINISHED"
    assert len({tuple(r.hyper_parameters.values()) for r in search.records()}) == 6


def test_list_values_round_trip_through_optuna() -> None:
    space = Space("m", {"layers": Categorical(((0, 2, 4), (), None, "first")), "x": Float(0.0, 1.0)})
    for choice in ((0, 2, 4), (), None, "first"):
        stored = encode({"x": 0.5, "layers": choice}, space)
        optuna.distributions.CategoricalDistribution([stored["layers"]])
        assert isinstance(stored["layers"], str | None)
        assert decode(stored, space) == {"x": 0.5, "layers": choice}


def test_a_new_file_adds_a_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smallest.py").write_text(
        "def check(space): pass\ndef candidates(search):\n    for a in (1, 2, 3): yield {'a': a, 'b': 'x'}\n"
    )
    monkeypatch.setattr(samplers, "__path__", [*samplers.__path__, str(tmp_path)])
    assert samplers.known_samplers() == ["grid", "qmc", "random", "smallest", "tpe"]
    search = searcher(tmp_path, DISCRETE, sampler="smallest")
    points = [search.suggest(f"t{turn}") for turn in range(3)]
    assert [p["hyper_parameters"]["a"] for p in points if isinstance(p, dict)] == [2, 1, 2]


def test_unsuitable_samplers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="quasi-random"):
        searcher(tmp_path, DISCRETE, sampler="qmc")
    with pytest.raises(BadInput, match="a grid must have a list of values"):
        searcher(tmp_path, NUMERIC, sampler="grid")
    with pytest.raises(BadInput, match="Did you mean random"):
        searcher(tmp_path, NUMERIC, sampler="randon")
    with pytest.raises(BadInput, match="trials >= 1"):
        searcher(tmp_path, NUMERIC, trials=0)
    assert not (tmp_path / "study.db").exists()


@each_row("statement", ["CREATE TABLE", "CREATE UNIQUE INDEX", "INSERT INTO version_info"])
def test_a_process_that_is_killed_while_the_file_is_made_leaves_none(tmp_path: Path, statement: str) -> None:
    """Optuna does not make an index that is missing, without which every start would begin another study."""

    @event.listens_for(Engine, "before_cursor_execute")
    def kill(_connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
        if statement in sql:
            raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            searcher(tmp_path)
    finally:
        event.remove(Engine, "before_cursor_execute", kill)
    assert not (tmp_path / "study.db").exists()
    config = searcher(tmp_path).suggest("t")
    assert searcher(tmp_path).suggest("other") == config, "the same study"


def test_resuming_with_another_space_is_refused(tmp_path: Path) -> None:
    searcher(tmp_path, DISCRETE)
    searcher(tmp_path, DISCRETE, trials=20)
    with pytest.raises(BadInput, match="resumed with the space"):
        searcher(tmp_path, NUMERIC)
    with pytest.raises(BadInput, match="resumed with the space and the objectives"):
        searcher(tmp_path, DISCRETE, objectives=[("q", "max"), ("size", "min")])


# How trials end.


def ended(search: StudySearcher, result: dict[str, Any] | None, error: bool = False) -> TrialRecord:
    trial_id = f"tune{len(search.records())}"
    assert search.suggest(trial_id) != "FINISHED"
    search.on_trial_result(trial_id, {"q": 0.1, "examples_seen": 25})
    search.on_trial_complete(trial_id, result, error)
    return search.records()[-1]


def test_finished_trials_store_their_reports(tmp_path: Path) -> None:
    result = {
        "q": 0.7,
        "examples_seen": FULL,
        "finished": True,
        "metrics/recall@10": 0.9,
        "metrics/q": 0.7,
        "seconds": 4.5,
        "folder": "/of/a/node",
        "weights_sha256": "ab",
        "config/trial": 0,
    }
    record = ended(searcher(tmp_path), result)
    assert (record.state, record.values, record.curve) == ("COMPLETE", (0.7,), {25: 0.1})
    assert record.metrics == {"recall@10": 0.9, "q": 0.7}
    assert (record.seconds, record.examples, record.reason) == (4.5, FULL, None)
    assert record.attributes == {"weights_sha256": "ab"}


def test_stopped_trials_are_pruned_with_their_last_evaluation(tmp_path: Path) -> None:
    record = ended(searcher(tmp_path), {"q": 0.2, "examples_seen": 50, "finished": False})
    assert (record.state, record.values, record.curve) == ("PRUNED", (0.2,), {25: 0.1, 50: 0.2})
    assert (record.examples, record.reason) == (50, None)


def test_a_trial_stopped_at_the_full_budget_is_complete(tmp_path: Path) -> None:
    assert ended(searcher(tmp_path), {"q": 0.2, "examples_seen": FULL}).state == "COMPLETE"


def test_failed_trials_store_a_reason_and_do_not_stay_running(tmp_path: Path) -> None:
    search = searcher(tmp_path, trials=16)
    for result, error, reason in (
        ({"q": math.nan, "examples_seen": FULL, "finished": True}, False, "q=nan"),
        ({"q": math.inf, "examples_seen": FULL, "finished": True}, False, "q=inf"),
        ({"q": math.nan, "examples_seen": 50, "finished": False}, False, "q=nan"),
        ({"examples_seen": FULL, "finished": True}, False, "q=None"),
        ({"q": 0.3, "examples_seen": 50, "reason": "rank collapse"}, False, "rank collapse"),
        ({"q": math.nan, "examples_seen": 0, "reason": "the loss is NaN"}, False, "the loss is NaN"),
        ({}, False, "q=None"),
        (None, True, "ended with an error"),
    ):
        record = ended(search, result, error)
        assert (record.state, record.values) == ("FAIL", None), reason
        assert record.reason is not None and reason in record.reason
    assert ended(search, {"q": 1.0, "examples_seen": FULL, "finished": True}).state == "COMPLETE"


def test_an_error_is_explained_afterwards(tmp_path: Path) -> None:
    (tmp_path / "error.txt").write_text(
        "Failure # 1\nTraceback:\n  a line\nValueError: no such layer\n\tpid: 1\n\n"
    )
    search = searcher(tmp_path)
    number = ended(search, None, error=True).number
    for file in (None, str(tmp_path / "nowhere.txt"), str(tmp_path / "error.txt")):
        failed = SimpleNamespace(config={"trial": number}, error_file=file)
        ExplainErrors(search).on_trial_error(0, [], failed)
    assert search.records()[number].reason == "ValueError: no such layer"
    assert searcher(tmp_path).records()[number].reason == "ValueError: no such layer"
    complete = ended(search, {"q": 1.0, "finished": True, "examples_seen": FULL}).number
    search.explain(complete, "a late message")
    assert search.records()[complete].reason is None


def test_reports_without_a_finite_figure_are_ignored(tmp_path: Path) -> None:
    search = searcher(tmp_path)
    search.suggest("t")
    for result in ({}, {"q": 1.0}, {"examples_seen": 10}, {"q": math.nan, "examples_seen": 20}, {"q": None}):
        search.on_trial_result("t", result)
    search.on_trial_result("t", {"q": 0.25, "examples_seen": 30})
    search.on_trial_result("t", {"q": 0.5, "examples_seen": 30})
    search.on_trial_result("unknown", {"q": 0.5, "examples_seen": 40})
    search.on_trial_complete("unknown", {"q": 0.5, "examples_seen": 40})
    assert search.records()[0].curve == {30: 0.5}
    finish(search, "t")
    finish(search, "t", 0.9)
    search.on_trial_result("t", {"q": 0.1, "examples_seen": 60})
    record = search.records()[0]
    assert (record.values, record.curve) == ((0.5,), {30: 0.5})


def test_a_cancelled_trial_is_resumed_by_the_next_process(tmp_path: Path) -> None:
    search = searcher(tmp_path)
    config = search.suggest("t")
    search.on_trial_complete("t", None, error=False)
    assert search.records()[0].state == "RUNNING"
    assert searcher(tmp_path).suggest("other") == config


def test_no_more_trials_are_suggested_than_may_run_now(tmp_path: Path) -> None:
    """The number follows the cluster's nodes: it grows and shrinks while trials run."""
    allowed = 2
    search = searcher(tmp_path, slots=lambda: allowed)
    assert search.suggest("a") and search.suggest("b") and search.suggest("c") is None
    finish(search, "a")
    assert search.suggest("c") and search.suggest("d") is None
    allowed = 4
    assert search.suggest("d") and search.suggest("e") and search.suggest("f") is None
    allowed = 1
    for ended in ("b", "c", "d"):
        finish(search, ended)
        assert search.suggest("f") is None
    search.on_trial_complete("e", None, error=False)
    assert search.suggest("f")


def test_two_objectives_with_one_measured_by_the_driver(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def measure(result: dict[str, Any]) -> dict[str, float]:
        seen.append(result)
        return {"latency": 0.01 * len(seen)}

    objectives = [("q", "max"), ("latency", "min")]
    search = searcher(tmp_path, objectives=objectives, measure=measure, trials=9)
    for turn in range(8):
        search.suggest(f"t{turn}")
        finish(search, f"t{turn}", 0.1 * turn)
    search.suggest("t8")
    search.on_trial_complete("t8", {"q": 0.5, "examples_seen": 50})
    records = search.records()
    assert [r.values for r in records[:2]] == [(0.0, 0.01), (0.1, 0.02)]
    assert records[8].state == "FAIL" and len(seen) == 8
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert len(study.best_trials) == 8


def test_the_searcher_pickles_without_its_connection(tmp_path: Path) -> None:
    search = searcher(tmp_path, measure=lambda result: {})
    search.suggest("t")
    copy = pickle.loads(pickle.dumps(search))
    assert copy.records() == search.records()
    finish(copy, "t")
    assert search.records()[0].state == "COMPLETE"


def no_odd_pair(point: Mapping[str, Any]) -> str:
    return "a = 2 must not go with x" if (point["a"], point["b"]) == (2, "x") else ""


@each_row("sampler", ["tpe", "random", "grid"])
def test_points_that_cannot_be_planned_are_not_issued(tmp_path: Path, sampler: str) -> None:
    search = searcher(tmp_path, DISCRETE, sampler=sampler, refusal=no_odd_pair)
    drive_all(search)
    points = {(r.hyper_parameters["a"], r.hyper_parameters["b"]) for r in search.records()}
    assert len(search.records()) == 5 and points == {(1, "x"), (1, "y"), (2, "y"), (3, "x"), (3, "y")}


def test_a_running_trial_whose_point_is_refused_has_failed_at_the_next_start(tmp_path: Path) -> None:
    first = searcher(tmp_path, DISCRETE)
    for turn in range(6):
        first.suggest(f"tune{turn}")
    again = searcher(tmp_path, DISCRETE, refusal=no_odd_pair)
    failed = [record for record in again.records() if record.state == "FAIL"]
    assert [record.reason for record in failed] == ["a = 2 must not go with x"]
    drive_all(again)
    assert sorted(record.state for record in again.records()) == ["COMPLETE"] * 5 + ["FAIL"]


def test_no_larger_batch_is_issued_after_one_that_did_not_fit(tmp_path: Path) -> None:
    space = Space("m", {"batch_size": Categorical((16, 32, 64, 128)), "rate": Categorical((0.1, 0.2))})
    search = searcher(tmp_path, dataclasses.replace(space, first={"batch_size": 64, "rate": 0.1}))
    search.suggest("first")
    search.on_trial_complete("first", {"reason": "out of memory with batch_size=64", "examples_seen": 0})
    drive_all(search)
    sizes = [record.hyper_parameters["batch_size"] for record in search.records()]
    assert sorted(sizes[1:]) == [16, 16, 32, 32]


def test_tpe_sees_failed_trials_as_the_worst(tmp_path: Path) -> None:
    def issued(state: str) -> list[Any]:
        search = searcher(tmp_path / state, trials=12)
        for turn in range(12):
            config = search.suggest(f"tune{turn}")
            assert isinstance(config, dict)
            if turn % 3 == 1:
                lost = {"q": -9.0} if state == "worst" else {"reason": "no such layer"}
                whole = {"finished": True, "examples_seen": FULL} if state == "worst" else {}
                search.on_trial_complete(f"tune{turn}", {**lost, **whole})
            else:
                finish(search, f"tune{turn}", -float(turn) if turn else -9.0)
        return [dict(record.hyper_parameters) for record in search.records()]

    for state in ("worst", "failed"):
        (tmp_path / state).mkdir()
    assert issued("worst")[:5] == issued("failed")[:5]


def drive_all(search: StudySearcher) -> None:
    for turn in range(20):
        if search.suggest(f"turn{turn}") == "FINISHED":
            return
        finish(search, f"turn{turn}")
