"""What a study knows of its trials, as plain values for reports and schedulers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stillhouse.search.optuna_params import decode
from stillhouse.search.space import Space

REPORT = "report"
"""The user attribute that holds a trial's last report: one write, so that a kill leaves all of it or none."""

_KEPT = ("stage", "weights_sha256")


@dataclass(frozen=True)
class TrialRecord:
    """One trial as the study has it.

    Attributes:
        number: Its place in the study, from 0.
        hyper_parameters: What was searched.
        state: ``COMPLETE`` (to the full budget), ``PRUNED`` (stopped early), ``FAIL`` or ``RUNNING``.
        values: The objectives in their order; of a pruned trial its last evaluation; None if there is none.
        curve: Examples seen to the objective, evaluation by evaluation.
        reason: Why it failed.
        seconds: As the trial reported them.
        examples: Examples seen.
        metrics: All figures of its last report.
        attributes: What else it reported: ``stage``, ``weights_sha256``.
    """

    number: int
    hyper_parameters: Mapping[str, Any]
    state: str
    values: tuple[float, ...] | None
    curve: Mapping[int, float]
    reason: str | None
    seconds: float | None
    examples: int
    metrics: Mapping[str, float]
    attributes: Mapping[str, Any]


def attributes(result: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    """What is kept of a report. Tune hands it over flat, ``metrics/…`` for a figure in ``metrics``."""
    flat = {k.removeprefix("metrics/"): v for k, v in result.items() if k.startswith("metrics/")}
    kept = {
        **{key: result.get(key) for key in _KEPT},
        "reason": reason,
        "seconds": result.get("seconds", result.get("time_total_s")),
        "metrics": {**(result.get("metrics") or {}), **flat} or None,
        "examples": result.get("examples_seen"),
    }
    return {key: value for key, value in kept.items() if value is not None}


def record(trial: Any, space: Space, explained: str | None) -> TrialRecord:
    """The record of one of Optuna's frozen trials; ``explained`` is a reason that came after its end."""
    kept = trial.user_attrs.get(REPORT, {})
    curve = dict(sorted(trial.intermediate_values.items()))
    failed = trial.state.name == "FAIL"
    return TrialRecord(
        number=trial.number,
        hyper_parameters=decode(trial.params, space),
        state=trial.state.name,
        values=tuple(trial.values) if trial.values else None,
        curve=curve,
        reason=(explained or kept.get("reason")) if failed else None,
        seconds=kept.get("seconds"),
        examples=max([*curve, int(kept.get("examples", 0))]),
        metrics=kept.get("metrics", {}),
        attributes={key: kept[key] for key in _KEPT if key in kept},
    )


def is_finite(value: object) -> bool:
    """Whether a report's figure is a number that can be compared."""
    return isinstance(value, int | float) and math.isfinite(value)
