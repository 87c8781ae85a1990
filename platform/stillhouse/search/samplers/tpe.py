"""Optuna's tree-structured Parzen estimator; multivariate for a single objective.

The first third of a sweep's trials (at least 4, at most 10) is drawn at random.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from stillhouse.search.optuna_params import decode, distributions
from stillhouse.search.samplers import ATTEMPTS, Search, random
from stillhouse.search.space import Space


def check(space: Space) -> None:
    """Accept every space."""


def candidates(search: Search) -> Iterator[dict[str, Any]]:
    """Ask TPE in an in-memory study that holds the past; the study on disk is not touched."""
    if not search.past:
        yield from random.candidates(search)
        return
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    startup = min(10, max(4, search.trials // 3))
    useful = _with_failures(search)
    for attempt in range(ATTEMPTS):
        state = np.random.SeedSequence([search.seed, len(search.past), attempt]).generate_state(1)
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=startup, multivariate=len(search.directions) == 1, seed=int(state[0])
        )
        study = optuna.create_study(sampler=sampler, directions=list(search.directions))
        study.add_trials(useful)
        yield decode(study.ask(distributions(search.space)).params, search.space)


def _with_failures(search: Search) -> list[FrozenTrial]:
    """The past, in which failed trials have the worst values of the finished ones, if there are any."""
    finished = [trial.values for trial in search.past if trial.state == TrialState.COMPLETE]
    if not finished:
        return [trial for trial in search.past if trial.state != TrialState.FAIL]
    worst = [
        min(values) if direction == "maximize" else max(values)
        for values, direction in zip(zip(*finished, strict=True), search.directions, strict=True)
    ]
    return [
        create_trial(params=trial.params, distributions=trial.distributions, values=worst)
        if trial.state == TrialState.FAIL
        else trial
        for trial in search.past
    ]
