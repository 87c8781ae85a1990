import math
from types import SimpleNamespace
from typing import Any

import pytest

from stillhouse.core.errors import BadInput
from stillhouse.search.records import TrialRecord
from stillhouse.search.scheduler import StudyASHA, asha

FULL = 400
STEPS = (100, 200, 300, 400)


def trial(number: int) -> Any:
    return SimpleNamespace(trial_id=f"tune-{number}", config={"trial": number})


def record(number: int, state: str, curve: dict[int, float]) -> TrialRecord:
    return TrialRecord(number, {}, state, None, curve, None, None, 0, {}, {})


def scheduler(**options: Any) -> StudyASHA:
    return asha("q", full_budget=FULL, **options)


def play(asha_: StudyASHA, number: int, curve: list[float]) -> tuple[str, dict[int, float]]:
    """A trial with one evaluation a quarter of the budget: how it ended, and the evaluations it made."""
    made: dict[int, float] = {}
    asha_.on_trial_add(None, trial(number))
    for examples, value in zip(STEPS, curve, strict=True):
        made[examples] = value
        result = {"q": value, "examples_seen": examples, "finished": False}
        if asha_.on_trial_result(None, trial(number), result) == "STOP":
            asha_.on_trial_complete(None, trial(number), result)
            return "PRUNED", made
    result = {"q": curve[-1], "examples_seen": FULL, "finished": True}
    assert asha_.on_trial_result(None, trial(number), result) == "CONTINUE"
    asha_.on_trial_complete(None, trial(number), result)
    return "COMPLETE", made


CURVES = [
    [0.50, 0.55, 0.60, 0.62],
    [0.40, 0.60, 0.70, 0.72],
    [0.51, 0.52, 0.53, 0.90],
    [0.60, 0.65, 0.70, 0.75],
    [0.20, 0.20, 0.20, 0.20],
    [0.65, 0.70, 0.75, 0.76],
    [0.66, 0.10, 0.10, 0.10],
]


def test_trials_behind_are_stopped_at_the_rungs() -> None:
    ends = [play(scheduler_, n, curve) for scheduler_ in [scheduler()] for n, curve in enumerate(CURVES)]
    assert [(state, max(made)) for state, made in ends] == [
        ("COMPLETE", 400),
        ("PRUNED", 100),
        ("PRUNED", 300),
        ("COMPLETE", 400),
        ("PRUNED", 100),
        ("COMPLETE", 400),
        ("PRUNED", 300),
    ]


def test_the_first_trials_that_do_not_fail_reach_the_full_budget() -> None:
    asha_ = scheduler(at_least_full=3)
    falling = [[0.9 - 0.1 * n] * 4 for n in range(6)]
    assert play(asha_, 0, falling[0])[0] == "COMPLETE"
    asha_.on_trial_add(None, trial(1))
    diverged = {"q": math.nan, "examples_seen": 100, "finished": False, "reason": "NaN"}
    assert asha_.on_trial_result(None, trial(1), diverged) == "CONTINUE"
    asha_.on_trial_complete(None, trial(1), diverged)
    asha_.on_trial_add(None, trial(2))
    asha_.on_trial_error(None, trial(2))
    assert [play(asha_, n, falling[n])[0] for n in (3, 4, 5)] == ["COMPLETE", "COMPLETE", "PRUNED"]


def test_a_retried_trial_keeps_its_protection() -> None:
    asha_ = scheduler(at_least_full=2)
    play(asha_, 0, [0.9] * 4)
    asha_.on_trial_add(None, trial(1))
    asha_.on_trial_error(None, trial(1))
    assert play(asha_, 1, [0.1] * 4)[0] == "COMPLETE"


@pytest.mark.parametrize("at_least_full", [0, 2])
@pytest.mark.parametrize("cut", range(len(CURVES)))
@pytest.mark.parametrize("seen", [0, 1, 3])
def test_a_restart_decides_as_an_undisturbed_run(cut: int, seen: int, at_least_full: int) -> None:
    """Killed when trial ``cut`` had survived ``seen`` evaluations; it is given out again, repeating them."""
    straight = scheduler(at_least_full=at_least_full)
    ends = [play(straight, n, curve) for n, curve in enumerate(CURVES)]
    history = [record(n, state, made) for n, (state, made) in enumerate(ends[:cut])]
    state, made = ends[cut]
    survived = {
        examples: value for examples, value in made.items() if state != "PRUNED" or examples < max(made)
    }
    history.append(record(cut, "RUNNING", dict(list(survived.items())[:seen])))
    resumed = scheduler(at_least_full=at_least_full, history=history)
    assert [play(resumed, n, curve) for n, curve in list(enumerate(CURVES))[cut:]] == ends[cut:]


def test_a_survived_evaluation_is_not_judged_again() -> None:
    history = [record(0, "RUNNING", {100: 0.3}), *[record(n, "RUNNING", {100: 0.9}) for n in (1, 2, 3)]]
    asha_ = scheduler(history=history)
    for number in range(4):
        asha_.on_trial_add(None, trial(number))
    replayed = {"q": 0.3, "examples_seen": 100}
    assert asha_.on_trial_result(None, trial(0), replayed) == "CONTINUE"
    assert asha_.on_trial_result(None, trial(0), {"q": 0.3, "examples_seen": 200}) == "CONTINUE"
    asha_.on_trial_add(None, trial(4))
    assert asha_.on_trial_result(None, trial(4), replayed) == "STOP"


def test_reports_that_cannot_be_judged_go_on() -> None:
    asha_ = scheduler()
    play(asha_, 0, [0.9] * 4)
    asha_.on_trial_add(None, trial(1))
    for result in (
        {"examples_seen": 100},
        {"q": 0.0},
        {"q": math.nan, "examples_seen": 100},
        {"q": 0.0, "examples_seen": 395},
        {"q": 0.0, "examples_seen": 100, "finished": True},
    ):
        assert asha_.on_trial_result(None, trial(1), result) == "CONTINUE"
    assert asha_.metric is None
    assert asha_.on_trial_result(None, trial(1), {"q": 0.0, "examples_seen": 100}) == "STOP"
    asha_.on_trial_remove(None, trial(1))
    asha_.on_trial_remove(None, trial(1))


def test_refuses_values_out_of_range() -> None:
    for wrong in ({"grace": 0.0}, {"grace": 1.0}, {"reduction_factor": 1}, {"at_least_full": -1}):
        with pytest.raises(BadInput, match=next(iter(wrong))):
            scheduler(**wrong)
    with pytest.raises(BadInput, match="full_budget"):
        asha("q", full_budget=0)
