"""Inject faults into real commands, and report what was lost: `make faults`.

    make faults                              the whole suite; writes docs/faults.md
    make faults ARGS=--quick                 a part of at most ten minutes, which writes nothing
    make faults ARGS="--only checkpoint"     the faults whose name has these words; writes nothing
    make faults ARGS="--seed 7"              other random choices

The exit status is 1 if anything was not recovered.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import psutil
import surroundings
import sweeps
from catalogue import injections
from injection import Injection, Result, carry_out
from page import write_page
from scenarios import LIMIT, Scenario, World, learn, scenarios, warm_up

from stillhouse.core.signals import sigterm_interrupts

QUICK = 0.25
"""Share of the injections that `--quick` makes."""
MINUTES, QUICK_MINUTES = 27.0, 8.0
"""Time for injections into commands in one process; before them, every command is run undisturbed, which
takes a minute or two."""
RAY_MINUTES = 6.0
"""Within this time after the undisturbed sweep on Ray another chain of disturbed ones is begun."""

_todo: list[Injection] = []
_known: dict[str, Scenario] = {}
_scratch = Path()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite."""
    options = parser().parse_args(arguments)
    with sigterm_interrupts():
        try:
            return _run(options)
        except KeyboardInterrupt:
            print("interrupted")
            return 130


def _run(options: argparse.Namespace) -> int:
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-", dir=options.scratch) as name:
        folder = Path(name)
        world = World(folder / "world")
        world.write()
        results: list[Result] = []
        if options.scenario != sweeps.NAME:
            results += _in_one_process(world, folder, options, seed)
        left_out = len(_todo) - len(results)
        aimed = any(options.only in target.fault for target in sweeps.TARGETS)
        if aimed and not options.quick and options.scenario in ("", sweeps.NAME):
            results += _on_ray(world, options.only, seed)
    seconds = time.monotonic() - started
    lost = [result for result in results if not result.recovered]
    print(f"\n{len(results) - len(lost)} passed, {len(lost)} failed in {seconds:.0f} s; seed {seed}")
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    if not (options.only or options.scenario or options.quick):
        limits = f"{LIMIT:g} s for a command in one process, {sweeps.LIMIT:g} s for a sweep on Ray"
        write_page(
            surroundings.REPOSITORY / "docs" / "faults.md",
            results,
            seed=seed,
            listed=len(results) + left_out,
            seconds=seconds,
            limits=limits,
            notice=f"{sweeps.NOTICE:g} s",
        )
        print("written: docs/faults.md")
    return 1 if lost else 0


def line(result: Result) -> str:
    """One line for an injection, and more if it was not recovered."""
    text = f"{result.fault} ({result.scenario}, {result.base}, seed {result.seed}): "
    codes = ", ".join(map(str, result.codes))
    if result.recovered:
        return f"{text}ok, exit codes {codes}, {result.seconds:.1f} s"
    problems = "\n  ".join(result.problems)
    return f"{text}NOT RECOVERED, exit codes {codes}: {result.what}\n  {problems}\n{result.last}"


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seed", type=int, help="seed of all random choices; default: a new one, printed")
    made.add_argument("--quick", action="store_true", help="a part of at most ten minutes")
    made.add_argument("--only", default="", help="only faults whose name contains this")
    made.add_argument("--scenario", default="", help=f"only this scenario; {sweeps.NAME!r} is one")
    made.add_argument("--share", type=float, default=0.0, help="share of the injections of every kind")
    made.add_argument(
        "--minutes", type=float, help="end the part in one process after so many (27; 8 with --quick)"
    )
    made.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="at the same time")
    made.add_argument("--json", type=Path, help="also write every single result here")
    made.add_argument(
        "--scratch", type=Path, default=Path(tempfile.gettempdir()), help="folder for workspaces"
    )
    return made


def _in_one_process(world: World, folder: Path, options: argparse.Namespace, seed: int) -> Iterator[Result]:
    """Inject into the commands that run in one process, as many at the same time as there are cores."""
    global _scratch
    from stillhouse.core.console import private_environment

    private_environment()
    _scratch = folder
    found_scenarios = [each for each in scenarios(world) if options.scenario in ("", each.name)]
    warm_up(found_scenarios[-1], folder)
    for scenario in found_scenarios:
        learn(scenario, folder / "learn")
        _known[scenario.name] = scenario
    share = options.share or (QUICK if options.quick else 1.0)
    found = injections(list(_known.values()), seed, share)
    _todo.extend(each for each in found if options.only in each.fault)
    random.Random(seed).shuffle(_todo)
    print(f"{len(_todo)} injections into {', '.join(_known)}", flush=True)
    deadline = time.monotonic() + 60 * (options.minutes or (QUICK_MINUTES if options.quick else MINUTES))
    with ProcessPoolExecutor(
        options.processes,
        mp_context=get_context("fork"),
        initializer=signal.signal,
        initargs=(signal.SIGTERM, signal.SIG_DFL),  # Commands are forked from these processes.
    ) as pool:
        running = [pool.submit(_one, at) for at in range(len(_todo))]
        try:
            for done, future in enumerate(as_completed(running), 1):
                result = future.result()
                print(f"{done}/{len(_todo)} {line(result)}", flush=True)
                yield result
                if time.monotonic() > deadline:
                    break
        except KeyboardInterrupt:
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _on_ray(world: World, only: str, seed: int) -> Iterator[Result]:
    """Disturb sweeps on Ray."""
    print(f"{sweeps.NAME}, undisturbed", flush=True)
    expected, seconds = sweeps.undisturbed(world)
    print(f"{sweeps.NAME}: {seconds:.0f} s undisturbed; now one fault after another", flush=True)
    deadline = time.monotonic() + 60 * RAY_MINUTES
    number = 0
    while number == 0 or time.monotonic() < deadline:
        for result in sweeps.chain(world, seed + number, expected, only):
            print(line(result), flush=True)
            yield result
        number += 1


def _one(at: int) -> Result:
    injection = _todo[at]
    return carry_out(injection, _known[injection.scenario], _scratch)


if __name__ == "__main__":
    sys.exit(main())
