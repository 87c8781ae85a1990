"""The lines of a comparison: trials, and the models that a sweep tested, from the runs of MLflow."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stillhouse.tracking import CHAMPION_IS
from stillhouse.tracking.reading import Run

COSTS = ("parameters", "megabytes", "sentences_per_second", "latency_ms_p50")
SPLITS = ("dev", "test")
_TESTED = {"teacher": "teacher", "baseline": "MSE baseline", "untrained": "untrained student"}
_CHAMPION = "champion"
_TRIALS = ("trial", "best")
_NO_FIGURES = ("dim", "threads", "parameters_embedding", "parameters_encoder", "latency_ms_p99")


@dataclass(frozen=True)
class Entry:
    """One line.

    Attributes:
        name: ``trial 3``, ``teacher``, …, with the sweep before it where there are several.
        kind: ``trial``, ``best`` (the trial that was tested), ``teacher``, ``baseline``, ``untrained``,
            ``run``.
        sweep: Of this name, or empty.
        state: As the run has it; ``tested`` for a model that a sweep only measured.
        parameters: The sweep's facts and the trial's hyper-parameters, all text.
        figures: ``dev/…`` and ``test/…``, `COSTS`, ``seconds``.
        spread: Standard deviations of the figures over seeds; empty for one run.
        runs: How many runs this line is the mean of.
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
        """Whether it ran to its end: only such lines are drawn and averaged."""
        return self.state in ("finished", "tested")


def entries(runs: Sequence[Run]) -> list[Entry]:
    """A line a trial, a line for each model that a sweep tested beside it, and a line for any other run.

    Stages are left out: their trials have their figures. Trials of one setting that differ in the seed only
    become one line.
    """
    by_id = {run.id: run for run in runs}
    several = len({(run.experiment, run.sweep) for run in runs if run.sweep}) > 1
    found: list[Entry] = []
    for run in runs:
        if run.level == "sweep":
            below = [each for each in runs if each.parent == run.id and each.level == "trial"]
            below.sort(key=lambda each: each.trial)
            found += [*_tested(run, tried=bool(below)), *(_trial(each, run) for each in below)]
        elif run.level == "trial" and run.parent not in by_id:
            found.append(_trial(run, None))
        elif run.level == "other":
            found.append(_other(run))
    named = [replace(e, name=f"{e.sweep}: {e.name}") if several and e.sweep else e for e in found]
    return over_seeds(named)


def over_seeds(lines: Iterable[Entry]) -> list[Entry]:
    """Trials that ran to their end and differ in the seed only, as one line: mean and standard deviation."""
    groups: dict[object, list[Entry]] = {}
    for place, line in enumerate(lines):
        same = tuple(sorted((n, value) for n, value in line.parameters.items() if n != "seed"))
        alike = line.kind in _TRIALS and line.whole and "seed" in line.parameters
        groups.setdefault(same if alike else place, []).append(line)
    return [line for group in groups.values() for line in _merged(group)]


def _merged(group: list[Entry]) -> list[Entry]:
    seeds = [line.parameters.get("seed") for line in group]
    if len(group) < 2 or len(set(seeds)) < len(group):
        return group
    names = [name for name in group[0].figures if all(name in line.figures for line in group)]
    table = np.array([[line.figures[name] for name in names] for line in group])
    first = group[0]
    return [
        replace(
            first,
            name=f"{', '.join(dict.fromkeys(line.name for line in group))} ({len(group)} seeds)",
            kind="best" if any(line.kind == "best" for line in group) else first.kind,
            parameters={name: value for name, value in first.parameters.items() if name != "seed"},
            figures=dict(zip(names, map(float, table.mean(axis=0)), strict=True)),
            spread=dict(zip(names, map(float, table.std(axis=0, ddof=1)), strict=True)),
            runs=len(group),
        )
    ]


def _trial(run: Run, sweep: Run | None) -> Entry:
    facts = dict(sweep.parameters) if sweep else {}
    tested = _part(sweep.figures, f"test/{_CHAMPION}/") if sweep else {}
    best = sweep is not None and run.name == f"trial {sweep.figures.get(CHAMPION_IS, -1):.0f}"
    figures = {name: value for name, value in run.figures.items() if name.startswith("dev/")}
    figures |= _part(run.figures, "cost/")
    figures["seconds"] = run.figures.get("seconds", run.seconds or 0.0)
    if best:
        figures |= _split(tested)
    kind = "best" if best else "trial"
    return Entry(run.name, kind, run.sweep, run.state, {**facts, **run.parameters}, figures)


def _tested(sweep: Run, *, tried: bool) -> list[Entry]:
    """The models of the final comparison, and the best student where no trial says that it is the one."""
    known = _TESTED if tried and CHAMPION_IS in sweep.figures else {_CHAMPION: "best student", **_TESTED}
    found = []
    for who, called in known.items():
        figures = _split(_part(sweep.figures, f"test/{who}/"))
        figures |= {f"dev/{name}": v for name, v in _part(sweep.figures, f"dev/{who}/").items()}
        if figures:
            kind = "best" if who == _CHAMPION else who
            found.append(Entry(called, kind, sweep.sweep, "tested", dict(sweep.parameters), figures))
    return found


def _other(run: Run) -> Entry:
    figures = {**run.figures, "seconds": run.seconds or 0.0}
    return Entry(run.name, "run", "", run.state, dict(run.parameters), figures)


def _part(figures: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): v for name, v in figures.items() if name.startswith(prefix)}


def _split(tested: Mapping[str, float]) -> dict[str, float]:
    """Costs under their own names, all else as figures of the test split."""
    return {
        (name if name in COSTS else f"test/{name}"): value
        for name, value in tested.items()
        if name not in _NO_FIGURES
    }
