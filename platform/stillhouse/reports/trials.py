"""The trials of a sweep for its reports: the best one, the Pareto front, values in few characters."""

import math
from collections.abc import Sequence
from typing import Any

from stillhouse.search.records import TrialRecord, is_finite

STATES = {"COMPLETE": "finished", "PRUNED": "stopped early", "FAIL": "failed", "RUNNING": "unfinished"}
"""Optuna's state of a trial in the words of the reports."""

_COST_LABELS = {"size_mb": "size (MB)", "latency_ms_p50": "latency per text, median (ms)"}


def short(value: object) -> str:
    """Format a value in few characters: 0.0001 → ``1e-4``, 20000 → ``20,000``, None → ``–``."""
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
    """Return the first objective, or NaN where there is none."""
    return record.values[0] if record.values and is_finite(record.values[0]) else math.nan


def ranked(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Sort trials by the first objective: finished ones first, the best on top."""
    places = {state: place for place, state in enumerate(STATES)}

    def order(record: TrialRecord) -> tuple[int, float, int]:
        quality = quality_of(record)
        return places[record.state], math.inf if math.isnan(quality) else -quality, record.number

    return sorted(records, key=order)


def varied(records: Sequence[TrialRecord]) -> tuple[list[str], dict[str, Any]]:
    """Return the names of hyper-parameters that differ between trials, and the values of the others."""
    names = list(dict.fromkeys(name for record in records for name in record.hyper_parameters))
    values = {name: [record.hyper_parameters.get(name) for record in records] for name in names}
    same = {name: column[0] for name, column in values.items() if all(v == column[0] for v in column)}
    return [name for name in names if name not in same], same


def front(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the Pareto front of the finished trials, ordered by the second objective.

    More is better in the first objective, less in the second.
    """
    complete = [r for r in records if r.state == "COMPLETE" and r.values and len(r.values) > 1]
    kept: list[TrialRecord] = []
    for record in sorted(complete, key=lambda r: (r.values[1], -r.values[0]) if r.values else (0.0, 0.0)):
        if not kept or quality_of(record) > quality_of(kept[-1]):
            kept.append(record)
    return kept


def second_name(records: Sequence[TrialRecord]) -> str:
    """Return the second objective's name with its unit."""
    for record in records:
        for name, label in _COST_LABELS.items():
            if record.values and len(record.values) > 1 and record.metrics.get(name) == record.values[1]:
                return label
    return "second objective (less is better)"
