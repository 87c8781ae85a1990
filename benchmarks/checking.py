"""What it costs to compare files with their checksums: opening and reading a store, training, a sweep.

Opening and reading are measured with `STILLHOUSE_VERIFY=always` and `never` in turn. Of training and of a
sweep, every process writes down the seconds that it spends on checksums, of files that it reads or writes.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from clusters import environment
from harness import Row, arguments, at_most, finish, in_turn, median, ratio, spread
from sentences import text_file
from store import write_store
from sweeping import run_sweep
from trial_start import HELD_OUT, SMALL

from stillhouse.core import integrity
from stillhouse.core.machine import variables_set
from stillhouse.teachers.store import StoreReader

BATCH = 256
PROBE = """
import hashlib, os, time
digest = hashlib.file_digest
def timed(file, name):
    began = time.perf_counter()
    result = digest(file, name)
    with open(os.environ["CHECKSUM_SECONDS"], "a") as told:
        told.write(f"{time.perf_counter() - began} {os.fstat(file.fileno()).st_size}\\n")
    return result
hashlib.file_digest = timed
"""
"""Loaded by every interpreter that starts with its folder on the path, also by Ray's workers here."""
TRAINING = ("--finetune-budget", "0", "--evaluations", "1", "--set", "batch_size=64")
SWEEP = ("--distil-budget", "4096", "--finetune-budget", "384")
QUICK_SWEEP = ("--trials", "2", "--distil-budget", "128", "--set", "distil_batch_size=64", *SMALL)


@contextlib.contextmanager
def probed(folder: Path) -> Iterator[Callable[[], tuple[float, float]]]:
    """Let the processes that start in the block tell of their checksums: a function gives seconds and MB."""
    (folder / "sitecustomize.py").write_text(PROBE)
    told = folder / "told.txt"
    told.write_text("")

    def sums() -> tuple[float, float]:
        lines = [line.split() for line in told.read_text().splitlines()]
        return sum(float(seconds) for seconds, _ in lines), sum(int(size) for _, size in lines) / 1e6

    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    with variables_set({"PYTHONPATH": paths, "CHECKSUM_SECONDS": str(told)}):
        yield sums


def store_rows(rows: int, dim: int, repeats: int) -> list[Row]:
    """Opening a store and reading it once, in a process that has not read it yet; then once more."""
    with tempfile.TemporaryDirectory() as held:
        write_store(Path(held), rows, dim)
        order = np.random.default_rng(0).permutation(rows)

        def read(store: StoreReader) -> None:
            for first in range(0, rows, BATCH):
                store.gather(order[first : first + BATCH])

        def fresh(choice: str, *, whole: bool) -> Callable[[], None]:
            def run() -> None:
                integrity._compared.clear()
                with variables_set({integrity.VERIFY: choice}):
                    store = StoreReader(Path(held))
                    if whole:
                        read(store)

            return run

        opening, first = (
            in_turn({choice: fresh(choice, whole=whole) for choice in ("always", "never")}, repeats)
            for whole in (False, True)
        )
        known = StoreReader(Path(held))

        def again(choice: str) -> Callable[[], None]:
            def run() -> None:
                with variables_set({integrity.VERIFY: choice}):
                    read(known)

            return run

        later = in_turn({choice: again(choice) for choice in ("always", "never")}, repeats)
    what, gigabytes = f"a store of {rows:,} × {dim}", rows * dim * 2 / 1e9
    more = [a - n for a, n in zip(first["always"], first["never"], strict=True)]
    return [
        Row(
            f"opening {what}",
            "`STILLHOUSE_VERIFY=never`",
            **at_most(100 * (ratio(opening["always"], opening["never"]) - 1), 3, "% more"),
            ours=spread(opening["always"]),
            peer=spread(opening["never"]),
            note="shards are compared when they are first read",
        ),
        Row(
            f"comparing {what}, when its rows are first read in random batches",
            "`STILLHOUSE_VERIFY=never`",
            **at_most(median(more) / gigabytes, 1, "s/GB"),
            ours=spread(first["always"]),
            peer=spread(first["never"]),
            note=f"{gigabytes:.2f} GB; once per process",
        ),
        Row(
            f"reading {what} again",
            "`STILLHOUSE_VERIFY=never`",
            **at_most(100 * (ratio(later["always"], later["never"]) - 1), 3, "% more"),
            ours=spread(later["always"]),
            peer=spread(later["never"]),
            note="nothing is compared a second time",
        ),
    ]


def share_row(title: str, spent: tuple[float, float], whole: float, *, limit: float, at_once: int) -> Row:
    """The share of a command's time that its processes spend on checksums."""
    seconds, megabytes = spent
    return Row(
        title,
        "its whole time",
        **at_most(100 * seconds / (at_once * whole), limit, "%"),
        ours=f"{seconds:.2f} s for {megabytes:.0f} MB",
        peer=f"{whole:.0f} s",
        note="all processes, reading and writing" + (f"; {at_once} at once" if at_once > 1 else ""),
    )


def trained(count: int) -> Row:
    """One epoch of `mse` on sentences whose vectors are stored, in a process of its own."""
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        corpus = ["--corpus", str(text_file(folder, count)), "--root", str(folder / "runs")]
        same = ["--local", *corpus, "--sentences", "0", "--set", f"sentences.held_out={HELD_OUT}"]
        command = [sys.executable, "-m", "stillhouse.cli.main"]
        subprocess.run([*command, "embed", *same], env=environment(), check=True, capture_output=True)
        with probed(folder) as spent:
            began = time.perf_counter()
            training = ["train", "mse", *same, "--distil-budget", str(count), *TRAINING]
            subprocess.run([*command, *training], env=environment(), check=True, capture_output=True)
            whole = time.perf_counter() - began
            return share_row(f"one epoch of `mse` on {count:,} sentences", spent(), whole, limit=1, at_once=1)


def swept(quick: bool) -> Row:
    """A sweep with everything that `make sweep` does."""
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        flags = (*QUICK_SWEEP, "--corpus", str(text_file(folder, 128 + 2 * HELD_OUT))) if quick else SWEEP
        with probed(folder) as spent:
            began, ended = run_sweep(folder / "runs", *flags)
            return share_row(f"a sweep (`{' '.join(flags[:4])}`)", spent(), ended - began, limit=1, at_once=2)


def main() -> int:
    """Measure all four."""
    options = arguments(__doc__).parse_args()
    rows = store_rows(*((20_000, 32) if options.quick else (400_000, 384)), options.repeats)
    rows += [trained(400 if options.quick else 8000), swept(options.quick)]
    return finish(rows, options)


if __name__ == "__main__":
    sys.exit(main())
