"""MLflow as the tracker: a journal in front and a background thread behind it, so that callers never wait.

Every call is written to a `Journal`; the thread reads it and sends the entries to MLflow. What a server that
is down has not accepted stays in the journal with its own timestamps, and is sent when the server is back or
by the next run of the same command. Sending twice changes nothing: runs are found by tag, MLflow drops equal
metrics, and parameters are set where absent.
"""

import hashlib
import itertools
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
from stillhouse.tracking.journal import LOST, Entry, Journal, stamp
from stillhouse.tracking.location import ENVIRONMENT, put_aside_damaged

_BACKOFF_S = (0.5, 1.0, 2.0, 4.0)
_PATIENCE_S = 60.0
"""How long a server may fail before a tracker that is closed no longer waits for it."""
_SAID_AFTER_S = 30.0
"""How long a server fails before a line says so."""
_KINDS: dict[str, tuple[str, ...]] = {
    "": ("run", "metrics", "describe", "views", "state", LOST),
    "files": ("run", "artifact"),
    "models": ("register",),
}
"""What is sent after each other, each from a position of its own: a later kind never holds an earlier one."""


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
        """True if a tracker that is closed should not wait for the server."""
        return self.unreachable or time.monotonic() - self.since > _PATIENCE_S

    @property
    def pause_s(self) -> float:
        """How long to wait before asking again."""
        return _BACKOFF_S[min(self.failures, len(_BACKOFF_S)) - 1]


class MLflowTracker:
    """Records runs in MLflow. No call waits for a server, and repeating a call changes nothing.

    One sweep has one journal, which one process at a time writes.
    """

    def __init__(self, uri: str, experiment: str, journal_folder: Path) -> None:
        """Open the journal of a sweep's folder and start sending what waits in it to an experiment of MLflow.

        The experiment is made if it is absent.
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
        self._positions = {kind: self.journal.confirmed(_place(uri, kind)) for kind in _KINDS}
        self._refused = 0
        self._failing_since: float | None = None
        self._said = False
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
        """Start a run or continue one that was broken off; a run that ended well stays as it is.

        ``parameters`` may be nested; ``documents`` are JSON by file name; it began ``at`` (seconds since the
        epoch), or now.
        """
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
        """Set tags, the name and the description (Markdown) of a run.

        A later call with the same ``subject`` replaces what an earlier one said.
        """
        self._append(do="describe", key=key, subject=subject, tags=dict(tags or {}), name=name, note=note)

    def views(self, key: Key, views: Sequence[View]) -> None:
        """Offer tables of the experiment's runs as saved views of MLflow's UI, the most important first."""
        assert views and all(view.metrics for view in views), views
        self._append(do="views", key=key, views=[asdict(view) for view in views])

    def artifact(self, key: Key, path: Path, folder: str = "") -> None:
        """Add a file, or the files of a folder, under ``folder``."""
        self._append(do="artifact", key=key, path=str(path.resolve()), folder=folder, stamp=stamp(path))

    def register(
        self, key: Key, folder: Path, name: str, tags: Mapping[str, str] | None = None
    ) -> str | None:
        """Register an exported student as the champion; the same weights under one name are one version.

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
            alias="champion",
            weights=weights,
            tags=dict(tags or {}),
        )
        return self._wait_for_version(name, weights, self.journal.size)

    def finish(self, key: Key, state: str = "finished", reason: str = "", at: float | None = None) -> None:
        """End a run as ``finished``, ``stopped early``, ``failed`` or ``interrupted``, ``at`` a time."""
        assert state in ENDED, state
        self._append(do="state", key=key, state=state, reason=reason, **_time(at))

    def close(self, seconds: float = 30.0) -> str:
        """Send the entries that can be sent in the given time; a server that fails is asked again.

        Returns:
            One line on what still waits or was refused, or an empty string.
        """
        self._closing.set()
        self._news.set()
        with doing("sending the last entries to MLflow"):
            self._thread.join(seconds)
        self._given_up.set()
        self.journal.close()
        waiting = self.journal.waiting({of: self._positions[kind] for kind, of in _KINDS.items()})
        if waiting:
            why = f" ({outage.reason})" if (outage := self._outage) else ""
            return (
                f"MLflow at {redacted(self.uri)} has not accepted {waiting} entries yet{why}: they wait in "
                f"{self.journal.path}, and the same command sends them."
            )
        if self._refused:
            return (
                f"MLflow at {redacted(self.uri)} has refused {self._refused} entries: they are in "
                f"{self.journal.refusals}, with its reasons."
            )
        return ""

    def _append(self, **entry: Any) -> None:
        if self.journal.append(**entry):
            self._news.set()

    def _wait_for_version(self, name: str, weights: str, position: int, seconds: float = 60.0) -> str | None:
        deadline = time.monotonic() + seconds
        with doing("registering the model in MLflow"):
            while self._positions["models"] < position and time.monotonic() < deadline:
                if (outage := self._outage) and outage.hopeless:
                    break
                time.sleep(0.02)
        return self.journal.versions().get(f"{name}@{weights}")

    def _send(self) -> None:
        """Run in the thread: send until the tracker is closed and nothing waits, or `close` has given up."""
        while True:
            try:
                self._send_waiting()
                self._note_success()
                if self._closing.is_set() and min(self._positions.values()) >= self.journal.size:
                    self._server.tidy()
                    return
            # Nothing that a tracking server does may end training: the entries wait, and `close` says why.
            except Exception as error:
                self._server.doubt()
                outage = self._note_failure(error)
                if self._closing.is_set() and outage.hopeless:
                    return
                wakes = self._given_up if self._closing.is_set() else self._closing
                wakes.wait(outage.pause_s)
                if self._given_up.is_set():
                    return
                continue
            if not self._closing.is_set():
                self._news.wait()
            self._news.clear()

    def _send_waiting(self) -> None:
        """Send everything; a tracker that was closed too early for its last entries may still be at it."""
        with locked(lock_of_file(self.journal.path)):
            self._positions = {kind: self.journal.confirmed(_place(self.uri, kind)) for kind in _KINDS}
            self._server.connect()
            if not self._checked and self._positions[""] and self._server.is_new():
                for kind in _KINDS:
                    self._confirm(kind, 0)
            self._checked = True
            for kind in _KINDS:
                self._send_kind(kind)

    def _send_kind(self, kind: str) -> None:
        while read := self.journal.read(self._positions[kind]):
            entries, end = _group(read, _KINDS[kind])
            if entries:
                self._server.settle()
                try:
                    self._server.send(entries, files=kind == "files")
                except Exception as error:
                    if not self._server.never_accepts(error):
                        raise
                    self.journal.refuse(entries, str(error))
                    self._refused += len(entries)
            self._confirm(kind, end)

    def _confirm(self, kind: str, position: int) -> None:
        self._positions[kind] = position
        self.journal.confirm(_place(self.uri, kind), position)

    def _note_failure(self, error: Exception) -> _Outage:
        """Remember that the server accepts nothing, and say so once it has failed for a while."""
        self._outage = outage = _Outage.after(self._outage, error, sum(self._positions.values()))
        if self._failing_since is None:
            self._failing_since = time.monotonic()
        if not self._said and time.monotonic() - self._failing_since > _SAID_AFTER_S:
            warn(f"MLflow at {redacted(self.uri)} fails: {outage.reason}. What waits is sent later.")
            self._said = True
        return outage

    def _note_success(self) -> None:
        if self._said:
            warn(f"MLflow at {redacted(self.uri)} accepts everything again.")
        self._outage, self._failing_since, self._said = None, None, False


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


def _place(uri: str, kind: str) -> str:
    """Return the name under which the journal keeps the position of a kind."""
    return f"{uri}#{kind}" if kind else uri


def _group(read: list[tuple[Entry, int]], kind: Sequence[str]) -> tuple[list[Entry], int]:
    """Return the entries that are sent next, and where they end; none where entries of other kinds lie.

    Metrics are sent with metrics, anything else alone.
    """
    first = read[0][0]["do"]
    if first in kind:
        alike = list(itertools.takewhile(lambda each: each[0]["do"] == first == "metrics", read)) or read[:1]
        return [entry for entry, _ in alike], alike[-1][1]
    others = list(itertools.takewhile(lambda each: each[0]["do"] not in kind, read))
    return [], others[-1][1]


def _unreachable(error: BaseException | None) -> bool:
    """Whether nothing listens at the address, or its name is unknown; a slow server may answer soon."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError | socket.gaierror):
            return True
        error = error.__cause__ or error.__context__
    return False
