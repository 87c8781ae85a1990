"""The rows of a comparison, from the runs of MLflow: trials, and the models that a sweep tested."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stillhouse.tracking import BEST_TRIAL, MSE_BASELINE, REFIT, REFITTED, TRIAL
from stillhouse.tracking.reading import Run

COSTS = ("parameters", "megabytes", "sentences_per_second", "latency_ms_p50")
SPLITS = ("dev", "test")
_TESTED = {"teacher": "teacher", "baseline": MSE_BASELINE, "untrained": "untrained student"}
_BASELINE = "baseline"
"""The model, and the parameter of a sweep's run that says what it is."""
_STUDENT = "student"
_TRIALS = ("trial", "best")
_OMITTED = ("dim", "threads", "parameters_embedding", "parameters_encoder", "latency_ms_max")


@dataclass(frozen=True)
class Entry:
    """One row.

    Attributes:
        name: ``trial 3``, ``teacher``, …, preceded by the sweep where there are several.
        kind: ``trial``, ``best`` (the best student), ``teacher``, ``baseline``, ``untrained`` or
            ``run``.
        sweep: Name of its sweep; empty for a run outside any sweep.
        state: State of its run; ``tested`` for a model that a sweep only measured.
        parameters: The sweep's facts and the trial's hyper-parameters, all text.
        figures: ``dev/…`` and ``test/…``, `COSTS`, ``seconds``.
        spread: Standard deviations of the figures over seeds; empty for a single run.
        runs: Number of runs whose mean this row is.
    """

    name: str
    kind: str
    sweep: str
    state: str
    parameters: Mapping[str, str]
    figures: Mapping[str, float]
    spread: Mapping[str, float] = field(default_factory=dict)
    runs: int = 1

    @property
    def whole(self) -> bool:
        """True if it ran to its end: only such rows are drawn and averaged."""
        return self.state in ("finished", "tested")

    @property
    def trained(self) -> bool:
        """True if its own run trained it, so that its parameters say how."""
        return self.kind in (*_TRIALS, "run")


def entries(runs: Sequence[Run]) -> list[Entry]:
    """Return one row per trial, per model that a sweep tested for comparison, and per run outside any sweep.

    Stages are left out: their trials have their figures. Trials with the same settings that differ only in
    the seed become one row.
    """
    by_id = {run.id: run for run in runs}
    several = len({(run.experiment, run.sweep) for run in runs if run.sweep}) > 1
    rows: list[Entry] = []
    for run in runs:
        if run.level == "sweep":
            below = [each for each in runs if each.parent == run.id and each.level == "trial"]
            below.sort(key=lambda each: (each.trial.startswith(REFIT), each.trial))
            rows += [*_tested(run, tried=bool(below)), *(_trial(each, run) for each in below)]
        elif run.level == "trial" and run.parent not in by_id:
            rows.append(_trial(run, None))
        elif run.level == "other":
            figures = {**run.figures, "seconds": run.seconds or 0.0}
            rows.append(Entry(run.name, "run", "", run.state, dict(run.parameters), figures))
    named = [replace(e, name=f"{e.sweep}: {e.name}") if several and e.sweep else e for e in rows]
    return over_seeds(named)


def over_seeds(rows: Iterable[Entry]) -> list[Entry]:
    """Merge trials that ran to their end and differ only in the seed: mean and standard deviation."""
    groups: dict[object, list[Entry]] = {}
    for place, row in enumerate(rows):
        same = tuple(sorted((n, value) for n, value in row.parameters.items() if n != "seed"))
        alike = row.kind in _TRIALS and row.whole and "seed" in row.parameters
        groups.setdefault(same if alike else place, []).append(row)
    return [row for group in groups.values() for row in _merged(group)]


def _merged(group: list[Entry]) -> list[Entry]:
    seeds = [row.parameters.get("seed") for row in group]
    if len(group) < 2 or len(set(seeds)) < len(group):
        return group
    names = [name for name in group[0].figures if all(name in row.figures for row in group)]
    table = np.array([[row.figures[name] for name in names] for row in group])
    first = group[0]
    return [
        replace(
            first,
            name=f"{', '.join(dict.fromkeys(row.name for row in group))} ({len(group)} seeds)",
            kind="best" if any(row.kind == "best" for row in group) else first.kind,
            parameters={name: value for name, value in first.parameters.items() if name != "seed"},
            figures=dict(zip(names, map(float, table.mean(axis=0)), strict=True)),
            spread=dict(zip(names, map(float, table.std(axis=0, ddof=1)), strict=True)),
            runs=len(group),
        )
    ]


def _trial(run: Run, sweep: Run | None) -> Entry:
    facts = dict(sweep.parameters) if sweep else {}
    number = f"{sweep.figures.get(BEST_TRIAL, -1):04.0f}" if sweep else ""
    refitted = sweep is not None and sweep.figures.get(REFITTED, 0) == 1
    best = sweep is not None and run.trial == f"{REFIT if refitted else TRIAL}-{number}"
    figures = {name: value for name, value in run.figures.items() if name.startswith("dev/")}
    figures |= _part(run.figures, "cost/")
    figures["seconds"] = run.figures.get("seconds", run.seconds or 0.0)
    if best and sweep is not None:
        figures |= _split(_part(sweep.figures, f"test/{_STUDENT}/"))
    elif refitted and sweep is not None and run.trial == f"{TRIAL}-{number}":
        figures |= _split(_part(sweep.figures, f"test/{TRIAL}/"))
    kind = "best" if best else "trial"
    return Entry(run.name, kind, run.sweep, run.state, {**facts, **run.parameters}, figures)


def _tested(sweep: Run, *, tried: bool) -> list[Entry]:
    """The models of the final comparison, and the best student unless one of the trials is marked as it."""
    models = _TESTED if tried and BEST_TRIAL in sweep.figures else {_STUDENT: "best student", **_TESTED}
    rows = []
    for model, name in models.items():
        figures = _split(_part(sweep.figures, f"test/{model}/"))
        figures |= {f"dev/{figure}": v for figure, v in _part(sweep.figures, f"dev/{model}/").items()}
        if figures:
            kind = "best" if model == _STUDENT else model
            name = sweep.parameters.get(_BASELINE, name) if model == _BASELINE else name
            rows.append(Entry(name, kind, sweep.sweep, "tested", dict(sweep.parameters), figures))
    return rows


def _part(figures: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): v for name, v in figures.items() if name.startswith(prefix)}


def _split(tested: Mapping[str, float]) -> dict[str, float]:
    """Costs under their own names, everything else as figures of the test split."""
    return {
        (name if name in COSTS else f"test/{name}"): value
        for name, value in tested.items()
        if name not in _OMITTED
    }
