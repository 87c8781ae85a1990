"""Early stopping on examples seen, for trials that are replayed after a restart.

What Ray 2.60's Tune does (read in ``tune/execution/tune_controller.py``), and what follows:

* On STOP the controller does not hand the report to ``Searcher.on_trial_result``, only, as the trial's last
  result, to ``on_trial_complete``. So the study holds, of a running trial, the evaluations that it survived,
  and the report on which a trial was stopped is the last point of its curve.
* When a function returns, the controller repeats its last report with ``done=True``, which ends the trial
  without asking the scheduler; the searcher sees that report in ``on_trial_complete``.
* A scheduler that names a metric makes the controller raise on a report without it. So no metric is named to
  Tune here, and a report without a finite figure is not judged.
* A scheduler's state lives in memory, by Tune's trial id. Every start of a sweep is a new ``Tuner`` with new
  ids: here trials go by their number in the study, and the rule is filled from the study's curves. A trial
  that runs again and repeats its evaluations is not judged by them again: no decision is taken twice.
* What counts is what a stop can still save: the examples from the first stage on whose evaluations may stop
  a trial. A trial that has seen most of them has little left to save, and stopping it would lose its last
  report, the one that says ``finished``. So no trial is stopped after the rung at 3/4, which is met up to a
  batch later.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ray.tune.schedulers import FIFOScheduler

from stillhouse.search.records import TrialRecord, is_finite
from stillhouse.search.schedulers import Rule

NEARLY_DONE = 0.85
"""Share of what a stop can save from which on no trial is stopped: a rung at 3/4, and a batch."""


class StudyScheduler(FIFOScheduler):  # type: ignore[misc]
    """Tune's side of an early-stopping rule, filled from a study.

    Args:
        rule: Which trials are stopped, such as ``load_scheduler("asha").rule(full_budget - before)``.
        objective: The reported figure; larger is better.
        full_budget: Examples of a trial that runs to its end, over all its stages.
        before: Examples of the stages before the first one whose evaluations may stop a trial.
        at_least_full: Number of trials that are never stopped: the first ones that do not fail.
        history: The study's trials of earlier processes, ``searcher.records()``.
    """

    def __init__(
        self,
        rule: Rule,
        objective: str,
        *,
        full_budget: int,
        before: int = 0,
        at_least_full: int = 0,
        history: Iterable[TrialRecord] = (),
    ) -> None:
        super().__init__()
        self._rule, self._objective = rule, objective
        self._before = before
        self._last_decision = before + NEARLY_DONE * (full_budget - before)
        self._at_least_full = at_least_full
        self._reached: dict[int, float] = {}
        past = sorted(history, key=lambda trial: trial.number)
        unstopped = [trial.number for trial in past if trial.state in ("COMPLETE", "RUNNING")]
        self._protected = set(unstopped[:at_least_full])
        for trial in past:
            for examples, value in sorted(trial.curve.items()):
                self._judge(trial.number, {"examples_seen": examples, objective: value})

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """A trial is about to run; Tune calls this again when it retries one."""
        if len(self._protected) < self._at_least_full:
            self._protected.add(_number(trial))

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> str:
        """Decide whether a trial continues after a report."""
        number = _number(trial)
        stopped = self._judge(number, result) and number not in self._protected
        return str(self.STOP if stopped else self.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> None:
        """Protect another trial instead of one that failed or was stopped."""
        if not (result.get("finished") and is_finite(result.get(self._objective))):
            self._protected.discard(_number(trial))

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """A trial failed; Tune may add it again."""
        self._protected.discard(_number(trial))

    def _judge(self, number: int, result: Mapping[str, Any]) -> bool:
        """Hand an evaluation to the rule, unless the trial has been judged by it before."""
        examples, value = result.get("examples_seen"), result.get(self._objective)
        if result.get("finished") or not (is_finite(examples) and is_finite(value)):
            return False
        reached = self._reached.get(number, self._before)
        if not reached < examples < self._last_decision:  # type: ignore[operator]
            return False
        self._reached[number] = examples  # type: ignore[assignment]
        return self._rule.stops(number, int(examples) - self._before, float(value))  # type: ignore[arg-type]


def _number(trial: Any) -> int:
    return int(trial.config["trial"])
