"""Peak memory and rate of embedding 2 000 000 short rows against 200 000, by the public path, with Ray.

A tiny teacher, so that what is kept for each row would be seen. Reading the file and embedding it are a
process each, with all their children (Ray's own, the actors, its shared memory); memory is what they hold
together, pages that several share counted once (PSS on Linux, else RSS), sampled twice a second.

    python benchmarks/memory.py
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from clusters import environment, own_ray
from harness import Row, arguments, at_least, finish
from models import TINY, tiny_teacher
from pools import running_rate

from stillhouse.artifacts import Workspace, read_manifest
from stillhouse.corpora.ingest import ingest
from stillhouse.corpora.readers import ReadOptions
from stillhouse.plan import Store
from stillhouse.teachers.embed import build_store
from stillhouse.teachers.models import resolve_model

SAMPLE_SECONDS, ACTORS = 0.5, 2
CHILD = "--part"


def part(name: str, folder: Path, rows: int) -> None:
    """What a child does: read the file of so many rows, or embed it. Prints its figures."""
    workspace = Workspace(folder / f"runs-{rows}")
    began = time.perf_counter()
    table = ingest(workspace, str(folder / f"{rows}.txt"), ReadOptions())
    told: dict[str, Any] = {"rate": rows / (time.perf_counter() - began)}
    if name == "embed":
        store = Store(table, resolve_model(str(folder / "tiny")), max_length=32)
        with own_ray():
            build_store(workspace, store, actors=ACTORS)
        manifest = read_manifest(workspace.path(store))
        told = {name: manifest[name] for name in ("rows", "dim")}
        told["rate"] = running_rate(workspace, store, ACTORS)
    print(json.dumps({**told, "seconds": time.perf_counter() - began}), flush=True)


def held(process: psutil.Process) -> int:
    """Bytes of one process, its share of what it shares."""
    try:
        rollup = Path(f"/proc/{process.pid}/smaps_rollup")
        if rollup.exists():
            lines = rollup.read_text().splitlines()
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        return int(process.memory_info().rss)
    except (psutil.Error, OSError, StopIteration):
        return 0


def measured(name: str, folder: Path, rows: int) -> dict[str, Any]:
    """Run a child; its figures and the peak of the memory of its tree, in MB."""
    command = [sys.executable, __file__, CHILD, name, str(folder), str(rows)]
    child = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    parent, peak = psutil.Process(child.pid), 0
    while child.poll() is None:
        try:
            tree = [parent, *parent.children(recursive=True)]
        except psutil.Error:
            tree = []
        peak = max(peak, sum(map(held, tree)))
        time.sleep(SAMPLE_SECONDS)
    assert child.returncode == 0 and child.stdout, f"{name} of {rows} rows: exit code {child.returncode}"
    told: dict[str, Any] = json.loads(child.stdout.read().splitlines()[-1])
    return {**told, "peak": peak / 1e6}


def compared(name: str, small: dict[str, Any], large: dict[str, Any], sizes: tuple[int, int]) -> list[Row]:
    """The rows of the table for one part."""
    growth, share = large["peak"] / small["peak"], 100 * large["rate"] / small["rate"]
    what, against = f"{name} {sizes[1]:,} short rows", f"{sizes[0]:,} rows"
    limit: dict[str, Any] = {"target": "≤ 1.15×", "measured": f"{growth:.2f}×", "met": growth <= 1.15}
    memory = {"ours": f"{large['peak']:.0f} MB", "peer": f"{small['peak']:.0f} MB"}
    speed = {"ours": f"{large['rate']:,.0f} rows/s", "peer": f"{small['rate']:,.0f} rows/s"}
    return [
        Row(f"peak memory of {what}", against, **limit, **memory, note="all processes, Ray's own included"),
        Row(f"rate of {what}", against, **at_least(share, 95, " %"), **speed),
    ]


def main() -> int:
    """Small and large, read and embedded."""
    if sys.argv[1:2] == [CHILD]:
        part(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
        return 0
    options = arguments(__doc__).parse_args()
    sizes = (8_192, 40_960) if options.quick else (200_000, 2_000_000)
    rows = []
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        tiny_teacher(folder)
        for size in sizes:
            lines = (f"row {number}" for number in range(size))
            (folder / f"{size}.txt").write_text("\n".join(lines), encoding="utf-8")
        for name, verb in (("read", "reading"), ("embed", "embedding")):
            small, large = (measured(name, folder, size) for size in sizes)
            assert large.get("rows", sizes[1]) == sizes[1] and large.get("dim", TINY) == TINY
            rows += compared(verb, small, large, sizes)
    return finish(rows, options)


if __name__ == "__main__":
    sys.exit(main())
