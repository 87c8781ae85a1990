"""The importances of hyper-parameters with their uncertainty, by fANOVA and a bootstrap over the trials.

Shares sum to 1, so that an importance alone says little: after eight trials of eight hyper-parameters one of
them always has a large share, whether or not it does anything. Each share therefore has a 95 % interval, the
percentiles over trials that are drawn again with replacement. With too few trials nothing is shown. The rule,
`needed_trials`, comes from simulated studies (`benchmarks/importances.py`, table in `docs/howto/search.md`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

LEAST_TRIALS, TRIALS_PER_NAME = 10, 3
RESAMPLES, FEWEST_RESAMPLES = 100, 40
_TREES, _TREES_OF_A_RESAMPLE, _MANY_TRIALS = 64, 8, 50
_PERCENT = (2.5, 97.5)


@dataclass(frozen=True)
class Importance:
    """The share of one hyper-parameter in the variance of the quality, with the ends of its 95 % interval.

    The shares of all hyper-parameters sum to 1.
    """

    name: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Importances:
    """The importances of a study, the largest share first, or in ``missing`` why there are none."""

    trials: int
    shares: tuple[Importance, ...] = ()
    missing: str = ""

    @property
    def equal_share(self) -> float:
        """The mean share if no hyper-parameter mattered: what pure noise gives each of them."""
        return 1 / max(1, len(self.shares))

    def clear(self, importance: Importance) -> bool:
        """Return whether the whole interval is above the share that pure noise gives."""
        return importance.low > self.equal_share


def needed_trials(names: int) -> int:
    """Return how many finished trials importances of so many hyper-parameters need."""
    return max(LEAST_TRIALS, TRIALS_PER_NAME * names)


def importances(study: Any, *, seed: int = 0) -> Importances:
    """Compute the importances of the first objective. The same study gives the same numbers."""
    finished = finished_trials(study)
    missing = _missing(finished)
    return Importances(len(finished), missing=missing) if missing else with_intervals(finished, seed=seed)


def with_intervals(finished: Sequence[Any], *, seed: int = 0) -> Importances:
    """Compute importances and their intervals from any number of finished trials."""
    whole = _shares(finished, _TREES, seed)
    random, count = np.random.default_rng(seed), len(finished)
    resamples = max(FEWEST_RESAMPLES, min(RESAMPLES, RESAMPLES * _MANY_TRIALS // count))
    drawn: list[list[float]] = []
    for number in range(resamples):
        trials = [finished[place] for place in random.integers(count, size=count)]
        shares = _shares(trials, _TREES_OF_A_RESAMPLE, seed + number)
        if shares:
            drawn.append([shares[name] for name in whole])
    if not whole or len(drawn) < resamples / 2:
        return Importances(count, missing="importances need hyper-parameters that change the quality")
    low, high = np.percentile(np.array(drawn), _PERCENT, axis=0)
    found = [Importance(name, whole[name], float(low[i]), float(high[i])) for i, name in enumerate(whole)]
    return Importances(count, tuple(sorted(found, key=lambda each: -each.share)))


def load_study(path: Path) -> Any:
    """Open the one study of a file, to read."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.RDBStorage(f"sqlite:///{path.resolve()}", skip_compatibility_check=True)
    return optuna.load_study(study_name=None, storage=storage)


def finished_trials(study: Any) -> list[Any]:
    """The trials that Optuna can plot: finished, with a quality that is a number."""
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return [trial for trial in trials if math.isfinite(trial.values[0])]


def first_value(trial: Any) -> float:
    """The quality of a trial."""
    return float(trial.values[0])


def importance_cells(found: Importances) -> tuple[list[str], list[list[str]]]:
    """Return the header and one row per hyper-parameter."""
    rows = [
        [
            each.name,
            f"{100 * each.share:.0f} %",
            f"{100 * each.low:.0f}–{100 * each.high:.0f} %",
            "" if found.clear(each) else "not told from noise",
        ]
        for each in found.shares
    ]
    return ["hyper-parameter", "share of the variance", "95 % interval", ""], rows


def importance_note(found: Importances) -> str:
    """Say in one sentence what the shares are, or why there are none."""
    if found.missing:
        return f"{found.missing}."
    return (
        f"fANOVA over {found.trials} finished trials, with intervals of a bootstrap over the trials. If "
        f"nothing mattered, each share would be {100 * found.equal_share:.0f} % on average: an interval that "
        "reaches down to it cannot be told from noise."
    )


def _missing(finished: Sequence[Any]) -> str:
    if len(finished) < 2:
        return f"importances need at least two finished trials, but there are {len(finished)}"
    if all(trial.params == finished[0].params for trial in finished):
        return "importances need a hyper-parameter that differs between the finished trials"
    if len({first_value(trial) for trial in finished}) < 2:
        return "importances need finished trials of different quality, but all of them are equal"
    names = len(_names(finished))
    needed = needed_trials(names)
    if len(finished) < needed:
        more = needed - len(finished)
        return (
            f"importances of {names} hyper-parameters need {needed} finished trials, but there are "
            f"{len(finished)}: too few to tell them from noise. Run the same command with {more} more "
            f"trial{'s' if more > 1 else ''}"
        )
    return ""


def _names(trials: Sequence[Any]) -> list[str]:
    """The hyper-parameters that all trials have and that have more than one value."""
    common = [name for name in trials[0].params if all(name in trial.params for trial in trials)]
    return [name for name in common if not trials[0].distributions[name].single()]


def _shares(trials: Sequence[Any], trees: int, seed: int) -> Mapping[str, float]:
    """Run fANOVA on these trials, of which some may be equal; the shares sum to 1.

    Empty if no tree of the forest finds a difference, as when all trials are one.
    """
    import optuna
    from optuna.importance import FanovaImportanceEvaluator

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names = _names(trials)
    study = optuna.create_study(direction="maximize")
    study.add_trials(
        [
            optuna.trial.create_trial(
                params={name: trial.params[name] for name in names},
                distributions={name: trial.distributions[name] for name in names},
                value=first_value(trial),
            )
            for trial in trials
        ]
    )
    evaluator = FanovaImportanceEvaluator(n_trees=trees, seed=seed)
    try:
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    except RuntimeError:  # All trees are constant; only the forest itself can tell.
        return {}
    return {name: float(share) for name, share in found.items()}


def error_bars(found: Importances, names: Sequence[str]) -> tuple[list[float], list[float]]:
    """Return how far the interval of each name reaches below and above its share."""
    by_name = {each.name: each for each in found.shares}
    below = [max(0.0, by_name[name].share - by_name[name].low) for name in names]
    above = [max(0.0, by_name[name].high - by_name[name].share) for name in names]
    return below, above
