"""Peak memory and rate of embedding 2 000 000 short rows against 200 000, by the public path, with Ray.

A tiny teacher, so that what is kept for each row would be seen. Each size is a process that starts Ray, reads
the file and embeds it, as `stillhouse embed` does; memory is what it and all its children (Ray's own, the
actors, its shared memory) hold together, pages that several share counted once (PSS on Linux, else RSS),
sampled twice a second. The driver is report apart: to drop duplicates it keeps a hash of each row it reads.

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

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.corpora.reading.corpus import ReadOptions
from stillhouse.corpora.reading.ingest import ingest
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.weights import resolve_model
from stillhouse.values.data import Store

SAMPLE_SECONDS, ACTORS = 0.5, 2
CHILD = "--part"
SHARES = {"rate": (0.0, 1.0), "middle": (1 / 3, 2 / 3), "end": (2 / 3, 1.0)}


def part(folder: Path, rows: int) -> None:
    """Run as the child process: read the file with a number of rows, embed it, and print the figures."""
    workspace = Workspace(folder / f"runs-{rows}")
    with own_ray():
        marks = [time.perf_counter()]
        table = ingest(workspace, str(folder / f"{rows}.txt"), ReadOptions())
        marks.append(time.perf_counter())
        store = Store(table, resolve_model(str(folder / "tiny")), max_length=32)
        build_stores(workspace, [store], actors=ACTORS)
        marks.append(time.perf_counter())
    manifest = read_manifest(workspace.path(store))
    reading, embedding = marks[1] - marks[0], marks[2] - marks[1]
    report = {"rows": manifest["rows"], "dim": manifest["dim"], "reading": reading, "embedding": embedding}
    shares = SHARES if len(manifest["shards"]) > 6 * ACTORS else {"rate": SHARES["rate"]}
    rates = {name: running_rate(workspace, store, ACTORS, share) for name, share in shares.items()}
    print(json.dumps({**report, **rates}), flush=True)


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


def measured(folder: Path, rows: int) -> dict[str, float]:
    """Run a child; its figures, and the peaks of the memory of its tree and of itself alone, in MB."""
    with (folder / f"{rows}.txt").open("w", encoding="utf-8") as file:
        file.writelines(f"row {number}\n" for number in range(rows))
    command = [sys.executable, __file__, CHILD, str(folder), str(rows)]
    child = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    parent, peak, alone = psutil.Process(child.pid), 0, 0
    while child.poll() is None:
        try:
            others = parent.children(recursive=True)
        except psutil.Error:
            others = []
        own = held(parent)
        peak, alone = max(peak, own + sum(map(held, others))), max(alone, own)
        time.sleep(SAMPLE_SECONDS)
    assert child.returncode == 0 and child.stdout, f"{rows} rows: exit code {child.returncode}"
    report: dict[str, float] = json.loads(child.stdout.read().splitlines()[-1])
    assert (report["rows"], report["dim"]) == (rows, TINY), f"of {rows} rows: {report}"
    return {**report, "peak": peak / 1e6, "driver": alone / 1e6}


def main() -> int:
    """Small, then large."""
    if sys.argv[1:2] == [CHILD]:
        part(Path(sys.argv[2]), int(sys.argv[3]))
        return 0
    options = arguments(__doc__).parse_args()
    sizes = (8_192, 40_960) if options.quick else (200_000, 2_000_000)
    with tempfile.TemporaryDirectory() as kept:
        tiny_teacher(Path(kept))
        small, large = (measured(Path(kept), size) for size in sizes)
    growth, rate = large["peak"] / small["peak"], 100 * large["rate"] / small["rate"]
    read = [size / report["reading"] for size, report in zip(sizes, (small, large), strict=True)]
    what, against = f"embedding {sizes[1]:,} short rows with a tiny teacher", f"{sizes[0]:,} rows"
    limit: dict[str, Any] = {"target": "≤ 1.15×", "measured": f"{growth:.2f}×", "met": growth <= 1.15}
    rows = [
        Row(
            f"peak memory of reading and {what}",
            against,
            **limit,
            ours=f"{large['peak']:.0f} MB",
            peer=f"{small['peak']:.0f} MB",
            note="all processes, Ray's own included; the driver alone "
            f"{large['driver']:.0f} MB against {small['driver']:.0f} MB",
        ),
        Row(
            f"rate of {what}",
            against,
            **at_least(rate, 95, " %"),
            ours=f"{large['rate']:,.0f} rows/s",
            peer=f"{small['rate']:,.0f} rows/s",
            note=f"of the running pool of {ACTORS}; of the large one the middle third {large['middle']:,.0f} "
            f"rows/s, the last {large['end']:,.0f}; reading {read[1]:,.0f} rows/s against {read[0]:,.0f}",
        ),
    ]
    return finish(rows, options)


if __name__ == "__main__":
    sys.exit(main())
