"""From the searcher's suggestion to the end of the first optimiser step, of trials with one worker.

The suggestion's time is the study's, the step's the stage's. The first trial of each process is left out,
since it starts that process and loads its libraries. Where `sweep.py` was run, its sweep is read, else a
small one is run.

    python benchmarks/trial_start.py [--root RUNS]
"""

import sys
import tempfile
from pathlib import Path

from harness import Row, arguments, at_most, finish, median, spread
from sentences import text_file
from sweeping import KEPT, has_ended, run_sweep, steps, trials

HELD_OUT = 64
SMALL = (
    "--set",
    f"sentences.held_out={HELD_OUT}",
    "--evaluations",
    "1",
    "--sentences",
    "0",
    "--scheduler",
    "none",
)
FIXED = ("--set", "distil_batch_size=64", "--set", "distil_epochs=0")


def starts(root: Path, processes: int) -> list[tuple[float, float]]:
    """Return seconds to a stage's start and first step, for each trial except the first of a process."""
    found = []
    for trial in trials(root)[processes:]:
        report = steps(trial.stages[0]) if trial.stages else []
        if report and report[0].step == 1:
            begun = (trial.stages[0] / "plan.json").stat().st_mtime
            found.append((begun - trial.suggested, report[0].time - trial.suggested))
    assert found, f"no trial of {root} wrote down its first step"
    return found


def main() -> int:
    """Run a sweep, unless there is one; read its records."""
    parser = arguments(__doc__)
    parser.add_argument("--root", type=Path, help="a workspace with a sweep; default: that of `sweep.py`")
    parser.add_argument("--processes", type=int, default=2, help="trials at once (default 2)")
    options = parser.parse_args()
    trials_in_all, budget = (4, 128) if options.quick else (7, 512)
    sizes = ("--trials", str(trials_in_all), "--distil-budget", str(budget))
    with tempfile.TemporaryDirectory() as held:
        kept = options.root or (KEPT if has_ended(KEPT) and not options.quick else None)
        root = kept or Path(held) / "runs"
        if not kept:
            corpus = text_file(Path(held), budget + 2 * HELD_OUT)
            flags = ("--corpus", str(corpus), *sizes, *SMALL, *FIXED)
            run_sweep(root, *flags, "--concurrency", str(options.processes))
        found = starts(root, options.processes)
    seconds, begun = [step for _, step in found], median([begun for begun, _ in found])
    return finish(
        [
            Row(
                "from a suggestion to the end of the first step of 64 examples",
                "–",
                **at_most(median(seconds), 1.5, "s"),
                ours=spread(seconds),
                note=f"{len(seconds)} trials of one worker, {options.processes} at once, after the first "
                f"of each process; {begun:.2f} s to the stage's plan on the disk, the rest loads and steps",
            )
        ],
        options,
    )


if __name__ == "__main__":
    sys.exit(main())
