"""An injection: one fault in one scenario, the same command again until it finishes, and what is checked."""

import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from children import STILL_RUNNING, Counters, Ended, run_command
from scenarios import LIMIT, Scenario, damaged, leftovers, rows_add_up, rows_of, same_to_rounding
from system import FILES, STEPS, Calls

ATTEMPTS = 4
"""How often the same command is run again, after the one with the fault."""


@dataclass(frozen=True)
class Injection:
    """One fault.

    Attributes:
        fault: Row of the report that it is counted in.
        scenario: Name of the scenario.
        base: The workspace that it starts from: ``empty``, ``prepared``, ``half`` or ``finished``.
        seed: Seed of its random choices.
        damage: Damages a workspace before the command runs, and says what it did.
        prepare: Changes what the system calls of the first attempt do.
        during: Acts on the first attempt's process while it runs.
        allowed: Exit codes that the first attempt may have.
        limit: Seconds that each attempt may take.
        misbehaves: What the service does that the first attempt talks to; empty if it behaves.
        rounds: Whether what the first attempt computes may differ by rounding.
    """

    fault: str
    scenario: str
    base: str
    seed: int
    damage: Callable[[Path, random.Random], str] | None = None
    prepare: Callable[[Calls, random.Random], str] | None = None
    during: Callable[[int, random.Random], None] | None = None
    allowed: tuple[int, ...] = (0, 2)
    limit: float = LIMIT
    misbehaves: str = ""
    rounds: bool = False


@dataclass(frozen=True)
class Result:
    """What an injection led to.

    Attributes:
        fault: Row of the report.
        scenario: Name of the scenario.
        base: What it started from.
        seed: Its seed.
        what: What exactly was done.
        codes: Exit codes of all attempts.
        problems: What did not hold; empty if everything was recovered.
        reported: Whether damage that the command does not read was left, and reported by `store verify`.
        lost: Rows of stores that are missing at the end.
        doubled: Rows of stores that are there too often.
        equal: Whether counts, checksums, curves and weights are those of the undisturbed run.
        steps: Optimiser steps done more often than in the undisturbed run; None if they were not counted.
        files: Files written more often than in the undisturbed run; None if they were not counted.
        seconds: Duration of all attempts.
        stall: How much longer the longest attempt took than the undisturbed run.
        last: End of the output of the attempt that shows the problem.
    """

    fault: str
    scenario: str
    base: str
    seed: int
    what: str
    codes: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()
    reported: bool = False
    lost: int = 0
    doubled: int = 0
    equal: bool = True
    steps: int | None = 0
    files: int | None = 0
    seconds: float = 0.0
    stall: float = 0.0
    last: str = ""

    @property
    def recovered(self) -> bool:
        """Whether everything that must hold holds."""
        return not self.problems


def carry_out(injection: Injection, scenario: Scenario, scratch: Path) -> Result:
    """Inject a fault into a copy of a workspace, repeat the command, and check what is there in the end."""
    chance = random.Random(f"{injection.fault} {injection.scenario} {injection.seed}")
    folder = Path(tempfile.mkdtemp(dir=scratch))
    root, counters = folder / "runs", Counters()
    try:
        if injection.base in scenario.bases:
            shutil.copytree(scenario.bases[injection.base], root)
        said = []
        if injection.damage is not None:
            said.append(injection.damage(root, chance))

        def prepare(calls: Calls) -> None:
            if injection.prepare is not None:
                injection.prepare(calls, random.Random(chance_seed))

        chance_seed = chance.random()
        if injection.prepare is not None:
            said.append(injection.prepare(Calls(root, Counters()), random.Random(chance_seed)))
        during = injection.during
        watch = None if during is None else lambda child: during(child, chance)
        limit, misbehaves = injection.limit, injection.misbehaves
        first = scenario.run(
            root, counters, prepare=prepare, during=watch, misbehaves=misbehaves, limit=limit
        )
        ends = [first]
        while ends[-1].code != 0 and len(ends) <= ATTEMPTS:
            ends.append(scenario.run(root, counters, limit=injection.limit))
        what = "; ".join(each for each in said if each)
        result = Result(injection.fault, injection.scenario, injection.base, injection.seed, what)
        try:
            return _checked(result, injection, scenario, root, counters, ends)
        except Exception as error:  # What is there cannot even be read.
            problem = f"reading what is there failed: {type(error).__name__}: {error}"
            codes = tuple(end.code for end in ends)
            return replace(result, problems=(problem,), codes=codes, equal=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _checked(
    result: Result,
    injection: Injection,
    scenario: Scenario,
    root: Path,
    counters: Counters,
    ends: list[Ended],
) -> Result:
    """Complete a result by what holds after the last attempt."""
    problems = []
    for at, end in enumerate(ends):
        allowed = injection.allowed if at == 0 else (0, 2)
        if end.code in allowed:
            pass
        elif end.code == STILL_RUNNING:
            problems.append(f"attempt {at + 1} took longer than {injection.limit:g} s")
        else:
            problems.append(f"attempt {at + 1} ended with exit code {end.code}")
        if end.orphans:
            problems.append(f"a process of attempt {at + 1} outlived it")
    if ends[-1].code != 0:
        problems.append(f"the command did not finish in {len(ends)} attempts")
    bad, reported = damaged(root), False
    if bad:
        reported = _verified(root) == 1
        if not reported:
            problems.append(f"damage that `store verify` does not report: {'; '.join(bad)}")
    unread = {each.partition(": ")[0] for each in bad}
    there = scenario.sign(root)
    # An artifact without a manifest is an unfinished one, which is made only where something reads it.
    unmade = result.what.removesuffix("/manifest.json: deleted")
    unread |= {unmade} - there.keys()
    found, expected = (
        {key: value for key, value in of.items() if key not in unread} for of in (there, scenario.expected)
    )
    other = sorted(key for key in {*found, *expected} if found.get(key) != expected.get(key))
    equal = not other
    if not equal:
        if not (injection.rounds and same_to_rounding(root, scenario.bases["finished"], other)):
            problems.append(f"not equal to the undisturbed run: {', '.join(other)}")
    if not problems and not rows_add_up(found):
        problems.append("input = stored + quarantined + duplicates does not hold")
    left = leftovers(root) if equal or injection.rounds else []
    if left:
        problems.append(f"left behind: {', '.join(left)}")
    rows = rows_of(found) - rows_of(expected)
    usual = scenario.calls[injection.base]
    shown = next((end.output for end in ends if end.code not in (0, 2, 130)), ends[-1].output)
    return replace(
        result,
        codes=tuple(end.code for end in ends),
        problems=tuple(problems),
        reported=reported,
        lost=max(0, -rows),
        doubled=max(0, rows),
        equal=equal,
        steps=max(0, counters[STEPS] - usual[STEPS]),
        files=max(0, counters[FILES] - usual[FILES]),
        seconds=sum(end.seconds for end in ends),
        stall=max(0.0, max(end.seconds for end in ends) - scenario.seconds[injection.base]),
        last=shown[-1500:] if problems else "",
    )


def _verified(root: Path) -> int:
    """Exit code of `store verify`."""
    arguments = ["store", "verify", "--root", str(root)]
    return run_command(arguments, root.parent / "verified.txt", limit=LIMIT).code
