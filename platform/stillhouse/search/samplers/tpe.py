"""Optuna's tree-structured Parzen estimator; multivariate for a single objective.

The first third of a sweep's trials (at least 4, at most 10) is drawn at random.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState

from stillhouse.search.optuna_params import decode, distributions
from stillhouse.search.samplers import ATTEMPTS, Search, random
from stillhouse.search.space import Space

NEEDS_RANGES = False


def check(space: Space) -> None:
    """Accept every space."""


def candidates(search: Search) -> Iterator[dict[str, Any]]:
    """Ask TPE in an in-memory study that holds the past; the study on disk is not touched."""
    if not search.past:
        yield from random.candidates(search)
        return
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    startup = min(10, max(4, search.trials // 3))
    useful = [trial for trial in search.past if trial.state != TrialState.FAIL]
    for attempt in range(ATTEMPTS):
        state = np.random.SeedSequence([search.seed, len(search.past), attempt]).generate_state(1)
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=startup, multivariate=len(search.directions) == 1, seed=int(state[0])
        )
        study = optuna.create_study(sampler=sampler, directions=list(search.directions))
        study.add_trials(useful)
        yield decode(study.ask(distributions(search.space)).params, search.space)
