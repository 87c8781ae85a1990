"""Give damaged files and command lines to every reader: `make fuzz`.

    make fuzz                                       an hour
    make fuzz ARGS="--minutes 5 --only corpus"      the readers whose name has these words
    make fuzz ARGS="--seed 7"                       other inputs
    make fuzz ARGS="--seed 7 --only runs --number 31"      one input again, with its traceback

An input is a function of the seed, the reader and its number: a valid file with some changes. Nothing but
`BadInput` may come out of a reader, within a time limit. What else comes out is printed with what makes it
again, and the exit status is 1.
"""

import argparse
import contextlib
import io
import multiprocessing
import multiprocessing.sharedctypes
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutations import mutated, rearranged
from targets import Target, targets

import stillhouse
from stillhouse.core.console import private_environment
from stillhouse.core.errors import BadInput

LIMIT_S = 20.0
"""Seconds of computing that one input may take."""
WAIT_S = 10 * LIMIT_S
"""Seconds that one input may take on the clock, which other programs slow down."""
_SLICE_S = 5.0
"""Seconds of one reader before the next one has its turn."""
_PACKAGE = Path(stillhouse.__file__).parent
_SHOWN = 5
"""Inputs that are printed of one crash."""


class TooSlow(BaseException):
    """A reader took longer than the limit; a reader that catches every error does not catch this."""


@dataclass(frozen=True)
class Crash:
    """An input from which something else than `BadInput` came out.

    Attributes:
        target: The reader.
        number: Number of the input.
        error: What came out, and where: the same text for the same defect.
        details: The traceback.
    """

    target: str
    number: int
    error: str
    details: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the readers in turn until the time is over, and print what was found."""
    private_environment()
    options = _parser().parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    chosen = [target for target in targets() if options.only in target.name]
    if not chosen:
        print(f"no reader is called {options.only!r}. There are: {', '.join(t.name for t in targets())}.")
        return 2
    print(f"seed {seed}, {len(chosen)} readers", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_scratch()) as name:
        if options.number is not None:
            crashes = [found for t in chosen if (found := attempt(t, seed, options.number, Path(name)))]
            counts = Counter({target.name: 1 for target in chosen})
        else:
            counts, crashes = _in_turn(
                chosen, seed, Path(name), started + 60 * options.minutes, options.inputs
            )
    for target in chosen:
        print(f"  {target.name}: {counts[target.name]:,} inputs")
    _print(crashes, seed, details=options.number is not None)
    seconds = time.monotonic() - started
    passed = counts.total() - len(crashes)
    print(f"{passed:,} passed, {len(crashes)} failed in {seconds:.0f} s; seed {seed}")
    return int(bool(crashes))


def attempt(target: Target, seed: int, number: int, scratch: Path) -> Crash | None:
    """Give one input to a reader.

    Args:
        target: The reader.
        seed: Seed of all inputs.
        number: Number of the input; 0 is the first valid set of files, unchanged.
        scratch: Folder for the files, on a fast disk.

    Returns:
        What else than `BadInput` came out; None if nothing did.
    """
    folder = scratch / "input"
    for old in scratch.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    for name, content in made(target, seed, number).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    try:
        with _limited(), _quiet():
            target.read(folder)
    except BadInput:
        return None
    except (Exception, TooSlow) as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        # The last frame of `TooSlow` is that of the signal.
        frames = traceback.extract_tb(error.__traceback__)[: -1 if isinstance(error, TooSlow) else None]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].name}"
        own = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)]
        if own:
            where = f"{Path(own[-1].filename).name}:{own[-1].name}, {where}"
        text = "".join(traceback.format_exception(error))
        return Crash(target.name, number, f"{type(error).__name__} in {where}", text)
    return None


def made(target: Target, seed: int, number: int) -> Mapping[str, bytes]:
    """Make the files of an input.

    Args:
        target: Its reader.
        seed: Seed of all inputs.
        number: Its number; the first ones are the valid sets of files, unchanged.
    """
    if number < len(target.seeds):
        return target.seeds[number]
    chance = random.Random(f"{seed} {target.name} {number}")
    files = dict(chance.choice(target.seeds))
    name = chance.choice(sorted(files))
    if target.command_line:
        lines = [each[name].decode().split("\n") for each in target.seeds]
        words = rearranged(files[name].decode().split("\n"), chance, lines)
        files[name] = "\n".join(words).encode("utf-8", "surrogateescape")
        return files
    others = [content for each in target.seeds for content in each.values()]
    files[name] = mutated(files[name], chance, others)
    return files


def _in_turn(
    chosen: Sequence[Target], seed: int, scratch: Path, until: float, inputs: int
) -> tuple[Counter[str], list[Crash]]:
    """Give inputs to each reader in turn, each turn in a process of its own, which may die."""
    context = multiprocessing.get_context("fork")
    counts: Counter[str] = Counter({target.name: 0 for target in chosen})
    crashes: list[Crash] = []
    while time.monotonic() < until and (not inputs or min(counts.values()) < inputs):
        for target in chosen:
            if inputs and counts[target.name] >= inputs:
                continue
            first = counts[target.name]
            at = context.Value("q", first)
            receiver, sender = context.Pipe(duplex=False)
            folder = scratch / target.name.replace(" ", "-")
            folder.mkdir(exist_ok=True)
            last = min(until, time.monotonic() + _SLICE_S)
            worker = context.Process(
                target=_turn, args=(target, seed, folder, at, sender, last, inputs), daemon=True
            )
            worker.start()
            sender.close()
            with contextlib.suppress(EOFError):
                while True:
                    crashes.append(receiver.recv())
                    print(f"  {crashes[-1].target} {crashes[-1].number}: {crashes[-1].error}", flush=True)
            worker.join()
            counts[target.name] = at.value
            if worker.exitcode:
                error = f"the process ended with {worker.exitcode}"
                crashes.append(Crash(target.name, at.value, error, error))
                counts[target.name] += 1
            shutil.rmtree(folder, ignore_errors=True)
    return counts, crashes


def _turn(
    target: Target,
    seed: int,
    folder: Path,
    at: "multiprocessing.sharedctypes.Synchronized[int]",
    sender: "multiprocessing.connection.Connection",
    until: float,
    inputs: int,
) -> None:
    """Give inputs to one reader until the turn is over; ``at`` is the input that is being read."""
    while True:
        found = attempt(target, seed, at.value, folder)
        if found is not None:
            sender.send(found)
        at.value += 1
        if time.monotonic() >= until or at.value == inputs:
            break
    sender.close()


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raise `TooSlow` if the block computes or waits for longer than the limits."""

    def stop(*_: object) -> None:
        raise TooSlow

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, LIMIT_S), (signal.SIGALRM, signal.ITIMER_REAL, WAIT_S))
    before = {number: signal.signal(number, stop) for number, _, _ in timers}
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, timer, _ in timers:
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Print nothing of what the readers say."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _print(crashes: Sequence[Crash], seed: int, *, details: bool) -> None:
    """Print the crashes by kind, each with some inputs that make it."""
    kinds: dict[tuple[str, str], list[Crash]] = {}
    for crash in crashes:
        kinds.setdefault((crash.target, crash.error), []).append(crash)
    for (target, error), found in kinds.items():
        numbers = ", ".join(str(crash.number) for crash in found[:_SHOWN])
        print(f"\n{target}: {error}, {len(found)} times; inputs {numbers}")
        print(found[0].details.rstrip())
        if not details:
            print(f"again: make fuzz ARGS='--seed {seed} --only \"{target}\" --number {found[0].number}'")


def _scratch() -> str | None:
    """A folder in memory, where there is one: the readers' temporary files need no disk."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make fuzz", description="Give damaged files to every reader.")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--inputs", type=int, default=0, help="inputs of each reader; 0 has no limit (0)")
    parser.add_argument(
        "--seed", type=int, help="seed of the inputs; default: a random one, which is printed"
    )
    parser.add_argument("--only", default="", metavar="WORDS", help="readers whose name has these words")
    parser.add_argument("--number", type=int, help="give this input alone")
    return parser


if __name__ == "__main__":
    sys.exit(main())
