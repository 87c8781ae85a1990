"""Files through which the ranks of a run and the process that started it talk, wherever the ranks are."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from stillhouse.core.artifacts import read_json, write_json
from stillhouse.core.distributed import rank
from stillhouse.core.errors import BadInput, Hindered
from stillhouse.training.progress import Diverged, Evaluation

_ENDS: dict[str, type[Exception]] = {"Diverged": Diverged, "Hindered": Hindered, "BadInput": BadInput}


class Post:
    """Evaluations go one way, the wish to stop the other, and in the end why the ranks gave up.

    Args:
        folder: The stage's folder, which every process sees.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "workers"
        self._told = 0

    def clear(self) -> None:
        """Forget an earlier run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def start(self) -> None:
        """Start the evaluations anew, on rank 0: a resumed run tells all of them again."""
        if rank() == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "evaluations.jsonl").write_text("")

    def note_group(self, name: str) -> None:
        """Note on rank 0 which placement group the ranks run in."""
        if rank() == 0:
            (self.folder / "placement_group").write_text(name)

    def group(self) -> str:
        """The placement group of the latest run; empty if there is none."""
        path = self.folder / "placement_group"
        return path.read_text() if path.exists() else ""

    def tell(self, evaluation: Evaluation) -> bool:
        """Pass an evaluation on, from rank 0; the wish to stop comes back another way."""
        if rank() == 0:
            with (self.folder / "evaluations.jsonl").open("a") as file:
                file.write(json.dumps(asdict(evaluation)) + "\n")
        return False

    def news(self) -> list[Evaluation]:
        """Evaluations that were not read before."""
        path = self.folder / "evaluations.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        told = [Evaluation(**json.loads(line)) for line in lines if line.endswith("\n")]
        fresh = [evaluation for evaluation in told if evaluation.step > self._told]
        self._told = max([self._told, *(evaluation.step for evaluation in fresh)])
        return fresh

    def ask_to_stop(self) -> None:
        """Ask all ranks to checkpoint and end."""
        (self.folder / "stop").touch()

    def asked(self) -> bool:
        """Whether the ranks are to end."""
        return (self.folder / "stop").exists()

    def give_up(self, error: Exception) -> None:
        """Say on rank 0 why training cannot go on; such an error is no lost worker, and not tried again."""
        kind = next(name for name, known in _ENDS.items() if isinstance(error, known))
        if rank() == 0:
            write_json(self.folder / "end.json", {"kind": kind, "reason": str(error)})

    def raise_end(self) -> None:
        """Raise what the ranks gave up with, if they did."""
        path = self.folder / "end.json"
        if path.exists():
            end = read_json(path)
            raise _ENDS[end["kind"]](end["reason"])
