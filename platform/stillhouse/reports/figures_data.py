"""What the figures of a sweep show, before it is drawn: axes, importances, the Pareto front."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.search.records import TrialRecord, is_finite

WORDS = {"COMPLETE": "finished", "PRUNED": "stopped early", "FAIL": "failed", "RUNNING": "not ended"}
COLOURS = {"COMPLETE": "#0072B2", "PRUNED": "#9A9A9A", "FAIL": "#CC79A7", "RUNNING": "#E0C000"}
BEST, TEACHER = "#D55E00", "#222222"
_SECOND = {"size_mb": "size (MB)", "latency_ms_p50": "latency of one text, median (ms)"}
_FEW_VALUES = 8


@dataclass(frozen=True)
class Axis:
    """One axis of the parallel coordinates.

    Attributes:
        name: The hyper-parameter or the figure.
        places: Where each trial crosses the axis, 0 to 1.
        ticks: Places that carry a label.
        labels: The labels.
        listed: Whether the axis lists values, evenly spaced, rather than measures them.
    """

    name: str
    places: tuple[float, ...]
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    listed: bool


def short(value: object) -> str:
    """A value in few characters: 0.0001 → ``1e-4``, 20000 → ``20,000``, None → ``–``."""
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e6:
            return f"{int(value):,}"
        mantissa, _, exponent = f"{value:.3g}".partition("e")
        if exponent or 0 < abs(value) < 1e-3:
            mantissa, _, exponent = f"{value:.2e}".partition("e")
            return f"{float(mantissa):g}e{int(exponent)}"
        return mantissa
    if isinstance(value, Sequence):
        return "+".join(short(item) for item in value) or "none"
    return str(value)


def quality_of(record: TrialRecord) -> float:
    """The first objective; NaN where there is none."""
    return record.values[0] if record.values and is_finite(record.values[0]) else math.nan


def best_of(records: Sequence[TrialRecord]) -> TrialRecord | None:
    """The finished trial with the highest first objective."""
    finished = [r for r in records if r.state == "COMPLETE" and not math.isnan(quality_of(r))]
    return max(finished, key=quality_of, default=None)


def varied(records: Sequence[TrialRecord]) -> tuple[list[str], dict[str, Any]]:
    """Names of hyper-parameters that differ between trials, and the values that all trials share."""
    names = list(dict.fromkeys(name for record in records for name in record.hyper_parameters))
    values = {name: [record.hyper_parameters.get(name) for record in records] for name in names}
    same = {name: found[0] for name, found in values.items() if all(v == found[0] for v in found)}
    return [name for name in names if name not in same], same


def axes(records: Sequence[TrialRecord], quality: str) -> list[Axis]:
    """The axes of the parallel coordinates: what was varied, then the quality."""
    names, _ = varied(records)
    chosen = [_axis(name, [record.hyper_parameters.get(name) for record in records]) for name in names]
    return [*chosen, _measured(quality, [quality_of(record) for record in records])]


def front(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Finished trials that no other beats, by the second objective.

    More is better in the first objective, less in the second.
    """
    complete = [r for r in records if r.state == "COMPLETE" and r.values and len(r.values) > 1]
    kept: list[TrialRecord] = []
    for record in sorted(complete, key=lambda r: (r.values[1], -r.values[0]) if r.values else (0.0, 0.0)):
        if not kept or quality_of(record) > quality_of(kept[-1]):
            kept.append(record)
    return kept


def second_name(records: Sequence[TrialRecord]) -> str:
    """What the second objective is, with its unit."""
    for record in records:
        for name, label in _SECOND.items():
            if record.values and len(record.values) > 1 and record.metrics.get(name) == record.values[1]:
                return label
    return "second objective (less is better)"


def importances(
    records: Sequence[TrialRecord], *, study: Path | None = None, seed: int = 0
) -> dict[str, float] | str:
    """The share of the quality's variance that each hyper-parameter explains (fANOVA), the largest first.

    Args:
        records: All trials; those that ran to the full budget count.
        study: The Optuna study that they are from; without it one is made out of the records.
        seed: Of the trees.

    Returns:
        The shares, or the reason why there are none.
    """
    import optuna

    finished = [r for r in records if r.state == "COMPLETE" and not math.isnan(quality_of(r))]
    if len(finished) < 2:
        return f"importances need 2 trials to the full budget, and there are {len(finished)}"
    if not varied(finished)[0]:
        return "importances need a hyper-parameter that differs between the finished trials"
    if len({quality_of(record) for record in finished}) < 2:
        return "importances need trials of different quality, and all finished ones are equal"
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    found = _load(study) if study else _study(finished)
    try:
        shares: Mapping[str, float] = optuna.importance.get_param_importances(
            found,
            evaluator=optuna.importance.FanovaImportanceEvaluator(seed=seed),
            target=lambda trial: trial.values[0],
        )
    except RuntimeError as error:
        return f"importances could not be computed from {len(finished)} finished trials: {error}"
    return {name: float(share) for name, share in shares.items()}


def _axis(name: str, values: Sequence[Any]) -> Axis:
    given = [value for value in values if value is not None]
    distinct = list(dict.fromkeys(map(_hashable, given)))
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in distinct)
    if numeric and len(distinct) > _FEW_VALUES and len(given) == len(values):
        return _measured(name, [float(value) for value in values])
    ordered = sorted(distinct) if numeric else sorted(distinct, key=str)
    if len(given) < len(values):
        ordered = [None, *ordered]
    places = [index / max(1, len(ordered) - 1) for index in range(len(ordered))]
    at = dict(zip(ordered, places, strict=True))
    crossings = tuple(at[_hashable(value)] for value in values)
    return Axis(name, crossings, tuple(places), tuple(short(value) for value in ordered), True)


def _measured(name: str, values: Sequence[float]) -> Axis:
    """A numeric axis; logarithmic where the values are positive and span more than a factor of 20."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    logarithmic = low > 0 and high / low > 20
    start, end = (math.log(low), math.log(high)) if logarithmic else (low, high)
    span = (end - start) or 1.0
    places = tuple(((math.log(v) if logarithmic else v) - start) / span for v in values)
    ticks = tuple(index / 4 for index in range(5)) if end > start else (0.0,)
    at = [start + tick * span for tick in ticks]
    return Axis(name, places, ticks, tuple(short(math.exp(v) if logarithmic else v) for v in at), False)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _load(path: Path) -> Any:
    """The one study of a file, to read."""
    import optuna

    storage = optuna.storages.RDBStorage(f"sqlite:///{path.resolve()}", skip_compatibility_check=True)
    return optuna.load_study(study_name=None, storage=storage)


def _study(finished: Sequence[TrialRecord]) -> Any:
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    study = optuna.create_study(direction="maximize")
    shared = [n for n in varied(finished)[0] if all(n in record.hyper_parameters for record in finished)]
    spaces: dict[str, Any] = {}
    for name in shared:
        values = [_hashable(record.hyper_parameters[name]) for record in finished]
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            low, high = float(min(values)), float(max(values))
            spaces[name] = FloatDistribution(low, high, log=low > 0 and high / low > 20)
        else:
            spaces[name] = CategoricalDistribution(sorted({short(value) for value in values}))
    for record in finished:
        chosen = {n: _hashable(record.hyper_parameters[n]) for n in shared}
        params = {
            n: float(v) if isinstance(spaces[n], FloatDistribution) else short(v) for n, v in chosen.items()
        }
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=spaces, values=[quality_of(record)])
        )
    return study
