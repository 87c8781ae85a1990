"""ASHA on examples seen, for trials that are replayed after a restart.

What Ray 2.60 does, read in its source (``tune/schedulers/async_hyperband.py``,
``tune/execution/tune_controller.py``), and what follows:

* A rung keeps the value a trial had at its first report at or past the rung; the trial is stopped if it lies
  below the ``1 - 1/reduction_factor`` quantile of those that came before. The first one always goes on.
* With ``stop_last_trials=True`` (the default) a report at ``max_t`` is answered with STOP, which ends a trial
  before it makes its last report, the one that says ``finished``; and a rung that falls on ``max_t`` would
  stop a trial that has nothing left to do. So here nobody is stopped with less than a tenth of the budget to
  go, and with ``stop_last_trials=False`` a rung that has a trial's value never judges it again.
* On STOP the controller does not hand the report to ``Searcher.on_trial_result``, only, as the trial's last
  result, to ``on_trial_complete``. So what the study holds of a running trial are the evaluations that it
  survived, and a trial's first report below a rung is the last one of its curve.
* When a function returns, the controller repeats its last report with ``done=True``, which ends the trial
  without asking the scheduler; the searcher sees that report in ``on_trial_complete``.
* A scheduler that names a metric makes the controller raise on a report without it, NaN is compared as if
  it were neither above nor below, and brackets are drawn from NumPy's global generator. So here the metric
  is named to nobody, a report without a finite figure is no judgement, and there is one bracket.
* Rungs live in memory, by Tune's trial id. Every start of a sweep is a new ``Tuner`` with new ids: here they
  go by the number of the trial in the study, and are filled from the study's curves. A trial that runs again
  and repeats its evaluations finds its values in the rungs, and no decision is taken twice.
"""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from ray.tune.schedulers import ASHAScheduler

from stillhouse.core.errors import require
from stillhouse.search.records import TrialRecord, is_finite

_TIME = "examples_seen"
_NEARLY_DONE = 0.9


def asha(
    objective: str,
    *,
    full_budget: int,
    grace: float = 0.25,
    reduction_factor: int = 3,
    at_least_full: int = 0,
    history: Iterable[TrialRecord] = (),
) -> "StudyASHA":
    """A scheduler that stops the trials that are behind.

    Args:
        objective: The reported figure; larger is better.
        full_budget: Examples of a trial that runs to its end, over all its stages.
        grace: Share of the full budget before which nobody is stopped: the first rung. The next ones
            are ``reduction_factor`` times as far, each.
        reduction_factor: One in so many goes on past a rung.
        at_least_full: So many trials are never stopped, the first ones that do not fail.
        history: The study's trials of earlier processes, ``searcher.records()``.

    Raises:
        BadInput: A value out of its range.
    """
    require(full_budget >= 1, "full_budget >= 1", full_budget=full_budget)
    require(0 < grace < 1, "0 < grace < 1", grace=grace)
    require(reduction_factor >= 2, "reduction_factor >= 2", reduction_factor=reduction_factor)
    require(at_least_full >= 0, "at_least_full >= 0", at_least_full=at_least_full)
    return StudyASHA(objective, full_budget, grace, reduction_factor, at_least_full, list(history))


class StudyASHA(ASHAScheduler):  # type: ignore[misc]
    """Ray's ASHA, by trial number, filled from a study; made by `asha`."""

    def __init__(
        self,
        objective: str,
        full_budget: int,
        grace: float,
        reduction_factor: int,
        at_least_full: int,
        history: list[TrialRecord],
    ) -> None:
        super().__init__(
            time_attr=_TIME,
            metric=objective,
            mode="max",
            max_t=full_budget,
            grace_period=max(1, int(full_budget * grace)),
            reduction_factor=reduction_factor,
            stop_last_trials=False,
        )
        self._objective, self._last_word = objective, _NEARLY_DONE * full_budget
        self._at_least_full = at_least_full
        complete = sorted(trial.number for trial in history if trial.state == "COMPLETE")
        self._kept: set[int] = set(complete[:at_least_full])
        for trial in sorted(history, key=lambda trial: trial.number):
            self._fill(trial)

    @property
    def metric(self) -> None:
        """None: Tune raises on a report that lacks the metric of a scheduler."""
        return None

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """A trial is about to run."""
        number = _number(trial)
        if len(self._kept) < self._at_least_full:
            self._kept.add(number)
        super().on_trial_add(tune_controller, _named(number))

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> str:
        """Whether a trial goes on after a report."""
        number = _number(trial)
        decision = self._judge(number, result)
        return str(self.CONTINUE if number in self._kept else decision)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> None:
        """A trial ended by itself, or was stopped."""
        number = _number(trial)
        if not result.get("finished"):
            self._kept.discard(number)
        self._forget(number)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """A trial failed; it may be added again."""
        self._kept.discard(_number(trial))
        self._forget(_number(trial))

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        """A trial was taken out before it ran."""
        self._forget(_number(trial))

    def _judge(self, number: int, result: Mapping[str, Any]) -> str:
        examples, value = result.get(_TIME), result.get(self._objective)
        if result.get("finished") or not (is_finite(examples) and is_finite(value)):
            return str(self.CONTINUE)
        if float(examples) >= self._last_word:  # type: ignore[arg-type]
            return str(self.CONTINUE)
        return str(super().on_trial_result(None, _named(number), dict(result)))

    def _fill(self, trial: TrialRecord) -> None:
        super().on_trial_add(None, _named(trial.number))
        for examples, value in sorted(trial.curve.items()):
            self._judge(trial.number, {_TIME: examples, self._objective: value})
        self._forget(trial.number)

    def _forget(self, number: int) -> None:
        self._trial_info.pop(_named(number).trial_id, None)


def _number(trial: Any) -> int:
    return int(trial.config["trial"])


def _named(number: int) -> SimpleNamespace:
    """All that ASHA reads of a trial is its id."""
    return SimpleNamespace(trial_id=f"trial-{number}")
