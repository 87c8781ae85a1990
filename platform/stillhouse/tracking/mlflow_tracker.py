"""MLflow as the tracker: a journal in front and a background thread behind it, so that callers never wait.

Every call is written to a `Journal`; the thread reads it and sends the entries to MLflow. What a server that
is down has not accepted stays in the journal with its own timestamps, and is sent when the server is back or
by the next run of the same command. Sending twice changes nothing: runs are found by tag, MLflow drops equal
metrics, and parameters are set where absent.
"""

import hashlib
import os
import re
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import lock_of_file, locked, sha256_of
from stillhouse.core.console import doing, warn
from stillhouse.core.errors import BadInput, require
from stillhouse.core.redaction import redacted
from stillhouse.tracking import ENDED, Data, Key, Row, View, flatten
from stillhouse.tracking.journal import Entry, Journal, stamp
from stillhouse.tracking.location import ENVIRONMENT, put_aside_damaged

_BACKOFF_S = (0.5, 1.0, 2.0, 4.0)
_PATIENCE_S = 60.0
"""How long a server may fail before a tracker that is closed no longer waits for it."""
_NEVER_ACCEPTED = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "INVALID_STATE")


@dataclass(frozen=True)
class _Outage:
    """Why a server accepts nothing, since when (monotonic, in seconds), and how often it was asked."""

    reason: str
    unreachable: bool
    since: float
    position: int
    failures: int = 1

    @classmethod
    def after(cls, last: "_Outage | None", error: Exception, position: int) -> "_Outage":
        """Return the outage that goes on with this error; it is a new one if entries have been accepted."""
        reason = f"{type(error).__name__}: {' '.join(redacted(str(error)).split())[:160]}"
        if last is None or last.position != position:
            return cls(reason, _unreachable(error), time.monotonic(), position)
        return cls(reason, _unreachable(error), last.since, position, last.failures + 1)

    @property
    def hopeless(self) -> bool:
        """Whether a tracker that is closed should not wait for the server."""
        return self.unreachable or time.monotonic() - self.since > _PATIENCE_S

    @property
    def pause_s(self) -> float:
        """How long to wait before asking again."""
        return _BACKOFF_S[min(self.failures, len(_BACKOFF_S)) - 1]


class MLflowTracker:
    """A `Tracker` that records runs in MLflow.

    One sweep has one journal, which one process at a time writes.
    """

    def __init__(self, uri: str, experiment: str, journal_folder: Path) -> None:
        """Open the journal and start sending what waits in it.

        Args:
            uri: Where MLflow keeps its runs, as `tracking_uri` gives it.
            experiment: MLflow's experiment; created if absent.
            journal_folder: The sweep's folder.
        """
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        # Imported here, not in the thread: two threads that import the same package can see half of it.
        from stillhouse.tracking.mlflow_server import Server

        if not uri.startswith("http"):
            import mlflow.store.model_registry.sqlalchemy_store
            import mlflow.store.tracking.sqlalchemy_store  # noqa: F401

        self.uri, self.journal = uri, Journal(journal_folder)
        try:
            put_aside_damaged(uri)
        # As in `_send`: nothing that concerns tracking may end training.
        except (OSError, BadInput) as error:
            warn(f"MLflow at {redacted(uri)}: {redacted(str(error))}")
        self._server = Server(uri, experiment, self.journal)
        self._position = self.journal.confirmed(self.uri)
        self._outage: _Outage | None = None
        self._checked = False
        self._news, self._closing, self._given_up = (threading.Event() for _ in range(3))
        self._thread = threading.Thread(target=self._send, name="mlflow", daemon=True)
        self._thread.start()

    def run(
        self,
        key: Key,
        name: str,
        parameters: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
        documents: Mapping[str, object] | None = None,
        datasets: Sequence[Data] = (),
        at: float | None = None,
    ) -> None:
        """Start a run or continue it; see `Tracker.run`."""
        assert 1 <= len(key) <= 3 and all(part and "/" not in part for part in key), key
        self._append(
            do="run",
            key=key,
            name=name,
            parameters=flatten(parameters or {}),
            tags=dict(tags or {}),
            documents=dict(documents or {}),
            **({"datasets": [asdict(data) for data in datasets]} if datasets else {}),
            **_time(at),
        )

    def metrics(self, key: Key, rows: Iterable[Row]) -> None:
        """Add metrics; ``@`` in a name becomes ``_at_``, which MLflow accepts."""
        points = [[row.step, round(row.time * 1000), dict(row.metrics)] for row in rows]
        self._append(do="metrics", key=key, rows=points)

    def describe(
        self, key: Key, subject: str, tags: Mapping[str, str] | None = None, name: str = "", note: str = ""
    ) -> None:
        """Set tags, the name and the description of a run; see `Tracker.describe`."""
        self._append(do="describe", key=key, subject=subject, tags=dict(tags or {}), name=name, note=note)

    def views(self, key: Key, views: Sequence[View]) -> None:
        """Offer tables of the experiment's runs as saved views of MLflow's UI."""
        assert views and all(view.metrics for view in views), views
        self._append(do="views", key=key, views=[asdict(view) for view in views])

    def artifact(self, key: Key, path: Path, folder: str = "") -> None:
        """Add a file, or the files of a folder, under ``folder``."""
        self._append(do="artifact", key=key, path=str(path.resolve()), folder=folder, stamp=stamp(path))

    def register(
        self,
        key: Key,
        folder: Path,
        name: str,
        alias: str = "champion",
        tags: Mapping[str, str] | None = None,
    ) -> str | None:
        """Register an exported student; the same weights under the same name are one version.

        Returns:
            The version, or None while the server is down: it is registered once the journal is sent.
        """
        require(
            bool(re.fullmatch(r"[^/:.%\"']+", name)),
            "a model's name contains none of / : . % and quotes",
            name=name,
        )
        import sentence_transformers  # noqa: F401  (the thread needs it: see __init__)

        weights = weights_sha256(folder)
        self._append(
            do="register",
            key=key,
            path=str(folder.resolve()),
            name=name,
            alias=alias,
            weights=weights,
            tags=dict(tags or {}),
        )
        return self._wait_for_version(name, weights, self.journal.size)

    def finish(self, key: Key, state: str = "finished", reason: str = "", at: float | None = None) -> None:
        """End a run."""
        assert state in ENDED, state
        self._append(do="state", key=key, state=state, reason=reason, **_time(at))

    def close(self, seconds: float = 30.0) -> str:
        """Send the entries that can be sent in the given time; a server that fails is asked again.

        Returns:
            One line on what still waits, or an empty string.
        """
        self._closing.set()
        self._news.set()
        with doing("sending the last entries to MLflow"):
            self._thread.join(seconds)
        self._given_up.set()
        self.journal.close()
        waiting = self.journal.waiting(self._position)
        if not waiting:
            return ""
        why = f" ({outage.reason})" if (outage := self._outage) else ""
        return (
            f"MLflow at {redacted(self.uri)} has not accepted {waiting} entries yet{why}: they wait in "
            f"{self.journal.path}, and the same command sends them."
        )

    def _append(self, **entry: Any) -> None:
        if self.journal.append(**entry):
            self._news.set()

    def _wait_for_version(self, name: str, weights: str, position: int, seconds: float = 60.0) -> str | None:
        deadline = time.monotonic() + seconds
        with doing("registering the model in MLflow"):
            while self._position < position and time.monotonic() < deadline:
                if (outage := self._outage) and outage.hopeless:
                    break
                time.sleep(0.02)
        return self.journal.versions().get(f"{name}@{weights}")

    def _send(self) -> None:
        """Run in the thread: send until the tracker is closed and nothing waits, or `close` has given up."""
        while True:
            try:
                self._send_waiting()
                self._outage = None
                if self._closing.is_set() and self._position >= self.journal.size:
                    self._server.tidy()
                    return
            # Nothing that a tracking server does may end training: the entries wait, and `close` says why.
            except Exception as error:
                self._server.doubt()
                self._outage = _Outage.after(self._outage, error, self._position)
                if self._closing.is_set() and self._outage.hopeless:
                    return
                wakes = self._given_up if self._closing.is_set() else self._closing
                wakes.wait(self._outage.pause_s)
                if self._given_up.is_set():
                    return
                continue
            if not self._closing.is_set():
                self._news.wait()
            self._news.clear()

    def _send_waiting(self) -> None:
        """Send everything; a tracker that was closed too early for its last entries may still be at it."""
        with locked(lock_of_file(self.journal.path)):
            self._position = self.journal.confirmed(self.uri)
            if not self._checked and self._position and self._server.is_new():
                self._confirm(0)
            self._checked = True
            while group := _group(self.journal.read(self._position)):
                entries = [entry for entry, _ in group]
                try:
                    self._server.send(entries)
                except Exception as error:
                    if not _never_accepted(error):
                        raise
                    self.journal.refuse(entries, str(error))
                self._confirm(group[-1][1])

    def _confirm(self, position: int) -> None:
        self._position = position
        self.journal.confirm(self.uri, position)


def _time(at: float | None) -> dict[str, int]:
    """The time of a journal's entry that is not of now."""
    return {} if at is None else {"time": round(at * 1000)}


def weights_sha256(folder: Path) -> str:
    """Return one hash over all weights of an exported folder."""
    files = sorted(folder.rglob("*.safetensors"))
    require(bool(files), "an exported student has weights (*.safetensors)", folder=str(folder))
    if len(files) == 1:
        return sha256_of(files[0])
    lines = "\n".join(f"{file.relative_to(folder)} {sha256_of(file)}" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def _group(read: list[tuple[Entry, int]]) -> list[tuple[Entry, int]]:
    """Return the first entries that are sent together: metrics with metrics, anything else alone."""
    if not read or read[0][0]["do"] != "metrics":
        return read[:1]
    others = (index for index, (entry, _) in enumerate(read) if entry["do"] != "metrics")
    return read[: next(others, len(read))]


def _never_accepted(error: Exception) -> bool:
    code = getattr(error, "error_code", "")
    return code in _NEVER_ACCEPTED or isinstance(error, FileNotFoundError)


def _unreachable(error: BaseException | None) -> bool:
    """Whether nothing listens at the address, or its name is unknown; a slow server may answer soon."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError | socket.gaierror):
            return True
        error = error.__cause__ or error.__context__
    return False
