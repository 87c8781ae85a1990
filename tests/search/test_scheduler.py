"""Early stopping: the decisions of each rule, and equal decisions after a restart."""

import contextlib
import io
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rows import each_row

from stillhouse.cli.main import parser
from stillhouse.cli.method_values import chosen_sweep
from stillhouse.cli.parsed_values import follow_sweep
from stillhouse.core.errors import BadInput
from stillhouse.search import schedulers
from stillhouse.search.records import TrialRecord
from stillhouse.search.scheduler import StudyScheduler
from stillhouse.search.schedulers import known_schedulers, load_scheduler

FULL = 400
STEPS = (100, 200, 300, 400)
RULES = [name for name in known_schedulers() if name != "none"]


def trial(number: int) -> Any:
    return SimpleNamespace(trial_id=f"tune-{number}", config={"trial": number})


def record(number: int, state: str, curve: dict[int, float]) -> TrialRecord:
    return TrialRecord(number, {}, state, None, curve, None, None, 0, {}, {})


def scheduler(name: str = "asha", **options: Any) -> StudyScheduler:
    rule = load_scheduler(name).rule(FULL)
    assert rule is not None
    return StudyScheduler(rule, "q", full_budget=FULL, **options)


def play(
    scheduler_: StudyScheduler, number: int, curve: list[float], *, patience: int = 4
) -> tuple[str, dict[int, float]]:
    """Run a trial with one evaluation per quarter of the budget; return how it ended and its evaluations.

    After ``patience`` evaluations it ends by itself.
    """
    evaluations: dict[int, float] = {}
    scheduler_.on_trial_add(None, trial(number))
    for examples, value in list(zip(STEPS, curve, strict=True))[:patience]:
        evaluations[examples] = value
        result = {"q": value, "examples_seen": examples, "finished": False}
        if scheduler_.on_trial_result(None, trial(number), result) == "STOP":
            scheduler_.on_trial_complete(None, trial(number), result)
            return "PRUNED", evaluations
    result = {"q": curve[-1], "examples_seen": FULL, "finished": True}
    assert scheduler_.on_trial_result(None, trial(number), result) == "CONTINUE"
    scheduler_.on_trial_complete(None, trial(number), result)
    return "COMPLETE", evaluations


CURVES = [
    [0.50, 0.55, 0.60, 0.62],
    [0.40, 0.60, 0.70, 0.72],
    [0.51, 0.52, 0.53, 0.90],
    [0.60, 0.65, 0.70, 0.75],
    [0.20, 0.20, 0.20, 0.20],
    [0.65, 0.70, 0.75, 0.76],
    [0.66, 0.10, 0.10, 0.10],
    [0.30, 0.35, 0.90, 0.95],
    [0.70, 0.71, 0.72, 0.73],
]


def ends_of(name: str) -> list[tuple[str, int]]:
    scheduler_ = scheduler(name)
    ends = [play(scheduler_, n, curve) for n, curve in enumerate(CURVES)]
    return [(state, max(evaluations)) for state, evaluations in ends]


def test_asha_stops_trials_that_lag_at_a_rung() -> None:
    assert ends_of("asha")[:7] == [
        ("COMPLETE", 400),
        ("PRUNED", 100),
        ("COMPLETE", 400),
        ("COMPLETE", 400),
        ("PRUNED", 100),
        ("COMPLETE", 400),
        ("COMPLETE", 400),
    ]


@each_row("name", RULES)
def test_the_first_successful_trials_reach_the_full_budget(name: str) -> None:
    scheduler_ = scheduler(name, at_least_full=3)
    falling = [[0.9 - 0.1 * n] * 4 for n in range(8)]
    assert play(scheduler_, 0, falling[0])[0] == "COMPLETE"
    scheduler_.on_trial_add(None, trial(1))
    diverged = {"q": math.nan, "examples_seen": 100, "finished": False, "reason": "NaN"}
    assert scheduler_.on_trial_result(None, trial(1), diverged) == "CONTINUE"
    scheduler_.on_trial_complete(None, trial(1), diverged)
    scheduler_.on_trial_add(None, trial(2))
    scheduler_.on_trial_error(None, trial(2))
    ends = {n: play(scheduler_, n, falling[n])[0] for n in (3, 4, 5, 6, 7)}
    assert ends[3] == ends[4] == "COMPLETE"
    assert ends[5] == "PRUNED"


def test_a_retried_trial_keeps_its_protection() -> None:
    scheduler_ = scheduler(at_least_full=2)
    play(scheduler_, 0, [0.9] * 4)
    scheduler_.on_trial_add(None, trial(1))
    scheduler_.on_trial_error(None, trial(1))
    assert play(scheduler_, 1, [0.1] * 4)[0] == "COMPLETE"


def test_a_trial_that_was_running_keeps_its_protection_over_a_restart() -> None:
    """When the driver was killed, trial 2 had ended and trial 1, which started earlier, had not."""
    history = [record(0, "COMPLETE", {100: 0.9}), record(1, "RUNNING", {}), record(2, "COMPLETE", {100: 0.9})]
    scheduler_ = scheduler(at_least_full=2, history=history)
    assert play(scheduler_, 1, [0.1] * 4)[0] == "COMPLETE"
    assert play(scheduler_, 3, [0.1] * 4)[0] == "PRUNED"


@each_row("name", RULES)
@each_row("at_least_full", [0, 2])
@each_row("cut", range(len(CURVES)))
@each_row("seen", [0, 1, 3])
def test_a_restart_decides_as_an_undisturbed_run(name: str, cut: int, seen: int, at_least_full: int) -> None:
    """The sweep is killed when trial ``cut`` has survived ``seen`` evaluations, which it then repeats."""
    straight = scheduler(name, at_least_full=at_least_full)
    ends = [play(straight, n, curve) for n, curve in enumerate(CURVES)]
    history = [record(n, state, evaluations) for n, (state, evaluations) in enumerate(ends[:cut])]
    state, evaluations = ends[cut]
    survived = {
        examples: value
        for examples, value in evaluations.items()
        if state != "PRUNED" or examples < max(evaluations)
    }
    history.append(record(cut, "RUNNING", dict(list(survived.items())[:seen])))
    resumed = scheduler(name, at_least_full=at_least_full, history=history)
    assert [play(resumed, n, curve) for n, curve in list(enumerate(CURVES))[cut:]] == ends[cut:]


def test_a_survived_evaluation_is_not_judged_again() -> None:
    history = [record(0, "RUNNING", {100: 0.3}), *[record(n, "RUNNING", {100: 0.9}) for n in (1, 2, 3)]]
    scheduler_ = scheduler(history=history)
    for number in range(4):
        scheduler_.on_trial_add(None, trial(number))
    replayed = {"q": 0.3, "examples_seen": 100}
    assert scheduler_.on_trial_result(None, trial(0), replayed) == "CONTINUE"
    assert scheduler_.on_trial_result(None, trial(0), {"q": 0.3, "examples_seen": 200}) == "CONTINUE"
    scheduler_.on_trial_add(None, trial(4))
    assert scheduler_.on_trial_result(None, trial(4), replayed) == "STOP"


def test_reports_that_cannot_be_judged_let_the_trial_continue() -> None:
    scheduler_ = scheduler()
    play(scheduler_, 0, [0.9] * 4)
    scheduler_.on_trial_add(None, trial(1))
    for result in (
        {"examples_seen": 100},
        {"q": 0.0},
        {"q": math.nan, "examples_seen": 100},
        {"q": 0.0, "examples_seen": 395},
        {"q": 0.0, "examples_seen": 100, "finished": True},
    ):
        assert scheduler_.on_trial_result(None, trial(1), result) == "CONTINUE"
    assert scheduler_.metric is None
    assert scheduler_.on_trial_result(None, trial(1), {"q": 0.0, "examples_seen": 100}) == "STOP"
    scheduler_.on_trial_remove(None, trial(1))
    scheduler_.on_trial_remove(None, trial(1))


def test_the_command_line_knows_schedulers_by_name(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("one\ntwo\n")
    data = ["--teacher", str(tiny_model), "--corpus", str(tmp_path / "words.txt"), "--root", str(tmp_path)]
    for arguments, name in (
        ([], "asha"),
        (["--scheduler", "none"], "none"),
    ):
        options = parser().parse_args(["sweep", "mse", *data, *arguments])
        follow_sweep(options)
        assert chosen_sweep(options).scheduler == name


def test_a_new_file_adds_a_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "second_only.py").write_text(
        "class Rule:\n"
        "    def stops(self, number, examples, value): return number != 1\n"
        "def rule(full_budget): return Rule()\n"
    )
    monkeypatch.setattr(schedulers, "__path__", [*schedulers.__path__, str(tmp_path)])
    assert "second_only" in parser_help("sweep")
    scheduler_ = scheduler("second_only")
    assert [play(scheduler_, n, CURVES[n])[0] for n in range(3)] == ["PRUNED", "COMPLETE", "PRUNED"]


def parser_help(command: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), pytest.raises(SystemExit):
        parser().parse_args([command, "--help"])
    return output.getvalue()


def test_schedulers_are_found_by_file_name() -> None:
    assert known_schedulers() == ["asha", "none"]
    assert load_scheduler("none").rule(FULL) is None
    with pytest.raises(BadInput, match=r"unknown scheduler 'ahsa'. Did you mean asha\?"):
        load_scheduler("ahsa")
