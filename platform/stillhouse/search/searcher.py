"""Tune's searcher over an Optuna study in a file, which outlives the process.

Tune's own Optuna searcher leaves a trial with a NaN objective running for ever, records a trial that the
scheduler stopped as complete, raises on a missing metric, and repeats its suggestions after a restart. Here
every start is a new ``Tuner`` whose searcher continues the study:

* A trial is written in one transaction, with all its parameters, once they are known: a kill leaves a
  complete trial or none.
* The study is backed up when a trial has been issued and has ended (`stillhouse.search.study_backup`).
* Trials that a dead process left running are issued again, with the same number and parameters, before any
  new one; their artifacts make them resume.
* The sampler is a function of the seed and the trials so far (`stillhouse.search.samplers`).

How many run at once is asked before each, since nodes come and go (`stillhouse.cluster.slots`). With one
trial at a time (without a limit Tune requests the next trial while one runs) a killed and restarted sweep
proposes exactly what an undisturbed one does.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState, create_trial
from ray.tune import Callback
from ray.tune.search.searcher import Searcher

from stillhouse.core.errors import require
from stillhouse.core.redaction import redacted
from stillhouse.search.options import CHANGES_COST
from stillhouse.search.optuna_params import decode, distributions, encode
from stillhouse.search.records import (
    OUT_OF_MEMORY,
    REPORT,
    TrialRecord,
    attributes,
    is_finite,
    no_memory_for,
    record,
)
from stillhouse.search.samplers import LARGEST_GRID, Search, load_sampler
from stillhouse.search.space import Space
from stillhouse.search.studies import SEARCH, copy_attributes, open_study
from stillhouse.search.study_backup import back_up_study

Measure = Callable[[dict[str, Any]], dict[str, float]]
Refusal = Callable[[Mapping[str, Any]], str]


class StudySearcher(Searcher):  # type: ignore[misc]
    """Tune's side of the study: suggests trials, and records their evaluations and how they ended.

    The configuration of a trial is ``{"hyper_parameters": {…}, "trial": number}``. ``TuneConfig`` must get
    neither metric nor mode: with them Tune raises on a report that lacks the metric.

    Args:
        storage_path: The SQLite file, which is created or continued.
        space: The search space.
        sampler: Name of the sampler.
        trials: Number of trials that the study will have, those of earlier processes included.
        seed: Seed of the sampler.
        objective: The reported metric that is maximised and recorded at each evaluation.
        objectives: (metric, ``max`` or ``min``) pairs to search a Pareto front; None maximises ``objective``.
        full_budget: Examples of a trial that runs to its end.
        slots: Returns how many trials may run at once, asked before each; None sets no limit.
        measure: Function from a finished trial's last report to further metrics, which the driver measures.
        refusal: Says why a point cannot be planned; empty if it can. A trial of an earlier process with such
            a point has failed.

    Raises:
        BadInput: The sampler does not suit the space, or the study was begun with another space.
    """

    def __init__(
        self,
        storage_path: str | Path,
        space: Space,
        *,
        sampler: str = "tpe",
        trials: int,
        seed: int = 0,
        objective: str,
        objectives: Sequence[tuple[str, str]] | None = None,
        full_budget: int,
        slots: Callable[[], int] | None = None,
        measure: Measure | None = None,
        refusal: Refusal = lambda point: "",
    ) -> None:
        super().__init__()
        load_sampler(sampler).check(space)
        require(trials >= 1, "trials >= 1", trials=trials)
        self._path, self._space = Path(storage_path).resolve(), space
        self._sampler, self._trials, self._seed = sampler, trials, seed
        self._seeded = [dict(point) for point in space.seeded]
        self._objective, self._full_budget, self._measure = objective, full_budget, measure
        self._refusal: Refusal | None = refusal
        self._objectives = list(objectives) if objectives else [(objective, "max")]
        self._live: dict[str, int] = {}
        self._slots, self._running_now = slots, set[str]()
        self._open_storage: tuple[Any, int] | None = None
        self._check_same_search()
        self._orphans = deque(self._running())
        back_up_study(self._path)

    # Called by Tune.

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next configuration, ``FINISHED``, or None as long as enough trials run."""
        if self._slots is not None and len(self._running_now) >= self._slots():
            return None
        number = self._orphans.popleft() if self._orphans else self._issue()
        if number is None:
            return str(Searcher.FINISHED)
        self._live[trial_id] = number
        self._running_now.add(trial_id)
        point = decode(self._trial(number).params, self._space)
        return {"hyper_parameters": point, "trial": number}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Record the evaluation in a report, if there is one."""
        if trial_id in self._live:
            self._note_evaluation(self._live[trial_id], result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Record how a trial ended.

        A trial that was cancelled before it ran has neither result nor error, and one that the workspace
        could not serve has not failed: both are left running in the study, and the next process resumes them.
        """
        self._running_now.discard(trial_id)
        number = self._live.get(trial_id)
        if number is None or (result is None and not error) or (result or {}).get("hindered"):
            return
        trial = self._trial(number)
        if trial.state.is_finished():
            return
        result = dict(result or {})
        state, values, reason = self._outcome(result, error)
        if state == TrialState.PRUNED:
            self._note_evaluation(number, result)
            curve = self._trial(number).intermediate_values
            values = [curve[max(curve)]] if curve and len(self._objectives) == 1 else None
        storage, _ = self._storage
        for name, _ in self._objectives[1:]:
            result.update({f"metrics/{name}": result[name]} if name in result else {})
        storage.set_trial_user_attr(trial._trial_id, REPORT, attributes(result, reason))
        storage.set_trial_state_values(trial._trial_id, state, values)
        back_up_study(self._path)
        del self._live[trial_id]

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the study is already on disk."""

    # Called by the sweep.

    def explain(self, number: int, reason: str) -> None:
        """Record why a trial failed; may be called after its end."""
        storage, study = self._storage
        storage.set_study_user_attr(study, f"reason:{number}", redacted(reason))
        back_up_study(self._path)

    def records(self) -> list[TrialRecord]:
        """All trials, ordered by number."""
        storage, study = self._storage
        explained = storage.get_study_user_attrs(study)
        return [record(t, self._space, explained.get(f"reason:{t.number}")) for t in self._all()]

    def __getstate__(self) -> dict[str, Any]:
        """State without the connection and without the driver's functions, for pickling."""
        return {**self.__dict__, "_open_storage": None, "_measure": None, "_refusal": None}

    # The study.

    @property
    def _storage(self) -> tuple[Any, int]:
        """The storage and the study's id in it."""
        if self._open_storage is None:
            self._open_storage = open_study(self._path, self._directions)
        return self._open_storage

    @property
    def _directions(self) -> list[str]:
        return ["maximize" if mode == "max" else "minimize" for _, mode in self._objectives]

    def _check_same_search(self) -> None:
        storage, study = self._storage
        search = {"space": self._space.fingerprint, "objectives": [list(pair) for pair in self._objectives]}
        begun = storage.get_study_user_attrs(study).get(SEARCH)
        if begun is None:
            copy_attributes({SEARCH: search}, storage, study)
        require(
            begun in (None, search),
            "a sweep must be resumed with the space and the objectives it was begun with",
            begun=begun,
            now=search,
            remedy=f"Restore the search space, or begin a sweep outside {self._path.parent}.",
        )

    def _running(self) -> list[int]:
        """Numbers of the trials of a dead process; one whose point is refused has failed."""
        storage, study = self._storage
        running = storage.get_all_trials(study, deepcopy=False, states=(TrialState.RUNNING,))
        refusing, numbers = self._refusing(), list[int]()
        for trial in running:
            if reason := refusing(decode(trial.params, self._space)):
                storage.set_trial_user_attr(trial._trial_id, REPORT, attributes({}, reason))
                storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
            else:
                numbers.append(trial.number)
        return numbers

    def _refusing(self) -> Refusal:
        """Return what says why a point cannot be tried: it cannot be planned, or is too large."""
        reasons = [(each.hyper_parameters, each.reason or "") for each in self.records()]
        too_large = [(values, reason) for values, reason in reasons if reason.startswith(OUT_OF_MEMORY)]

        def refusal(point: Mapping[str, Any]) -> str:
            if self._refusal is not None and (reason := self._refusal(point)):
                return reason
            return next((reason for failed, reason in too_large if _as_large(point, failed)), "")

        return refusal

    def _all(self) -> list[FrozenTrial]:
        storage, study = self._storage
        return list(storage.get_all_trials(study, deepcopy=False))

    def _trial(self, number: int) -> FrozenTrial:
        storage, study = self._storage
        return storage.get_trial(storage.get_trial_id_from_study_id_trial_number(study, number))

    def _issue(self) -> int | None:
        past = self._all()
        if len(past) >= self._trials:
            return None
        tried = [trial.params for trial in past]
        waiting = (point for point in self._seeded if encode(point, self._space) not in tried)
        point: dict[str, Any] | None = next(waiting, None)
        if point is None:
            search = Search(self._space, past, self._seed, self._trials, self._directions, self._refusing())
            point = propose(self._sampler, search)
        if point is None:
            return None
        storage, study = self._storage
        template = create_trial(
            state=TrialState.RUNNING,
            params=encode(point, self._space),
            distributions=distributions(self._space),
        )
        template.datetime_start = datetime.now()
        number = int(storage.get_trial(storage.create_new_trial(study, template)).number)
        back_up_study(self._path)
        return number

    def _note_evaluation(self, number: int, result: Mapping[str, Any]) -> None:
        value, examples = result.get(self._objective), result.get("examples_seen")
        if is_finite(value) and is_finite(examples) and not result.get("finished"):
            storage, _ = self._storage
            trial_id = self._trial(number)._trial_id
            storage.set_trial_intermediate_value(trial_id, int(examples), float(value))  # type: ignore[arg-type]

    def _full(self, result: Mapping[str, Any]) -> bool:
        examples = result.get("examples_seen")
        return is_finite(examples) and int(examples) >= self._full_budget  # type: ignore[arg-type]

    def _outcome(
        self, result: dict[str, Any], error: bool
    ) -> tuple[TrialState, list[float] | None, str | None]:
        if error or result.get("reason"):
            failure = str(result.get("reason") or "the trial ended with an error")
            return TrialState.FAIL, None, redacted(failure)
        if not result.get("finished") and not self._full(result):
            stopped = is_finite(result.get(self._objective)) and len(self._objectives) == 1
            reason = None if stopped else f"ended early with {self._objective}={result.get(self._objective)}"
            return TrialState.PRUNED if stopped else TrialState.FAIL, None, reason
        if self._measure is not None:
            result.update(self._measure(result))
        values = [result.get(name, result.get(f"metrics/{name}")) for name, _ in self._objectives]
        wrong = [
            f"{name}={v}" for (name, _), v in zip(self._objectives, values, strict=True) if not is_finite(v)
        ]
        if wrong:
            return TrialState.FAIL, None, f"the objective is not a finite number: {', '.join(wrong)}"
        return TrialState.COMPLETE, [float(v) for v in values if v is not None], None


def _as_large(point: Mapping[str, Any], failed: Mapping[str, Any]) -> bool:
    """Return whether a point has batches as large as one that did not fit, and students of the same size."""
    batches = [name for name in point if name.endswith("batch_size")]
    sizes = [name for name in CHANGES_COST if name in point]
    return (
        bool(batches)
        and all(point[name] >= failed[name] for name in batches)
        and all(point[name] == failed[name] for name in sizes)
    )


class ExplainErrors(Callback):  # type: ignore[misc]
    """Records the last line of an error that ended a trial, which Tune does not pass to a searcher."""

    def __init__(self, searcher: StudySearcher) -> None:
        self._searcher = searcher

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Try a point only once more after a memory monitor has killed its process."""
        if _LOW_MEMORY in _last_failure(trial):
            trial.run_metadata.num_failures = trial.max_failures

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Read the error file; Tune calls this after the searcher's `on_trial_complete`."""
        failure = _last_failure(trial)
        messages = [line.strip() for line in failure.splitlines() if line.strip() and not line[0].isspace()]
        if messages and "trial" in trial.config:
            killed = _LOW_MEMORY in failure
            reason = no_memory_for(trial.config["hyper_parameters"]) if killed else messages[-1]
            self._searcher.explain(trial.config["trial"], reason)


_LOW_MEMORY = "killed due to the node running low on memory"
"""Ray's words for a process that its memory monitor has ended."""


def _last_failure(trial: Any) -> str:
    # `trial.get_error()` looks in a place to which the file is copied only later.
    file = Path(trial.error_file or "")
    return file.read_text(errors="replace").rpartition("Failure # ")[2] if file.is_file() else ""


_key = partial(json.dumps, sort_keys=True)


def propose(name: str, search: Search) -> dict[str, Any] | None:
    """Propose a point that was not tried before, and is not refused.

    Returns:
        The point, or None when every such point of the space has been tried.
    """
    space = search.space
    tried = {_key(trial.params) for trial in search.past}
    if space.points is not None and len(tried) >= space.points:
        return None

    def fits(point: dict[str, Any]) -> bool:
        return not search.refused({**space.fixed, **point})

    known: dict[str, Any] | None = None
    for point in load_sampler(name).candidates(search):
        if _key(encode(point, space)) in tried:
            known = point
        elif fits(point):
            return point
    if space.points is None or space.points > LARGEST_GRID:
        return known
    grid = load_sampler("grid").candidates(search)
    return next((point for point in grid if _key(encode(point, space)) not in tried and fits(point)), None)
