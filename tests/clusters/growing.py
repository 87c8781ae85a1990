"""A cluster on this machine whose nodes Ray's real autoscaler starts and ends: raylets beside each other."""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from patience import STUCK_S

HOST = "127.0.0.2"
"""The head's address, so that another Ray on this machine has its ports to itself."""
_HEAD_ID = "f" * 51 + "00000"
_HEAD_KIND = "ray.head.default"
"""The name that the provider gives to its head."""
_PROVIDER = {
    "type": "external",
    "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
    "use_node_id_as_ip": True,
    "disable_node_updaters": True,
    "disable_launch_config_check": True,
    "launch_multiple": True,
    "head_node_id": _HEAD_ID,
}
_NOTHING: dict[str, list[str]] = {
    name: []
    for name in (
        "initialization_commands",
        "setup_commands",
        "head_setup_commands",
        "worker_setup_commands",
        "head_start_ray_commands",
        "worker_start_ray_commands",
        "cluster_synced_files",
        "rsync_exclude",
        "rsync_filter",
    )
}


class GrowingCluster:
    """A head without CPUs, and nodes of one kind that come when they are needed.

    Args:
        folder: The head's home; receives the configuration, the log, and Ray's own files. Its path is short.
        port: Of the head.
        node: Resources of a node.
        most: Number of nodes at most; `allow` changes it.

    Attributes:
        client: Variables that a client needs: the token.
    """

    def __init__(self, folder: Path, *, port: int, node: dict[str, float], most: int) -> None:
        self.folder, self.address, self.node = folder, f"{HOST}:{port}", node
        self.client = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self._config = folder / "autoscaler.json"
        self.allow(most)
        words = (
            f"start --head --block --node-ip-address={HOST} --port={port} --num-cpus=0 --temp-dir={folder}/r "
            "--object-store-memory=100000000 --include-dashboard=false "
            f"--autoscaling-config={self._config}"
        )
        with (folder / "head.log").open("w") as log:
            self._head = subprocess.Popen(
                [str(Path(sys.executable).parent / "ray"), *words.split()],
                env={**os.environ, **_environment(), **self.client, "HOME": str(folder)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def allow(self, most: int) -> None:
        """Set the number of nodes at most; the autoscaler reads its file at every step."""
        kinds = {
            _HEAD_KIND: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {
                "resources": {**self.node, "object_store_memory": 100_000_000},
                "node_config": {},
                "min_workers": 0,
                "max_workers": most,
            },
        }
        content = {
            "cluster_name": "growing",
            "max_workers": most,
            "head_node_type": _HEAD_KIND,
            "available_node_types": kinds,
            "upscaling_speed": 1.0,
            "idle_timeout_minutes": 0.2,
            "provider": {**_PROVIDER, "gcs_address": self.address},
            "auth": {},
            "docker": {},
            "file_mounts": {},
            "file_mounts_sync_continuously": False,
            **_NOTHING,
        }
        draft = self._config.with_suffix(".draft")
        draft.write_text(json.dumps(content))
        draft.replace(self._config)

    def raylets(self) -> int:
        """Number of nodes, the head included."""
        found = 0
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                found += words[:1] != [] and words[0].endswith("/raylet") and self._owns(words)
        return found

    def _owns(self, words: list[str]) -> bool:
        return any(f"{self.folder}/r" in word for word in words)

    def end(self) -> None:
        """End the head, the nodes and whatever ran on them."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._head.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._head.wait(30)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if self._owns(process.cmdline()):
                    process.kill()


def _environment() -> dict[str, str]:
    return {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": _HEAD_ID,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": _HEAD_ID,
        "RAY_raylet_start_wait_time_s": "180",
    }


@contextlib.contextmanager
def growing_cluster(folder: Path, **how: Any) -> Iterator[GrowingCluster]:
    """A cluster as long as the block runs."""
    cluster = GrowingCluster(folder, **how)
    try:
        _wait_for_head(cluster)
        yield cluster
    finally:
        cluster.end()


def _wait_for_head(cluster: GrowingCluster) -> None:
    deadline = time.monotonic() + STUCK_S
    while "Ray runtime started" not in (cluster.folder / "head.log").read_text():
        assert time.monotonic() < deadline, (cluster.folder / "head.log").read_text()
        time.sleep(0.5)


class Command:
    """The command line in a process of its own, with what it has printed so far.

    Args:
        words: The command's words.
        folder: Where it runs; a folder that has nothing to do with the cluster.
        environment: Further variables.
    """

    def __init__(self, words: list[str], folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir(exist_ok=True)
        self.lines: list[tuple[float, str]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stillhouse.cli.main", *words],
            cwd=folder,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))

    @property
    def said(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def wait(self) -> int:
        """Wait for its end, and return its status."""
        return self.process.wait(STUCK_S)

    def wait_for(self, pattern: str) -> None:
        """Wait until it has printed something."""
        deadline = time.monotonic() + STUCK_S
        while not re.search(pattern, self.said):
            assert time.monotonic() < deadline and self.process.poll() is None, self.said
            time.sleep(0.2)
