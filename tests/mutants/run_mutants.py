"""Make deliberate mistakes one at a time in a copy of the repository, and tell which of them no test notices.

    make mutants                           all of them, two at a time, then those that mutmut makes: hours
    make mutants ARGS="--only losses/hsic" those whose file or reason has these words
    make mutants ARGS=--list               what there is, without mutmut's

A mistake is killed if one of the tests that `mutant_table.py` names for it fails. It survives if they pass.
If they cannot be collected, or take longer than the limit, nothing was found out, which counts as surviving.
All the tests are first run without any mistake. The exit status is 1 unless every mistake of the table was
killed; some of mutmut's change nothing that a test could notice.
"""

import argparse
import functools
import itertools
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import run_mutmut  # type: ignore[import-not-found]
from mutant import REPOSITORY, Mutant, copied  # type: ignore[import-not-found]
from mutant_table import MUTANTS  # type: ignore[import-not-found]

LIMIT = 300
"""Seconds that the tests of one mistake may take."""


@dataclass(frozen=True)
class Outcome:
    """What the tests said.

    Attributes:
        verdict: ``killed``, ``survived``, ``broken`` (nothing could be tested) or ``too slow``.
        test: The test that failed; the last lines of the output where nothing could be tested.
        seconds: How long it took.
    """

    verdict: str
    test: str
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen mistakes, print one line for each, and return the exit status."""
    options = _options(arguments)
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.name]
    if options.list:
        print("\n".join(f"{mutant.name}  [{' '.join(mutant.tests)}]" for mutant in chosen))
        return 0
    alive = run(chosen, REPOSITORY, workers=options.workers, limit=options.limit, check=not options.no_check)
    if alive is None:
        return 2
    killed, survived = run_mutmut.run(REPOSITORY, options.only, options.workers)
    print(f"mutmut: {killed} killed, {survived} not")
    print(f"{killed + len(chosen) - len(alive)} passed, {survived + len(alive)} failed")
    return int(bool(alive))


def run(
    mutants: Sequence[Mutant], repository: Path, *, workers: int = 2, limit: float = LIMIT, check: bool = True
) -> list[Mutant] | None:
    """Run mutants in copies of a repository.

    Args:
        mutants: The mistakes.
        repository: The root that is copied.
        workers: Copies, and processes at once.
        limit: Seconds that the tests of one mistake may take.
        check: First run all of their tests without a mistake.

    Returns:
        Those that were not killed; None if the tests fail without any mistake.
    """
    if not mutants:
        return []
    for mutant in mutants:
        mutant.applied(repository)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(workers):
            copies.put(copied(repository, Path(folder) / str(number)))
        with ThreadPoolExecutor(workers) as pool:
            if check and not _passes(mutants, copies, pool, workers):
                return None
            outcomes = _outcomes(mutants, copies, pool, limit)
    minutes = (time.perf_counter() - start) / 60
    alive = [mutant for mutant, outcome in zip(mutants, outcomes, strict=True) if outcome.verdict != "killed"]
    print(f"\n{len(mutants)} mistakes, {len(alive)} of them not killed; {minutes:.1f} minutes")
    for mutant in alive:
        print(f"  not killed: {mutant.name}")
    return alive


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose file or reason has this text")
    parser.add_argument("--list", action="store_true", help="print them and their tests, and run nothing")
    parser.add_argument("--workers", type=int, default=2, help="processes at once")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that the tests of one may take")
    parser.add_argument(
        "--no-check", action="store_true", help="do not run the tests without a mistake first"
    )
    return parser.parse_args(arguments)


def _passes(
    mutants: Sequence[Mutant], copies: "queue.Queue[Path]", pool: ThreadPoolExecutor, workers: int
) -> bool:
    """Run the tests of all mutants without any, and say which fail."""
    every = sorted({test for mutant in mutants for test in mutant.tests})
    # A test that is named alone is left out where its whole file is there.
    tests = [test for test in every if "::" not in test or test.partition("::")[0] not in every]
    shares = [share for share in (tests[number::workers] for number in range(workers)) if share]
    print(f"{len(tests)} files and tests without a mistake …", flush=True)
    works = [functools.partial(_tested, tests=share, limit=3600) for share in shares]
    jobs = [pool.submit(_in_a_copy, copies, work) for work in works]
    failed = [job.result() for job in jobs if job.result().verdict != "survived"]
    for outcome in failed:
        print(f"  {outcome.verdict} without any mistake: {outcome.test}")
    return not failed


def _outcomes(
    mutants: Sequence[Mutant], copies: "queue.Queue[Path]", pool: ThreadPoolExecutor, limit: float
) -> list[Outcome]:
    def one(mutant: Mutant) -> Outcome:
        outcome = _in_a_copy(copies, lambda copy: _mutated(mutant, copy, limit))
        count = next(counter)
        print(
            f"{count:3d}/{len(mutants)}  {outcome.verdict:8s}  {outcome.seconds:5.1f} s  {mutant.name}\n"
            f"{'':27s}{outcome.test}",
            flush=True,
        )
        return outcome

    counter = itertools.count(1)
    return list(pool.map(one, mutants))


def _in_a_copy(copies: "queue.Queue[Path]", work: Callable[[Path], Outcome]) -> Outcome:
    copy = copies.get()
    try:
        return work(copy)
    finally:
        copies.put(copy)


def _mutated(mutant: Mutant, copy: Path, limit: float) -> Outcome:
    path, changed = copy / mutant.file, mutant.applied(copy)
    before = path.read_text()
    path.write_text(changed)
    try:
        return _tested(copy, mutant.tests, limit)
    finally:
        path.write_text(before)


def _tested(copy: Path, tests: Iterable[str], limit: float) -> Outcome:
    """Run tests in a copy until the first failure."""
    # Without bytecode a file of the same size, changed within a second, cannot be taken for the old one.
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy / "platform"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", *tests, "-x", "-q", "-rfE", "--no-header", "--tb=no"]
    command += ["-p", "no:cacheprovider", f"--basetemp={copy.parent / f'{copy.name}-temporary'}"]
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output = process.communicate(timeout=limit)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Outcome("too slow", f"more than {limit:.0f} s", time.perf_counter() - start)
    seconds = time.perf_counter() - start
    failed = re.search(r"^(?:FAILED|ERROR) (\S+(?:\[.*?\])?)", output, re.MULTILINE)
    if process.returncode == 1 and failed:
        return Outcome("killed", f"by {failed[1]}", seconds)
    if process.returncode == 0:
        return Outcome("survived", f"passed: {' '.join(tests)}", seconds)
    return Outcome("broken", " | ".join(output.splitlines()[-6:]), seconds)


if __name__ == "__main__":
    sys.exit(main())
