"""Processes of `encode.py`, asked for one pass after the other."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
from harness import ROOT

PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
"""Where `make peers` puts what the ONNX and OpenVINO backends need; without it they are left out."""


class Served:
    """One process that encodes the same texts whenever it is asked.

    Args:
        texts: A JSON file with a list of texts.
        model: A folder.
        options: Further ones of `encode.py`; the first says who encodes.
        python: The interpreter; None is this one.
    """

    def __init__(self, texts: Path, model: str, *options: str, python: Path | None = None) -> None:
        command = [str(python or sys.executable), str(Path(__file__).with_name("encode.py")), *options]
        self._process = subprocess.Popen(
            [*command, "--model", model, "--texts", str(texts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._wait_for("ready")

    def seconds(self, batch: int = 0) -> float:
        """Run one more pass in batches of the given size; 0 keeps the batches as they are."""
        return float(self._ask(f"pass {batch}"))

    def vectors(self) -> npt.NDArray[np.float32]:
        """Return the vectors of the last pass."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "vectors.npy"
            self._ask(f"save {file}")
            found: npt.NDArray[np.float32] = np.load(file)
        return found

    def __enter__(self) -> "Served":
        """The running process."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._process.communicate("quit\n", timeout=60)

    def _ask(self, command: str) -> str:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def _wait_for(self, word: str) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.strip() == word:
                return
        raise RuntimeError(f"the peer ended with exit code {self._process.wait()} before it was ready")


def write_texts(folder: Path, texts: list[str]) -> Path:
    """The texts as a file for `Served`."""
    file = folder / "texts.json"
    file.write_text(json.dumps(texts))
    return file
