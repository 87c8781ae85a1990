"""Where a sweep's time goes, part by part: how much is no forward, backward or embedding arithmetic.

From the workspace's own records: the study (when trials began and ended), the journal (when the data was
ready, the report written, the last run closed), the manifests (seconds of the teacher's actors and of the
steps) and the stages' metrics (seconds of dev evaluations). Seconds that two processes spend side by side
count half each, as a wall clock sees them. Arithmetic is: the teacher's shards with their files, optimiser
steps, dev evaluations, and the test split's evaluation. All else is overhead, waiting included.

    python benchmarks/overhead.py --root runs          # of a sweep that has ended
    python benchmarks/overhead.py                      # of ./runs, of that of `sweep.py`, of one run here
    python benchmarks/overhead.py --flame sweep.txt    # a whole `make sweep`: what was it busy with?
"""

import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from flame import report as flame_report
from harness import ROOT, Row, arguments, at_most, finish
from sentences import text_file
from sweeping import (
    KEPT,
    Trial,
    evaluation_seconds,
    has_ended,
    journal,
    refit_stages,
    run_sweep,
    training_seconds,
    trials,
)
from trial_start import HELD_OUT, SMALL

from stillhouse.core.artifacts import MANIFEST, read_json

Parts = dict[str, float]
STEPS, DEV, TEST, TEACHER = "optimiser steps", "dev evaluations", "test split and export", "teacher's shards"
REFIT_STEPS, REFIT_DEV = "optimiser steps of the refits", "dev evaluations of the refits"
ARITHMETIC = (TEACHER, STEPS, DEV, REFIT_STEPS, REFIT_DEV, TEST)
QUICK = ("--trials", "2", "--distil-budget", "128", "--set", "distil_batch_size=64", *SMALL)
FULL = ("--distil-budget", "4096", "--finetune-budget", "384")


def began_by_log(root: Path) -> float:
    """When the sweep's first driver opened its log, which is named by the time."""
    first = min((root / "logs").glob("*.log")).name
    return time.mktime(time.strptime(first[:15], "%Y%m%d-%H%M%S"))


def opened(root: Path) -> float:
    """When the test split was first opened."""
    line = (root / "openings.jsonl").read_text().splitlines()[0]
    return datetime.fromisoformat(line.split('"time": "')[1].split('"')[0]).timestamp()


def seconds_of(stages: set[Path], seconds: Any) -> float:
    """Sum seconds over stages."""
    return float(sum(seconds(stage) for stage in sorted(stages)))


def parts(root: Path, began: float, ended: float, at_once: int) -> Parts:
    """Wall seconds by part; they add up to the whole."""
    output, done = journal(root), trials(root)
    ready = output[0]["time"] / 1000
    reported = next(entry["time"] for entry in output if entry["do"] == "artifact") / 1000
    first, last = min(trial.suggested for trial in done), max(trial.ended for trial in done)
    tested = opened(root)
    stores = [read_json(manifest) for manifest in (root / "stores").glob(f"*/{MANIFEST}")]
    embedding = sum(store["seconds"] for store in stores) / at_once
    stages = every_stage(root, done)
    again = refit_stages(root) - stages
    both = training_seconds, evaluation_seconds
    steps, dev = (seconds_of(stages, each) / at_once for each in both)
    refit_steps, refit_dev = (seconds_of(again, each) / at_once for each in both)
    note = min((file.stat().st_mtime for file in (root / "experiments").glob("*.json")), default=0.0)
    # The time of a file that was copied since says nothing: then all is output as reading.
    read = note if began < note < ready - embedding else ready - embedding
    return {
        "start, reading the corpus": read - began,
        "teachers' start, mining": ready - read - embedding,
        TEACHER: embedding,
        "from the data to the first trial": first - ready,
        STEPS: steps,
        DEV: dev,
        "trials' starts, checkpoints, reports, idle": last - first - steps - dev,
        REFIT_STEPS: refit_steps,
        REFIT_DEV: refit_dev,
        "refits' starts, teacher on dev, end of the search": max(
            0.0, tested - last - refit_steps - refit_dev
        ),
        TEST: reported - max(last, tested),
        "figures, registry, end": ended - reported,
    }


def every_stage(root: Path, done: list[Trial]) -> set[Path]:
    """Return the stages of the trials along with the baseline's."""
    baseline = set((root / "stages").glob("mse-*/"))
    return {stage for trial in done for stage in trial.stages} | {p for p in baseline if p.is_dir()}


def summary(found: Parts) -> str:
    """A bar a part."""
    whole = sum(found.values())
    lines = []
    for name, seconds in found.items():
        share = seconds / whole
        mark = "#" if name in ARITHMETIC else "."
        lines.append(f"{name:<50} {seconds:7.1f} s {100 * share:5.1f} %  {mark * round(50 * share)}")
    return "\n".join([*lines, "(# arithmetic, . overhead)"])


def main() -> int:
    """Take a sweep apart: the one that is named, else that of `make sweep`, else one that is run here."""
    parser = arguments(__doc__)
    parser.add_argument("--root", type=Path, help="a workspace with a sweep that has ended")
    parser.add_argument(
        "--at-once", type=int, default=2, help="trials and teacher actors at once (default 2)"
    )
    parser.add_argument(
        "--flame",
        type=Path,
        metavar="FILE",
        help="run the whole sweep with py-spy; FILE gets its collapsed stacks, for any flame graph viewer",
    )
    options = parser.parse_args()
    made = ROOT / "runs"
    there = [] if options.quick or options.flame else [root for root in (made, KEPT) if has_ended(root)]
    given = options.root or next(iter(there), None)
    flags: tuple[str, ...] = QUICK if options.quick else () if options.flame else FULL
    with tempfile.TemporaryDirectory() as held:
        root = given or Path(held) / "runs"
        if given:
            began, ended = began_by_log(root), journal(root)[-1]["time"] / 1000
        else:
            corpus = ("--corpus", str(text_file(Path(held), 128 + 2 * HELD_OUT))) if options.quick else ()
            began, ended = run_sweep(root, *flags, *corpus, flame=options.flame)
        found, count = parts(root, began, ended, options.at_once), len(trials(root))
    whole = sum(found.values())
    assert abs(whole - (ended - began)) < 1 and min(found.values()) > -1, f"the parts do not add up: {found}"
    spent = sum(seconds for name, seconds in found.items() if name not in ARITHMETIC)
    print(summary(found), flush=True)
    if options.flame:
        print(flame_report(options.flame.read_text(encoding="utf-8").splitlines()), flush=True)
    known = {
        made: "`make sweep`",
        KEPT: "the sweep of `sweep.py`",
        None: " ".join(flags) or "a whole one, sampled",
    }
    shares = ", ".join(f"{name} {100 * seconds / whole:.0f} %" for name, seconds in found.items())
    return finish(
        [
            Row(
                f"a sweep of {count} trials outside of forward, backward and embedding arithmetic",
                "its whole time",
                **at_most(100 * spent / whole, 15, "%"),
                ours=f"{spent:.0f} s of {whole:.0f} s",
                note=f"{known.get(given, 'a workspace')}; {shares}",
            )
        ],
        options,
    )


if __name__ == "__main__":
    sys.exit(main())
