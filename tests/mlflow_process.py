"""MLflow's server in a process of its own, and ports for such servers."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from patience import STUCK_S


def free_port() -> int:
    """A port on loopback that nobody listened on a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def mlflow_server(folder: Path, port: int, store: str = "") -> Iterator[int]:
    """Run an MLflow server on loopback; yield its process group, which is ended with the block.

    Args:
        folder: Receives its log and its artifacts.
        port: Where it listens.
        store: Address of its database; empty takes an SQLite file in the folder.
    """
    command = [sys.executable, "-P", "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", store or f"sqlite:///{folder / 'server.db'}", "--workers", "1"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("a") as log:
        child = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(lambda: _answers(port), "the server answers")
        yield child.pid
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def wait_for(condition: Callable[[], Any], what: str, seconds: float = STUCK_S) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s until {what}"
        time.sleep(0.05)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
