"""Run every benchmark in a process of its own, and write ``docs/benchmarks.md``.

    python benchmarks/run.py [--quick] [--only search,store]

A script that fails or outlives its time is reported as such; the others go on. What each measured is kept in
``runs/benchmarks/results``, so some of them can be run again: the page is made of the newest of each.
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
    "Training": ("step", "loop", "lengths", "terms", "ddp"),
    "Sweeps": ("sweep", "overhead", "trial_start", "nested"),
    "Search": ("search",),
    "Stores and commands": ("store", "checking", "imports"),
    "On a GPU": ("gpu",),
}
LIMIT_SECONDS = 600
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "runs" / "benchmarks" / "results"


def run(script: str, quick: bool) -> str:
    """Keep the rows of a script; why, where it failed. Quick ones are not kept."""
    with tempfile.TemporaryDirectory() as held:
        written = Path(held) / "rows.json"
        command = [sys.executable, str(HERE / f"{script}.py"), "--json", str(written)]
        began = time.perf_counter()
        process = subprocess.Popen([*command, *(["--quick"] if quick else [])])
        try:
            code = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            end(process.pid)
            return f"`{script}.py` took more than {LIMIT_SECONDS} s"
        if code != 0:
            return f"`{script}.py` ended with exit code {code}"
        rows = json.loads(written.read_text())
    print(f"{script}: {time.perf_counter() - began:.0f} s", flush=True)
    if not quick:
        RESULTS.mkdir(parents=True, exist_ok=True)
        kept = {"date": date.today().isoformat(), "machine": machine(), "rows": rows}
        (RESULTS / f"{script}.json").write_text(json.dumps(kept, ensure_ascii=False, indent=1))
    return ""


def end(pid: int) -> None:
    """End a process and its children: a sweep that keeps running would disturb the next script."""
    parent = psutil.Process(pid)
    tree = [parent, *parent.children(recursive=True)]
    for act in (psutil.Process.terminate, psutil.Process.kill):
        for process in tree:
            with contextlib.suppress(psutil.Error):
                act(process)
        psutil.wait_procs(tree, timeout=20)


def page(faults: list[str]) -> str:
    """The page, with the machine and the versions, of all results that are kept."""
    kept = {file.stem: json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))}
    dates = sorted({each["date"] for each in kept.values()})
    facts = sorted(
        {", ".join(f"{name} {v}" for name, v in each["machine"].items()) for each in kept.values()}
    )
    parts = [
        "# Benchmarks\n",
        f"`make bench`, {' and '.join(dates)}: {'; '.join(facts)}.\n",
        "Each row measures our path and the peer's on the same inputs, in turn, several times. Times are "
        "medians with the lowest and the highest value; ratios are the median of the ratios pair by pair. "
        "Missed targets are marked.\n",
    ]
    for title, scripts in SCRIPTS.items():
        rows = [Row(**row) for script in scripts for row in kept.get(script, {"rows": []})["rows"]]
        if rows:
            parts += [f"## {title}\n", table(rows) + "\n"]
    absent = [f"`{script}.py`" for scripts in SCRIPTS.values() for script in scripts if script not in kept]
    missing = [*faults, *([f"not run yet: {', '.join(absent)}"] if absent else [])]
    parts += ["## Not measured\n", *(f"- {each}\n" for each in missing)] if missing else []
    own = HERE / "notes.md"
    return "\n".join([*parts, own.read_text(encoding="utf-8") if own.exists() else ""])


def main() -> int:
    """Run all, or some of them; quick runs write no page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small inputs: does all run? No page is written")
    parser.add_argument("--only", default="", help="names of scripts, separated by commas")
    options = parser.parse_args()
    selected = set(filter(None, options.only.split(",")))
    scripts = [script for group in SCRIPTS.values() for script in group if not selected or script in selected]
    faults = list(filter(None, (run(script, options.quick) for script in scripts)))
    if not options.quick:
        PAGE.write_text(page(faults), encoding="utf-8")
        print(f"written: {PAGE}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
