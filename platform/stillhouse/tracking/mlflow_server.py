"""The only module that talks to MLflow. Sending it a journal entry twice changes nothing."""

import contextlib
import getpass
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow.sentence_transformers
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, Metric, Param, RunTag
from mlflow.exceptions import MlflowException, RestException
from mlflow.models import Model

from stillhouse.core.machine import variables_set
from stillhouse.tracking import Key, View
from stillhouse.tracking.journal import Entry, Journal
from stillhouse.tracking.location import ENVIRONMENT, artifact_location, prepare, relocate
from stillhouse.tracking.reading import of_all_pages

LEVEL = "stillhouse.level"
"""The tag that says whether a run is a ``sweep``, a ``trial`` or a ``stage``."""

_JOURNAL = "stillhouse.journal"
_LEVELS = ("stillhouse.sweep", "stillhouse.trial", "stillhouse.stage")
_WEIGHTS = "stillhouse.weights_sha256"
_STATUS = {"running": "RUNNING", "failed": "FAILED", "interrupted": "KILLED"}
_NEEDED = ("sentence-transformers", "transformers", "torch")
_SETTLE_S = 1.0
_UPLOAD_S = "600"
"""Seconds that an upload may take."""
_NEVER_ACCEPTED = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "INVALID_STATE")
_WIDTH = 130
"""Width of a column in a saved view, in pixels."""


@dataclass
class _Run:
    id: str
    began: int
    status: str = "RUNNING"
    parameters: set[str] = field(default_factory=set)


class Server:
    """MLflow behind a URI, with what is known about its runs."""

    def __init__(self, uri: str, experiment: str, journal: Journal) -> None:
        """Prepare; the first call connects."""
        self.uri, self.experiment, self.journal = uri, experiment, journal
        self._client: Any = None
        self._experiment_id = ""
        self._runs: dict[Key, _Run] = {}
        self._loaded = False
        self._doubtful = False

    def send(self, entries: list[Entry], *, files: bool = False) -> None:
        """Send metrics of any runs together, or one other entry; a run's ``files`` go by themselves."""
        entry = entries[0]
        match entry["do"]:
            case "run" if files:
                self._send_documents(entry)
            case "run":
                self._send_run(entry)
            case "metrics":
                self._send_metrics(entries)
            case "describe":
                self._send_description(entry)
            case "views":
                self._send_views(entry)
            case "artifact":
                self._send_artifact(entry)
            case "state":
                self._send_state(entry)
            case "register":
                self._register(entry)

    def is_new(self) -> bool:
        """Return whether MLflow does not know the journal's sweep: the database was deleted or replaced."""
        first = self.journal.read(0, 1)
        if not first or first[0][0]["do"] != "run":
            return False
        return self._find(tuple(first[0][0]["key"])) is None

    def doubt(self) -> None:
        """Note that a call failed, so that it is unknown whether it was carried out."""
        self._doubtful = True

    def tidy(self) -> None:
        """Remove, at the end, the duplicates that late or repeated requests may have made."""
        if self._client is not None:
            self._load()

    def settle(self) -> None:
        """After a doubt, let requests that hung in the server finish, then read its runs again."""
        if not self._doubtful:
            return
        self._client.get_experiment(self._experiment_id)
        time.sleep(_SETTLE_S)
        self._load()
        self._doubtful = False

    def never_accepts(self, error: Exception) -> bool:
        """Return whether MLflow itself has refused what an entry says, or its file is gone.

        Servers before it, such as a proxy that has a page for each mistake, answer with the same numbers.
        """
        if isinstance(error, FileNotFoundError):
            return True
        own = isinstance(error, RestException) or not self.uri.startswith("http")
        return own and getattr(error, "error_code", "") in _NEVER_ACCEPTED

    def connect(self) -> None:
        """Find the experiment, or create it."""
        if self._client is not None:
            return
        prepare(self.uri)
        try:
            client = MlflowClient(self.uri)
        except MlflowException as error:
            if "out-of-date" not in str(error):
                raise
            prepare(self.uri, upgrade=True)
            client = MlflowClient(self.uri)
        relocate(self.uri, _JOURNAL)
        found = client.get_experiment_by_name(self.experiment)
        if found is None:
            place = artifact_location(self.uri)
            self._experiment_id = client.create_experiment(self.experiment, artifact_location=place)
        else:
            self._experiment_id = found.experiment_id
            if found.lifecycle_stage == "deleted":
                client.restore_experiment(found.experiment_id)
        self._client = client

    def _load(self) -> None:
        """Read the journal's runs. Of two with one key that stays which is written to, else the fuller."""
        query = f"tags.`{_JOURNAL}` = '{self.journal.id}'"
        runs = of_all_pages(self._client.search_runs, [self._experiment_id], query)
        kept: dict[Key, Any] = {}
        used = {run.id for run in self._runs.values()}
        for run in sorted(runs, key=lambda run: _worth(run, used), reverse=True):
            key = tuple(run.data.tags[level] for level in _LEVELS if level in run.data.tags)
            if key in kept:
                self._client.delete_run(run.info.run_id)
            else:
                kept[key] = run
        for key, run in kept.items():
            self._runs[key] = _Run(
                run.info.run_id, run.info.start_time, run.info.status, set(run.data.params)
            )
        self._loaded = True

    def _find(self, key: Key) -> _Run | None:
        if not self._loaded:
            self._load()
        return self._runs.get(key)

    def _get(self, entry: Entry) -> _Run:
        """Return the run of an entry; it is created if it is missing, for instance because it was deleted."""
        key = tuple(entry["key"])
        found = self._find(key)
        if found is not None:
            return found
        tags = {_JOURNAL: self.journal.id, "mlflow.user": _user()}
        tags |= {"mlflow.source.type": "LOCAL", "mlflow.source.name": Path(sys.argv[0]).name}
        tags[LEVEL] = _LEVELS[len(key) - 1].removeprefix("stillhouse.")
        tags |= dict(zip(_LEVELS, key, strict=False))
        if len(key) > 1:
            tags["mlflow.parentRunId"] = self._get({**entry, "key": key[:-1], "name": key[-2]}).id
        run = self._client.create_run(self._experiment_id, entry["time"], tags, entry.get("name", key[-1]))
        self._runs[key] = _Run(run.info.run_id, entry["time"])
        return self._runs[key]

    def _send_run(self, entry: Entry) -> None:
        run = self._get(entry)
        absent = {n: v for name, v in entry["parameters"].items() if (n := _name(name)) not in run.parameters}
        tags = dict(entry["tags"])
        if "git.revision" in tags:
            tags["mlflow.source.git.commit"] = tags["git.revision"].removesuffix("-dirty")
        for part in _parts([Param(name, value[:6000]) for name, value in absent.items()], 100):
            self._client.log_batch(run.id, params=part)
        self._set_tags(run, tags)
        run.parameters |= set(absent)
        if entry.get("datasets"):
            self._client.log_inputs(run.id, [_dataset(**data) for data in entry["datasets"]])
        if run.status in ("FAILED", "KILLED"):
            self._client.update_run(run.id, "RUNNING")
            run.status = "RUNNING"

    def _send_documents(self, entry: Entry) -> None:
        for name, content in entry["documents"].items():
            with _patience():
                self._client.log_dict(self._get(entry).id, content, name)

    def _send_metrics(self, entries: list[Entry]) -> None:
        by_run: dict[str, list[Any]] = {}
        for entry in entries:
            metrics = by_run.setdefault(self._get(entry).id, [])
            for step, at, values in entry["rows"]:
                metrics += [Metric(_name(name), value, at, step) for name, value in values.items()]
        for run_id, metrics in by_run.items():
            for part in _parts(metrics, 1000):
                self._client.log_batch(run_id, metrics=part)

    def _send_description(self, entry: Entry) -> None:
        run, tags = self._get(entry), dict(entry["tags"])
        if entry["note"]:
            tags["mlflow.note.content"] = entry["note"]
        if entry["name"]:
            tags["mlflow.runName"] = entry["name"]
        self._set_tags(run, tags)

    def _set_tags(self, run: _Run, tags: Mapping[str, str]) -> None:
        for part in _parts([RunTag(_name(name), value[:5000]) for name, value in tags.items()], 100):
            self._client.log_batch(run.id, tags=part)

    def _send_views(self, entry: Entry) -> None:
        views = [View(**view) for view in entry["views"]]
        tags = {saved_view_tag(view.title): saved_view(view, entry["time"]) for view in views}
        tags["mlflow.experiment.primaryMetric.name"] = _name(views[0].metrics[0])
        tags["mlflow.experiment.primaryMetric.greaterIsBetter"] = "True"
        for name, value in tags.items():
            self._client.set_experiment_tag(self._experiment_id, name, value)

    def _send_artifact(self, entry: Entry) -> None:
        path, folder = Path(entry["path"]), entry["folder"] or None
        if not path.exists():
            raise FileNotFoundError(f"{path} no longer exists")
        run = self._get(entry)
        send = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
        with _patience():
            send(run.id, str(path), folder)

    def _send_state(self, entry: Entry) -> None:
        run, state = self._get(entry), entry["state"]
        run.status = _STATUS.get(state, "FINISHED")
        self._set_tags(run, {"stillhouse.state": state, "stillhouse.reason": entry.get("reason", "")})
        if state == "running":
            self._client.update_run(run.id, run.status)
        else:
            self._client.set_terminated(run.id, run.status, max(entry["time"], run.began))

    def _register(self, entry: Entry) -> None:
        name, weights, client = entry["name"], entry["weights"], self._client
        try:
            client.get_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            client.create_registered_model(name)
        versions = client.search_model_versions(f"name = '{name}'")
        known = next((each for each in versions if each.tags.get(_WEIGHTS) == weights), None)
        number = str(known.version) if known else self._new_version(entry)
        client.set_registered_model_alias(name, entry["alias"], number)
        self.journal.keep_version(name, weights, number)

    def _new_version(self, entry: Entry) -> str:
        client, run, tags = self._client, self._get(entry), {**entry["tags"], _WEIGHTS: entry["weights"]}
        begun = client.search_logged_models(
            [self._experiment_id], filter_string=f"tags.`{_WEIGHTS}` = '{entry['weights']}'"
        )
        logged = next((each for each in begun if each.name == entry["name"]), None)
        logged = logged or client.create_logged_model(
            self._experiment_id, name=entry["name"], source_run_id=run.id, tags=tags
        )
        with _patience(), tempfile.TemporaryDirectory() as folder:
            description = Model(
                logged.artifact_location, run.id, model_uuid=logged.model_id, model_id=logged.model_id
            )
            mlflow.sentence_transformers.save_model(
                _Exported(Path(entry["path"])),
                f"{folder}/model",
                mlflow_model=description,
                pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in _NEEDED],
            )
            client.log_model_artifacts(logged.model_id, f"{folder}/model")
        client.finalize_logged_model(logged.model_id, "READY")
        client.log_outputs(run.id, [LoggedModelOutput(logged.model_id, step=0)])
        created = client.create_model_version(
            entry["name"], logged.artifact_location, run.id, tags=tags, model_id=logged.model_id
        )
        return str(created.version)


def _user() -> str:
    """The name of the user, or the number of one without a name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """Let an upload take longer than a call, unless the user has set the limit of both."""
    name = "MLFLOW_HTTP_REQUEST_TIMEOUT"
    own = os.environ.get(name) == ENVIRONMENT[name]
    with variables_set({name: _UPLOAD_S} if own else {}):
        yield


class _Exported:
    """An exported folder as MLflow expects a model: saved by copying, so that its bytes stay as measured."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, path: str) -> None:
        shutil.copytree(self.folder, path)

    def modules(self) -> Iterator[object]:
        return iter(())


def _dataset(name: str, digest: str, source: str) -> DatasetInput:
    """Rows that a run is trained on, as MLflow's UI lists them."""
    dataset = Dataset(name, digest, "local", json.dumps({"uri": source}))
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])


def saved_view_tag(title: str) -> str:
    """Return the experiment tag that holds one of the UI's saved views ("Views" above the table of runs)."""
    return f"mlflow.sharedViewState.{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')}"


def saved_view(view: View, created_ms: int) -> str:
    """Write a view as MLflow's UI saves one itself.

    The UI shows no metric and no parameter unless somebody chooses them; a saved view is that choice.
    """
    metrics = [f"metrics.`{_name(name)}`" for name in view.metrics]
    columns = [*metrics, *(f"params.`{_name(name)}`" for name in view.parameters)]
    state = {
        "searchFilter": f"tags.`{LEVEL}` = '{view.level}'",
        "orderByKey": metrics[0],
        "orderByAsc": False,
        "selectedColumns": columns,
        "columnOrder": columns,
        "columnWidths": {column: _WIDTH for column in columns},
    }
    envelope = {
        "name": view.title,
        "createdAt": created_ms,
        "updatedAt": created_ms,
        "state": json.dumps(state),
    }
    return json.dumps(envelope)


def _worth(run: Any, used: Collection[str]) -> tuple[bool, int, bool, int]:
    """Order runs with one key: a later duplicate is empty, and has not ended."""
    fullness = len(run.data.metrics) + len(run.data.params)
    return run.info.run_id in used, fullness, run.info.status != "RUNNING", -run.info.start_time


def _name(name: str) -> str:
    """Replace the characters that MLflow does not accept in a name."""
    return re.sub(r"[^\w./ :-]", "_", name.replace("@", "_at_"))[:250]


def _parts(items: list[Any], most: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]
