"""Runs read from MLflow for a comparison: sweeps with their trials, and runs from elsewhere."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stillhouse.core.artifacts import default_root
from stillhouse.core.console import show
from stillhouse.core.databases import damage_of_database
from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.core.redaction import redacted
from stillhouse.tracking import BEST_SUFFIX
from stillhouse.tracking.location import ENVIRONMENT, own_database, sqlite_path

COMPARISON = "stillhouse.comparison"
"""The tag of a run that holds a comparison; such runs are never compared themselves."""

UI = "http://127.0.0.1:5000"
"""Where `make ui` and `mlflow ui` serve the runs of a database."""
_TRIALS_VIEW = "mlflow.sharedViewState.trials-by-"
"""What the tag of a sweep's view of its trials begins with."""
_SWEEP, _TRIAL = "stillhouse.sweep", "stillhouse.trial"
_LEVELS = (
    (COMPARISON, "comparison"),
    ("stillhouse.stage", "stage"),
    (_TRIAL, "trial"),
    (_SWEEP, "sweep"),
)
_ENDED = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "interrupted"}


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        id: MLflow's id of the run.
        name: Name in the UI, without the mark of the best student.
        experiment: Name of its experiment.
        sweep: Name of the sweep that it is or belongs to; empty for a run from elsewhere.
        trial: Trial of the sweep, such as ``trial-0003``; empty for other runs.
        level: ``sweep``, ``trial``, ``stage`` or ``other``.
        parent: Id of its parent run; empty at the top.
        state: ``finished``, ``stopped early``, ``failed``, ``interrupted`` or ``running``.
        seconds: Seconds from its start to its end; None while it runs.
        parameters: Parameters as they were logged, all text.
        figures: The last value of each metric.
    """

    id: str
    name: str
    experiment: str
    sweep: str
    trial: str
    level: str
    parent: str
    state: str
    seconds: float | None
    parameters: Mapping[str, str]
    figures: Mapping[str, float]


def _experiments(client: Any, uri: str) -> list[Any]:
    """List the experiments.

    Raises:
        BadInput: The server does not answer, or is no MLflow server.
    """
    from mlflow.exceptions import MlflowException

    try:
        return of_all_pages(client.search_experiments)
    except MlflowException as error:
        raise BadInput(
            f"MLflow must answer at {redacted(uri)}, but: {redacted(str(error))[:300]}. Start the server, or "
            "unset MLFLOW_TRACKING_URI to read the runs of the workspace."
        ) from None


def read_runs(uri: str, *, experiment: str = "", runs: Iterable[str] = ()) -> list[Run]:
    """Read the requested runs, each with all its descendants, oldest first.

    Args:
        uri: Where MLflow keeps its runs.
        experiment: Name of an experiment, with or without the prefix ``stillhouse-``; all its runs are read.
        runs: Ids, names of runs, or names of sweeps, of any experiment; used if no experiment is named.

    Raises:
        BadInput: No database, or an unknown experiment or run; the message names the near ones.
    """
    path = sqlite_path(uri)
    require(
        path is None or path.exists(),
        "MLflow must hold runs",
        tracking=uri,
        remedy="Run a sweep first, or give --root.",
    )
    damage = damage_of_database(path) if path else ""
    if damage:
        raise BadInput(
            f"MLflow's database must be as it was written, but {path} {damage}. Run the command of a "
            "sweep again: it makes the database anew, and sends its runs."
        )
    client = _client(uri)
    names = {each.experiment_id: each.name for each in _experiments(client, uri)}
    if experiment:
        known = {name: id_ for id_, name in names.items()}
        name = next((n for n in (experiment, f"stillhouse-{experiment}") if n in known), None)
        if name is None:
            raise BadInput(f"unknown MLflow experiment `{experiment}`. {nearest(experiment, list(known))}")
        return _all(client, {known[name]: name})
    return _named(_all(client, names), list(runs))


def where_to_look(uri: str, sweep: str) -> str:
    """Say where a browser shows the trials of a sweep, sorted: the page, and the command if one is needed."""
    try:
        page = _pages(uri).get(f"stillhouse-{sweep}", "")
    except BadInput:  # The server does not answer; the sweep has said so.
        page = ""
    return _in_browser(uri, page)


def side_by_side(uri: str, runs: Iterable[Run]) -> str:
    """Say where the runs of sweeps are seen beside each other; empty if there are not several."""
    sweeps = [run for run in runs if run.level == "sweep"]
    if len(sweeps) < 2:
        return ""
    known = {each.name: each.experiment_id for each in _experiments(_client(uri), uri)}
    experiments = sorted({known[run.experiment] for run in sweeps})
    ids, of = (quote(json.dumps(each)) for each in ([run.id for run in sweeps], experiments))
    return _in_browser(uri, f"/#/compare-runs?runs={ids}&experiments={of}")


def _in_browser(uri: str, page: str) -> str:
    path = sqlite_path(uri)
    if uri.startswith("http"):
        return f"{redacted(uri).rstrip('/')}{page}"
    ours = path is not None and path.parent == default_root().resolve() and Path("Makefile").exists()
    command = "make ui" if ours else f"mlflow ui --backend-store-uri '{redacted(uri)}' --host 127.0.0.1"
    return f"{command}, then {UI}{page}"


def say_pages() -> None:
    """Print for each sweep of the default workspace where `make ui` shows its trials."""
    path = own_database(default_root())
    pages = _pages(f"sqlite:///{path}") if path.exists() else {}
    for name, page in pages.items():
        show(f"trials of {name.removeprefix('stillhouse-')}: {UI}{page}")
    if not pages:
        show(f"no sweep has run in {path.parent} yet")


def _pages(uri: str) -> dict[str, str]:
    """The page of each experiment's trials, sorted, under the address of the UI, by the experiment's name.

    MLflow opens an experiment at its traces, of which a sweep has none.
    """
    views = {
        each: next((tag for tag in each.tags if tag.startswith(_TRIALS_VIEW)), "").rpartition(".")[2]
        for each in _experiments(_client(uri), uri)
    }
    kind = "workflowType=machine_learning"
    return {
        each.name: f"/#/experiments/{each.experiment_id}/runs?{kind}&viewStateShareKey={view}"
        for each, view in views.items()
        if view
    }


def tag_runs(uri: str, query: str, tags: Mapping[str, str]) -> int:
    """Set tags on the runs that a filter of MLflow's finds; where it finds a sweep, only on its own run.

    Returns:
        Number of runs that were tagged.
    """
    client = _client(uri)
    experiments = [each.experiment_id for each in _experiments(client, uri)]
    runs = of_all_pages(client.search_runs, experiments, query)
    if any(_level(run) == "sweep" for run in runs):
        runs = [run for run in runs if _level(run) == "sweep"]
    for run in runs:
        for name, value in tags.items():
            client.set_tag(run.info.run_id, name, value)
    return len(runs)


def _client(uri: str) -> Any:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    return MlflowClient(uri)


def _level(run: Any) -> str:
    return next((name for tag, name in _LEVELS if tag in run.data.tags), "other")


def _all(client: Any, experiments: Mapping[str, str]) -> list[Run]:
    found = of_all_pages(client.search_runs, list(experiments), order_by=["start_time ASC"])
    runs = [_run(run, experiments[run.info.experiment_id]) for run in found]
    return [run for run in runs if run.level != "comparison"]


def of_all_pages(search: Callable[..., Any], *arguments: Any, **named: Any) -> list[Any]:
    """Return what a search finds on all of its pages."""
    found: list[Any] = []
    token = None
    while True:
        page = search(*arguments, **named, page_token=token)
        found += page
        token = page.token
        if not token:
            return found


def _named(runs: list[Run], names: list[str]) -> list[Run]:
    chosen: set[str] = set()
    for name in names:
        fits = [r for r in runs if r.id == name] or [
            r for r in runs if r.sweep == name and r.level == "sweep"
        ]
        fits = fits or [r for r in runs if r.name == name]
        if not fits:
            known = sorted({r.sweep for r in runs if r.level == "sweep"} | {r.name for r in runs})
            raise BadInput(f"unknown MLflow run `{name}`. {nearest(name, known)}")
        require(
            len(fits) == 1,
            f"`{name}` names one run",
            runs=len(fits),
            remedy=f"Give an id: {', '.join(f'{r.id} ({r.sweep or r.experiment})' for r in fits[:4])}.",
        )
        chosen.add(fits[0].id)
    for _ in ("trials", "stages"):
        chosen |= {run.id for run in runs if run.parent in chosen}
    return [run for run in runs if run.id in chosen]


def _run(run: Any, experiment: str) -> Run:
    tags, info = run.data.tags, run.info
    return Run(
        id=info.run_id,
        name=(info.run_name or info.run_id).removesuffix(BEST_SUFFIX),
        experiment=experiment,
        sweep=tags.get(_SWEEP, ""),
        trial=tags.get(_TRIAL, ""),
        level=_level(run),
        parent=tags.get("mlflow.parentRunId", ""),
        state=tags.get("stillhouse.state", _ENDED.get(info.status, "running")),
        seconds=(info.end_time - info.start_time) / 1000 if info.end_time else None,
        parameters=dict(run.data.params),
        figures=dict(run.data.metrics),
    )
