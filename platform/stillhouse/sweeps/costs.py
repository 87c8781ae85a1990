"""Costs of the students of a sweep's trials, measured once per architecture."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.devices import usable_device
from stillhouse.core.identity import fingerprint
from stillhouse.core.notes import read_note, write_note
from stillhouse.evaluation.cost import cost
from stillhouse.reports.entries import COSTS
from stillhouse.search.records import TrialRecord
from stillhouse.search.trial import Context
from stillhouse.sweeps.contenders import Champion
from stillhouse.training.models import encoder_in

_RUNS, _CALLS = 1, 20


def costs_of(
    records: Sequence[TrialRecord],
    champion: Champion,
    measured: Mapping[str, float],
    context: Context,
    folder: Path,
) -> Iterator[tuple[TrialRecord, dict[str, float]]]:
    """Yield the finished trials with their costs, which depend on the student's architecture only.

    Args:
        records: All trials.
        champion: The best trial.
        measured: Costs of the champion.
        context: What all trials share.
        folder: The sweep's folder, where the costs of other architectures are kept.
    """
    workspace, path = context.workspace, folder / "costs.json"
    known: dict[str, dict[str, float]] = read_note(path, "The costs are measured again.") or {}
    known[fingerprint(champion.stage.student)] = {name: measured[name] for name in COSTS}
    for record in records:
        if record.state != "COMPLETE":
            continue
        stage = context.plan(dict(record.hyper_parameters))
        key = fingerprint(stage.student)
        if key not in known:
            encoder: Any = encoder_in(workspace.path(stage), usable_device(context.where.device))
            figures = cost(encoder, encoder.student, runs=_RUNS, calls=_CALLS)
            known[key] = {name: figures[name] for name in COSTS}
            write_note(path, known)
        yield record, known[key]
