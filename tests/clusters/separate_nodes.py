"""A cluster on this machine whose nodes share no disk: each has a mount namespace and a folder of its own."""

import contextlib
import math
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from patience import STUCK_S

ROOT = Path(__file__).resolve().parents[2]
_RAY = Path(sys.executable).parent / "ray"
LAG_S = 2.0
"""Seconds within which a line of a job has come: what comes this soon after a loss was said before it."""
_BIND = 'mkdir -p "$1" "$2" && mount --bind "$1" "$2" && shift 2 && exec "$@"'


class Cluster:
    """A head without CPUs, and nodes with one each. They see different folders under the same path.

    Args:
        folder: Receives the disks and the logs. Its path is short.
        base: Ports from here on are the head's.
        host: Number of the head's address in 127.0.0.0/24; the nodes have the ones after it.
        environment: Variables of all nodes.

    Attributes:
        disk: Path under which each node has its own folder.
        client: Variables of whoever submits jobs.
    """

    def __init__(self, folder: Path, *, base: int, host: int, environment: dict[str, str]) -> None:
        self.folder, self.disk, self._base, self._host = folder, folder / "disk", base, host
        self.client = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self._environment = {**environment, **self.client, "RAY_raylet_start_wait_time_s": "180"}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        ports = f"--port={base} --dashboard-host=127.0.0.1 --dashboard-port={base + 1}"
        ports += f" --dashboard-agent-listen-port={base + 2} --ray-client-server-port={base + 3}"
        self._start("head", host, f"--head {ports} --num-cpus=0")
        self._started("head")

    def add(self, name: str) -> None:
        """Start a node, with the disk of this name."""
        self._host += 1
        self._start(name, self._host, f"--address={self.address} --num-cpus=1")
        self._started(name)

    @property
    def address(self) -> str:
        """Where the cluster is joined."""
        return f"127.0.0.{self._first}:{self._base}"

    @property
    def jobs(self) -> str:
        """Where jobs are submitted."""
        return f"http://127.0.0.1:{self._base + 1}"

    def of(self, name: str) -> Path:
        """A node's disk as it is seen from outside."""
        return self.folder / f"disk-{name}"

    def kill(self, name: str) -> None:
        """End a node as a cloud does that takes it away: every process at once, and its disk is gone."""
        process = psutil.Process(self._processes.pop(name).pid)
        for each in (*process.children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self.of(name).rename(self.folder / f"gone-{name}-{time.monotonic_ns()}")

    def node_that_runs(self, program: str) -> str:
        """Name of a node that has a process with this name."""
        for name, process in self._processes.items():
            for each in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if program in " ".join(each.cmdline()[:1]):
                        return name
        raise AssertionError(f"no node runs {program}")

    def end(self) -> None:
        """End whatever is left of it, the head last."""
        for name in reversed(list(self._processes)):
            with contextlib.suppress(psutil.NoSuchProcess):
                self.kill(name)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if any(f"{self.folder}/r" in word for word in process.cmdline()):
                    process.kill()

    def submit(self, *words: str) -> "Job":
        """Submit a job from the project's folder, as a user does."""
        return Job(self, words)

    def _start(self, name: str, host: int, how: str) -> None:
        if name == "head":
            self._first = host
        # In a temporary folder that two nodes share, the second unpacks a job's working directory once more.
        where = f"--node-ip-address=127.0.0.{host} --temp-dir={self.folder}/r/{name}"
        command = f"{_RAY} start --block {where} --object-store-memory=150000000 {how}"
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ["unshare", "-m", "sh", "-c", _BIND, name, self.of(name), self.disk, *command.split()],
                env={**os.environ, **self._environment, "OMP_NUM_THREADS": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _started(self, name: str) -> None:
        deadline, log = time.monotonic() + STUCK_S, self.folder / f"{name}.log"
        while "Ray runtime started" not in log.read_text():
            running = self._processes[name].poll() is None
            assert running and time.monotonic() < deadline, log.read_text()
            time.sleep(0.3)


class Job:
    """A job of a cluster, whose driver runs on the head.

    Args:
        cluster: The cluster.
        words: What the driver is run with, after ``python``.
    """

    def __init__(self, cluster: Cluster, words: tuple[str, ...]) -> None:
        command = [str(_RAY), "job", "submit", "--address", cluster.jobs, "--working-dir", str(ROOT), "--"]
        self._lines: list[tuple[float, str]] = []
        self.began = time.monotonic()
        self._process = subprocess.Popen(
            [*command, "python", *words],
            env={**os.environ, **cluster.client},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Keep its lines with the times at which they came."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append((time.monotonic(), line))

    @property
    def said(self) -> str:
        """What it has printed so far."""
        return "".join(line for _, line in self._lines)

    def counts(self, pattern: str) -> list[tuple[float, int]]:
        """When it said how far something was, and how far, by the first group of a pattern."""
        found = ((when, re.search(pattern, line)) for when, line in list(self._lines))
        return [(when, int(match[1].replace(",", ""))) for when, match in found if match]

    def wait_for(self, pattern: str) -> None:
        """Wait until it has printed something."""
        deadline = time.monotonic() + STUCK_S
        while not re.search(pattern, self.said):
            assert self._process.poll() is None and time.monotonic() < deadline, self.said
            time.sleep(0.1)

    def wait(self) -> int:
        """Wait for its end, and return the exit code."""
        code = self._process.wait(STUCK_S)
        self._reader.join(30)
        return code

    def forget(self) -> None:
        """End the client, which waits for a cluster that is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)


@dataclass(frozen=True)
class Loss:
    """Something that a job has lost, and how far its work was by then.

    Attributes:
        what: What was lost, and during what.
        pattern: Finds in a line how far the work is, as its first group.
        when: When it was lost, on the monotonic clock.
        reached: The furthest that a line had said by then.
    """

    what: str
    pattern: str
    when: float
    reached: int

    @classmethod
    def of(cls, job: Job, what: str, pattern: str) -> "Loss":
        """Note that a job is about to lose something."""
        counts = [count for _, count in job.counts(pattern)]
        return cls(what, pattern, time.monotonic(), max(counts, default=0))

    def seconds(self, job: Job, since: float | None = None) -> float:
        """Seconds from the loss, or from another moment, until a job says that it is further than before."""
        began, counts = self.when if since is None else since, job.counts(self.pattern)
        before = max((count for when, count in counts if when < self.when + LAG_S), default=self.reached)
        further = (when - began for when, count in counts if count > before)
        return next((seconds for seconds in further if seconds > 0), math.inf)

    def undisturbed(self, calm: Job) -> float:
        """Seconds that a job without losses takes from there to the next line that is further."""
        counts = calm.counts(self.pattern)
        there = next(when for when, count in counts if count >= self.reached)
        return next(when for when, count in counts if count > self.reached and when >= there) - there


@contextlib.contextmanager
def cluster_of_separate_nodes(
    folder: Path, *, base: int, host: int, environment: dict[str, str]
) -> Iterator[Cluster]:
    """A cluster with a head and two nodes, as long as the block runs."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("needs the right to make mount namespaces")
    folder.mkdir()
    cluster = Cluster(folder, base=base, host=host, environment=environment)
    try:
        cluster.add("a")
        cluster.add("b")
        yield cluster
    finally:
        cluster.end()
