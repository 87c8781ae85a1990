"""Records of a study's trials, as plain values for reports and schedulers."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stillhouse.search.optuna_params import decode
from stillhouse.search.space import Space

REPORT = "report"
"""User attribute with a trial's last report; a single write, so a kill leaves all of it or nothing."""

OUT_OF_MEMORY = "out of memory"
"""How the reason of a trial begins that did not fit."""

_KEPT = ("weights_sha256",)


def no_memory_for(values: Mapping[str, Any]) -> str:
    """The reason of a trial whose hyper-parameters did not fit."""
    sizes = [f" with {name}={size}" for name, size in values.items() if name.endswith("batch_size")]
    return f"{OUT_OF_MEMORY}{','.join(sizes)}"


@dataclass(frozen=True)
class TrialRecord:
    """One trial of a study.

    Attributes:
        number: Number of the trial in the study, from 0.
        hyper_parameters: All values that the trial's plan was made from, fixed ones included.
        state: ``COMPLETE`` (full budget), ``PRUNED`` (stopped early), ``FAIL`` or ``RUNNING``.
        values: The objectives in order; the last evaluation of a pruned trial; None if there is none.
        curve: Objective at each evaluation, by the number of examples seen.
        reason: Reason of a failure.
        seconds: Duration that the trial reported.
        examples: Number of examples seen.
        metrics: All metrics of its last report.
        attributes: Other values that it reported: ``weights_sha256``.
        refit: Whether it is the refit of the trial of this number, trained for longer after the search.
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
    refit: bool = False

    @property
    def title(self) -> str:
        """``trial 1``, or ``refit of trial 1``."""
        return f"{'refit of ' if self.refit else ''}trial {self.number}"


def best_records(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Return the finished trials, highest quality first; of equals, the smallest second objective first."""
    finished = [each for each in records if each.state == "COMPLETE" and math.isfinite(_rank(each)[0])]
    return sorted(finished, key=_rank, reverse=True)


def best_record(records: Iterable[TrialRecord]) -> TrialRecord | None:
    """Return the first of `best_records`; None if no trial ran to its end."""
    return next(iter(best_records(records)), None)


def _rank(record: TrialRecord) -> tuple[float, ...]:
    """Sort key: the quality, then, among equals, the smallest second objective."""
    quality, *second = record.values or (-math.inf,)
    return (quality, *(-value for value in second))


def attributes(result: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    """Select what is kept of a report. Tune flattens it: ``metrics/…`` is an entry of ``metrics``."""
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
    """Make the record of a frozen trial of Optuna; ``explained`` is a reason that came after its end."""
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
    """Return whether a reported value is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)
