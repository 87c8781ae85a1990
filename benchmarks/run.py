"""Run every benchmark in a process of its own, and write ``docs/benchmarks.md``.

    python benchmarks/run.py [--quick] [--only search,store]

A script that fails or outlives its time is reported as such; the others go on.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import psutil
from harness import ROOT, Row, machine, table

HERE = Path(__file__).resolve().parent
SCRIPTS = {
    "Teacher embedding": ("embedding", "pipeline", "actors", "memory"),
    "Training": ("step", "loop", "terms", "ddp"),
    "Sweeps": ("sweep", "overhead", "trial_start", "nested"),
    "Search": ("search",),
    "Stores and commands": ("store", "imports"),
    "On a GPU": ("gpu",),
}
LIMIT_SECONDS = 600
PAGE = ROOT / "docs" / "benchmarks.md"


def run(script: str, quick: bool) -> tuple[list[Row], str]:
    """The rows of a script; none, and why, where it failed."""
    with tempfile.TemporaryDirectory() as held:
        written = Path(held) / "rows.json"
        command = [sys.executable, str(HERE / f"{script}.py"), "--json", str(written)]
        began = time.perf_counter()
        process = subprocess.Popen([*command, *(["--quick"] if quick else [])])
        try:
            code = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            end(process.pid)
            return [], f"`{script}.py` took more than {LIMIT_SECONDS} s"
        if code != 0:
            return [], f"`{script}.py` ended with exit code {code}"
        rows = [Row(**row) for row in json.loads(written.read_text())]
    print(f"{script}: {time.perf_counter() - began:.0f} s", flush=True)
    return rows, ""


def end(pid: int) -> None:
    """End a process and what it started: a sweep that goes on would disturb the next script."""
    parent = psutil.Process(pid)
    tree = [parent, *parent.children(recursive=True)]
    for act in (psutil.Process.terminate, psutil.Process.kill):
        for process in tree:
            with contextlib.suppress(psutil.Error):
                act(process)
        psutil.wait_procs(tree, timeout=20)


def page(sections: dict[str, list[Row]], faults: list[str]) -> str:
    """The page, with the machine and the versions."""
    facts = ", ".join(f"{name} {value}" for name, value in machine().items())
    parts = [
        "# Benchmarks\n",
        f"`make bench`, {date.today().isoformat()}: {facts}.\n",
        "Each row: our path and the peer's on the same inputs, in turn, several times; medians with the "
        "lowest and the highest, and the median of the ratios pair by pair. A missed target is marked.\n",
    ]
    for title, rows in sections.items():
        if rows:
            parts += [f"## {title}\n", table(rows) + "\n"]
    parts += ["## Not measured\n", *(f"- {fault}\n" for fault in faults)] if faults else []
    own = HERE / "notes.md"
    return "\n".join([*parts, own.read_text() if own.exists() else ""])


def main() -> int:
    """Run all, or some of them; only a whole run that is not quick writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small inputs: does all run? No page is written")
    parser.add_argument("--only", default="", help="names of scripts, separated by commas")
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    faults: list[str] = []
    sections: dict[str, list[Row]] = {}
    for title, scripts in SCRIPTS.items():
        sections[title] = []
        for script in scripts:
            if not wanted or script in wanted:
                rows, fault = run(script, options.quick)
                sections[title] += rows
                faults += [fault] if fault else []
    if not wanted and not options.quick:
        PAGE.write_text(page(sections, faults), encoding="utf-8")
        print(f"written: {PAGE}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
