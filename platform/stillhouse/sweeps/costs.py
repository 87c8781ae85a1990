"""Costs of the students of a sweep's trials, measured once per architecture."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stillhouse.core.devices import usable_device
from stillhouse.core.identity import fingerprint
from stillhouse.core.notes import read_note, write_note
from stillhouse.evaluation.serving_cost import cost
from stillhouse.reports.entries import COSTS
from stillhouse.search.records import TrialRecord
from stillhouse.search.trial import Context
from stillhouse.sweeps.contenders import Candidate
from stillhouse.sweeps.room import Room
from stillhouse.training.models import encoder_in
from stillhouse.values.stage import Stage

_RUNS, _CALLS = 1, 20


def costs_of(
    records: Sequence[TrialRecord],
    best: Candidate,
    measured: Mapping[str, float],
    context: Context,
    folder: Path,
    room: Room,
) -> Iterator[tuple[TrialRecord, dict[str, float]]]:
    """Yield the finished trials and refits with their costs, which depend on the architecture only.

    ``measured`` are the costs of the best student. Those of other architectures are measured in the same
    room, and kept in the sweep's folder.
    """
    path = folder / "costs.json"
    known: dict[str, dict[str, float]] = read_note(path, "The costs are measured again.") or {}
    known[fingerprint(best.stage.student)] = {name: measured[name] for name in COSTS}
    finished = [record for record in records if record.state == "COMPLETE"]
    stages = [context.plan(dict(record.hyper_parameters)) for record in finished]
    keys = [fingerprint(stage.student) for stage in stages]
    unknown = {key: stage for key, stage in zip(keys, stages, strict=True) if key not in known}
    if unknown:
        known |= room.call("measuring the other students", _measured, unknown, context)
        write_note(path, known)
    for record, key in zip(finished, keys, strict=True):
        yield record, known[key]


def _measured(stages: Mapping[str, Stage], context: Context) -> dict[str, dict[str, float]]:
    """The costs of the students of some stages."""
    found = {}
    for key, stage in stages.items():
        encoder = encoder_in(context.workspace.path(stage), usable_device(context.where.device))
        figures = cost(encoder, encoder.student, runs=_RUNS, calls=_CALLS)
        found[key] = {name: figures[name] for name in COSTS}
    return found
