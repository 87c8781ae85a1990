"""Files through which the ranks of a run communicate with the process that started it, on any machine."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from stillhouse.core.artifacts import read_json, write_json
from stillhouse.core.distributed import rank
from stillhouse.core.errors import BadInput, Hindered
from stillhouse.training.progress import Diverged, Evaluation

_FAILURES: dict[str, type[Exception]] = {"Diverged": Diverged, "Hindered": Hindered, "BadInput": BadInput}


class WorkerMailbox:
    """Passes evaluations one way, stop requests the other, and finally the failure of the ranks.

    Args:
        folder: The stage's folder, which every process can read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "workers"
        self._received = 0

    def clear(self) -> None:
        """Remove the messages of an earlier run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def start(self) -> None:
        """Empty the evaluations, on rank 0: a resumed run reports all of them again."""
        if rank() == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "evaluations.jsonl").write_text("")

    def record_group(self, name: str) -> None:
        """Record on rank 0 the placement group that the ranks run in."""
        if rank() == 0:
            (self.folder / "placement_group").write_text(name)

    def placement_group(self) -> str:
        """Return the placement group of the latest run; empty if there is none."""
        path = self.folder / "placement_group"
        return path.read_text() if path.exists() else ""

    def send(self, evaluation: Evaluation) -> bool:
        """Send an evaluation from rank 0; a stop request comes back by `stop_requested`."""
        if rank() == 0:
            with (self.folder / "evaluations.jsonl").open("a") as file:
                file.write(json.dumps(asdict(evaluation)) + "\n")
        return False

    def receive(self) -> list[Evaluation]:
        """Return the evaluations that were not received before."""
        path = self.folder / "evaluations.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        sent = [Evaluation(**json.loads(line)) for line in lines if line.endswith("\n")]
        new = [evaluation for evaluation in sent if evaluation.step > self._received]
        self._received = max([self._received, *(evaluation.step for evaluation in new)])
        return new

    def request_stop(self) -> None:
        """Request all ranks to checkpoint and exit."""
        (self.folder / "stop").touch()

    def stop_requested(self) -> bool:
        """Whether the ranks are to exit."""
        return (self.folder / "stop").exists()

    def send_failure(self, error: Exception) -> None:
        """Record on rank 0 why training cannot continue; unlike a lost worker it is not retried."""
        kind = next(name for name, failure in _FAILURES.items() if isinstance(error, failure))
        if rank() == 0:
            write_json(self.folder / "end.json", {"kind": kind, "reason": str(error)})

    def raise_failure(self) -> None:
        """Raise the failure of the ranks, if there is one."""
        path = self.folder / "end.json"
        if path.exists():
            failure = read_json(path)
            raise _FAILURES[failure["kind"]](failure["reason"])
