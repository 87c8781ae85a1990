"""What a container lets a process use, in the files of both versions of control groups."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from patience import STUCK_S
from rows import each_row

from stillhouse.core import machine
from stillhouse.core.devices import heed_quota

V2 = {
    "own": "0::/pod/app\n",
    "groups/pod/cpu.max": "150000 100000",
    "groups/pod/app/cpu.max": "max 100000",
    "groups/pod/memory.max": "5000",
    "groups/pod/memory.current": "4000",
    "groups/pod/memory.stat": "anon 1500\ninactive_file 2500\n",
    "groups/pod/app/memory.max": "max",
    "groups/pod/app/memory.current": "3000",
}
V1 = {
    "own": "4:cpu,cpuacct:/docker/12\n3:memory:/docker/12\n",
    "groups/cpu/cpu.cfs_quota_us": "190000",
    "groups/cpu/cpu.cfs_period_us": "100000",
    "groups/memory/memory.limit_in_bytes": "5000",
    "groups/memory/memory.usage_in_bytes": "4000",
    "groups/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 2500\n",
}
UNLIMITED = {"own": "0::/\n", "groups/cpu.max": "max 100000", "groups/memory.max": "max"}


@each_row(
    ("files", "cores", "memory"),
    [(V2, 1, 3500), (V1, 1, 3500), (UNLIMITED, 8, 8192), ({}, 8, 8192)],
)
def test_quotas_of_containers_count(
    files: dict[str, str], cores: int, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {**files, "meminfo": "MemTotal: 9 kB\nMemAvailable:   8 kB\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    threads: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    assert machine.cores() == cores
    assert machine.available_memory() == memory
    heed_quota()
    assert threads == ([cores] if cores < 8 else [])


def test_what_spawns_processes_leaves_out_the_users_script(tmp_path: Path) -> None:
    """A script without a guard would be run again by each process that it starts, and end there."""
    package = Path(machine.__file__).parents[1]
    texts = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    spawning = [path for path, text in texts.items() if "get_context(" in text or ".start_processes(" in text]
    assert len(spawning) == 3 and all("with script_left_out():" in texts[path] for path in spawning)
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "import json, stillhouse.corpora.pydocs.extraction as extraction\n"
        "print('begun')\n"
        "extraction.WORTH_PROCESSES, extraction.cores = 0, lambda: 2\n"
        "print(len(list(extraction._read_files([Path(json.__file__)] * 2))))\n"
    )
    ran = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=STUCK_S, check=False
    )
    assert ran.stdout == "begun\n2\n", ran.stderr
