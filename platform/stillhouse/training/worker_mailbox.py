"""How the ranks of a run and the process that started it exchange a few words, on whatever machines they are.

Under Ray the words are kept by the cluster's control store (GCS), which every node can ask and which outlives
the process that trains; otherwise all processes are on one machine, and the words are files.
"""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stillhouse.cluster.running import ray_runs
from stillhouse.core.artifacts import Artifact, Workspace, write_atomically
from stillhouse.core.distributed import rank
from stillhouse.core.errors import BadInput, Hindered
from stillhouse.training.progress import Diverged, Evaluation

_FAILURES: dict[str, type[Exception]] = {"Diverged": Diverged, "Hindered": Hindered, "BadInput": BadInput}
_NAMESPACE = "stillhouse-workers"
_EVALUATIONS, _STOP, _END, _GROUP, _WAIT = "evaluations", "stop", "end", "placement-group", "wait"
_SEEN = "seen"


@dataclass(frozen=True)
class Wait:
    """A time in which the ranks of a run could not train.

    Attributes:
        what: What they waited for, such as ``room for 2 workers with 1 CPU each``.
        began: When it began, in seconds since the epoch.
        ended: When it ended; None if it goes on.
    """

    what: str
    began: float
    ended: float | None = None


class WordsInFolder:
    """Values in files of this machine, in a folder that is theirs alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, value: bytes) -> None:
        """Set a value; whoever reads it finds all of it or what was there before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / name, value)

    def read(self, name: str) -> bytes | None:
        """Return a value; None if it was never set."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def clear(self) -> None:
        """Forget all values."""
        shutil.rmtree(self.folder, ignore_errors=True)


class WordsOfCluster:
    """Values in the control store of the Ray cluster that this process belongs to."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def write(self, name: str, value: bytes) -> None:
        """Set a value."""
        from ray.experimental.internal_kv import _internal_kv_put

        _internal_kv_put(f"{self.prefix}:{name}", value, overwrite=True, namespace=_NAMESPACE)

    def read(self, name: str) -> bytes | None:
        """Return a value; None if it was never set."""
        from ray.experimental.internal_kv import _internal_kv_get

        value: bytes | None = _internal_kv_get(f"{self.prefix}:{name}", namespace=_NAMESPACE)
        return value

    def clear(self) -> None:
        """Forget all values."""
        from ray.experimental.internal_kv import _internal_kv_del

        _internal_kv_del(f"{self.prefix}:", del_by_prefix=True, namespace=_NAMESPACE)


class WorkerMailbox:
    """Passes evaluations one way, stop requests the other, and finally the failure of the ranks.

    What it is made of is the same for all processes of a run.
    """

    def __init__(self, words: WordsInFolder | WordsOfCluster) -> None:
        self._words = words
        self._sent: list[dict[str, Any]] = []
        self._received = 0

    def clear(self) -> None:
        """Remove the messages of an earlier run."""
        self._words.clear()

    def start(self) -> None:
        """Empty the evaluations, on rank 0: a resumed run reports all of them again."""
        self._write_on_rank0(_EVALUATIONS, [])

    def record_group(self, name: str) -> None:
        """Record on rank 0 the placement group that the ranks run in."""
        self._write_on_rank0(_GROUP, name)

    def placement_group(self) -> str:
        """Return the placement group of the latest run; empty if there is none."""
        return str(self._read(_GROUP) or "")

    def note_seen(self, examples: int) -> None:
        """Note how many examples have been seen, for those who do not see the metrics log."""
        self._write(_SEEN, examples)

    def seen(self) -> int | None:
        """Return how many examples had been seen at the latest note; None if there is none."""
        examples: int | None = self._read(_SEEN)
        return examples

    def note_wait(self, wait: Wait) -> None:
        """Note what the ranks wait for, or have waited for."""
        self._write(_WAIT, asdict(wait))

    def latest_wait(self) -> Wait | None:
        """Return the latest wait of the ranks; None if there was none."""
        wait = self._read(_WAIT)
        return None if wait is None else Wait(**wait)

    def send(self, evaluation: Evaluation) -> bool:
        """Send an evaluation from rank 0; a stop request comes back by `stop_requested`."""
        self._sent.append(asdict(evaluation))
        self._write_on_rank0(_EVALUATIONS, self._sent)
        return False

    def receive(self) -> list[Evaluation]:
        """Return the evaluations that were not received before."""
        sent = [Evaluation(**each) for each in self._read(_EVALUATIONS) or []]
        new = [evaluation for evaluation in sent if evaluation.step > self._received]
        self._received = max([self._received, *(evaluation.step for evaluation in new)])
        return new

    def request_stop(self) -> None:
        """Request all ranks to checkpoint and exit."""
        self._write(_STOP, True)

    def stop_requested(self) -> bool:
        """Return whether the ranks are to exit."""
        return bool(self._read(_STOP))

    def send_failure(self, error: Exception) -> None:
        """Record why training cannot continue, on the first rank that finds out; others fail in its wake."""
        kind = next(name for name, failure in _FAILURES.items() if isinstance(error, failure))
        if self.failure() is None:
            self._write(_END, {"kind": kind, "reason": str(error)})

    def failure(self) -> Exception | None:
        """Return why training cannot continue; unlike the loss of a worker it is not retried."""
        failure = self._read(_END)
        return None if failure is None else _FAILURES[failure["kind"]](failure["reason"])

    def _write_on_rank0(self, name: str, content: object) -> None:
        if rank() == 0:
            self._write(name, content)

    def _write(self, name: str, content: object) -> None:
        self._words.write(name, json.dumps(content).encode())

    def _read(self, name: str) -> Any:
        value = self._words.read(name)
        return None if value is None else json.loads(value)


def mailbox_of(workspace: Workspace, artifact: Artifact) -> WorkerMailbox:
    """Return the mailbox of the run that makes an artifact; the same in each of its processes."""
    if not ray_runs():
        return WorkerMailbox(WordsInFolder(workspace.place(artifact) / "workers"))
    place = workspace.remote or workspace.root.resolve()
    return WorkerMailbox(WordsOfCluster(f"{place}/{workspace.key(artifact)}"))
