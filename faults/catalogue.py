"""Every fault of the single-process scenarios, as a list of injections."""

import os
import random
import resource
import signal
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from children import STILL_RUNNING
from damage import DAMAGES, FOUND_BY_CHECKSUMS, Damage
from injection import Injection
from scenarios import FETCH, PUBLISH, SERVED, Scenario, no_service, signature
from services import (
    AT,
    LASTING,
    MISBEHAVIOURS,
    OBJECT_MISDEEDS,
    OBJECT_REQUESTS,
    REFUSES,
    TRACKING_MISDEEDS,
    TRACKING_REQUESTS,
)
from system import (
    CALLS,
    ERRORS,
    STEPS,
    Calls,
    crowd,
    dies_of,
    fails_with,
    jumping_clock,
    limit,
    limit_descriptors,
    limit_memory,
    not_finite,
    slow_disk,
)

KILLED = -signal.SIGKILL
SERVED_S = 60.0
"""Seconds that a command may take whose server misbehaves."""
ENDED = 130
"""Exit code of a command that SIGTERM or Ctrl-C ended."""


@dataclass(frozen=True)
class Kind:
    """Files of one kind.

    Attributes:
        name: As in the report.
        pattern: Where they are in a workspace.
        base: The workspace in which they are read.
        has_checksum: Whether a manifest states their checksums.
    """

    name: str
    pattern: str
    base: str
    has_checksum: bool = True


FILES = (
    Kind("texts", "corpora/*/part-*.parquet", "prepared"),
    Kind("manifest of texts", "corpora/*/manifest.json", "prepared", has_checksum=False),
    Kind("list of texts set aside", "corpora/*/quarantine.jsonl", "prepared"),
    Kind("token ids", "tokens/*/*.npy", "prepared"),
    Kind("manifest of token ids", "tokens/*/manifest.json", "prepared", has_checksum=False),
    Kind("shard of vectors", "stores/*/part-*.arrow", "prepared"),
    Kind("manifest of a store", "stores/*/manifest.json", "prepared", has_checksum=False),
    Kind("list of rows set aside", "stores/*/quarantine.json", "prepared"),
    Kind("rows of examples", "examples/*/*.npy", "prepared"),
    Kind("manifest of examples", "examples/*/manifest.json", "prepared", has_checksum=False),
    Kind("note of how a corpus was read", "sources/*.json", "prepared", has_checksum=False),
    Kind("note of what an experiment reads", "experiments/*.json", "prepared", has_checksum=False),
    Kind("weights", "stages/*/*.safetensors", "finished"),
    Kind("manifest of a stage", "stages/*/manifest.json", "finished", has_checksum=False),
    Kind("facts of a stage", "stages/*/facts.json", "finished", has_checksum=False),
    Kind("metrics log", "stages/*/metrics.jsonl", "half", has_checksum=False),
    Kind("checkpoint", "stages/*/checkpoints/step-*.pt", "half", has_checksum=False),
    Kind("unfinished stage's weights", "stages/*/*.safetensors", "half"),
    Kind("shard of an unfinished store", "stores/*/part-*.arrow", "half"),
)
CALL_NAMES = {
    "replace": "renaming a file",
    "sync": "flushing a file",
    "create": "opening a file to write",
    "read": "opening a file to read",
    "remove": "removing a file",
    "statement": "a statement of a transaction",
    "commit": "the end of a transaction",
}
_WITH_END = ("replace", "sync", "create", "remove")
"""Calls after which something can be done, too."""


def injections(scenarios: list[Scenario], seed: int, share: float) -> list[Injection]:
    """List all injections; a share below 1 takes fewer of every kind, 1 the whole suite.

    Args:
        scenarios: Those that have been learnt.
        seed: Every choice follows from it.
        share: Share of the seeds that each fault gets, at least one.
    """
    found = []
    for at, scenario in enumerate(scenarios):
        every = [*_files(scenario), *_deaths(scenario)]
        if scenario.sign is signature:
            every += [*_errors(scenario), *_limits(scenario)]
        every += [*_time(scenario), *_machine(scenario)]
        if scenario.name == SERVED:
            every = _served(scenario, "a tracking server", TRACKING_MISDEEDS, TRACKING_REQUESTS)
        elif scenario.name in (PUBLISH, FETCH):
            every = _served(scenario, "an object store", OBJECT_MISDEEDS, OBJECT_REQUESTS)
            every += [(injection, times / 3) for injection, times in _deaths(scenario)]
        elif scenario.service is not no_service:
            every += _services(scenario)
        if scenario.calls["prepared"][STEPS]:
            every += _numbers(scenario)
        for number, (injection, times) in enumerate(every):
            chance = random.Random(f"{seed} {at} {number}")
            wanted = times * share
            count = int(wanted) + (chance.random() < wanted - int(wanted))
            found += [injection(chance.randrange(10**9)) for _ in range(count)]
    return found


Made = tuple[Callable[[int], Injection], float]
"""Makes an injection of a seed, and how often it is made in the whole suite."""


def _files(scenario: Scenario) -> Iterator[Made]:
    """Damage to every kind of file that the scenario has."""
    for kind in FILES:
        base = kind.base if kind.base != "prepared" or scenario.name == "train" else "finished"
        if base not in scenario.bases or not any(scenario.bases[base].glob(kind.pattern)):
            continue
        for name, do in DAMAGES.items():
            if name in FOUND_BY_CHECKSUMS and not kind.has_checksum:
                continue
            yield _damaging(scenario, kind, base, name, do), 2.0 if scenario.name == "train" else 1.0


def _damaging(scenario: Scenario, kind: Kind, base: str, name: str, do: Damage) -> Callable[[int], Injection]:
    def damage(root: Path, chance: random.Random) -> str:
        path = chance.choice(sorted(root.glob(kind.pattern)))
        do(path, chance)
        return f"{path.relative_to(root)}: {name}"

    return lambda seed: Injection(f"{kind.name}: {name}", scenario.name, base, seed, damage=damage)


def _deaths(scenario: Scenario) -> Iterator[Made]:
    """Deaths at chosen moments, between two calls, and at random ones."""
    for base in ("empty", "half"):
        for call in ("replace", "sync", "create", "remove", "statement", "commit"):
            total = scenario.calls[base][CALLS.index(call)]
            if not total:
                continue
            for when in ("before", "after") if call in _WITH_END else ("before",):
                yield _dying(scenario, base, call, when, total), 3.0
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP):
            yield _signalled(scenario, base, number), 5.0


def _dying(scenario: Scenario, base: str, call: str, when: str, total: int) -> Callable[[int], Injection]:
    def prepare(calls: Calls, chance: random.Random) -> str:
        at, die = chance.randint(1, total), dies_of(signal.SIGKILL)
        if when == "before":
            calls.on(call, at, before=die)
        else:
            calls.on(call, at, after=die)
        return f"killed {when} call {at} of {total}"

    fault = f"SIGKILL {when} {CALL_NAMES[call]}"
    return lambda seed: Injection(fault, scenario.name, base, seed, prepare=prepare, allowed=(0, KILLED))


def _signalled(scenario: Scenario, base: str, number: signal.Signals) -> Callable[[int], Injection]:
    def during(child: int, chance: random.Random) -> None:
        time.sleep(chance.uniform(0.0, scenario.seconds[base]))
        try:
            os.kill(child, number)
            if number == signal.SIGSTOP:
                time.sleep(chance.uniform(0.1, 1.0))
                os.kill(child, signal.SIGCONT)
        except ProcessLookupError:
            return

    codes = {signal.SIGKILL: KILLED, signal.SIGTERM: ENDED, signal.SIGSTOP: 0}
    fault = f"{number.name}{' and SIGCONT' if number == signal.SIGSTOP else ''} at a random moment"
    allowed = (0, codes[number], *((-signal.SIGTERM,) if number == signal.SIGTERM else ()))
    return lambda seed: Injection(fault, scenario.name, base, seed, during=during, allowed=allowed)


def _errors(scenario: Scenario) -> Iterator[Made]:
    """One call that fails, or one and all later ones of its kind."""
    for name in ERRORS:
        for call in ("replace", "sync", "create", "read"):
            if name == "too many open files" and call in ("replace", "sync"):
                continue
            if name in ("a full disk", "an exhausted quota", "a read-only file system") and call == "read":
                continue
            for lasting in (False, True):
                base = "empty" if scenario.name == "embed" or call == "create" else "prepared"
                yield _failing(scenario, base, call, name, lasting), 1.0


def _failing(
    scenario: Scenario, base: str, call: str, name: str, lasting: bool
) -> Callable[[int], Injection]:
    total = scenario.calls[base][CALLS.index(call)]

    def prepare(calls: Calls, chance: random.Random) -> str:
        at = chance.randint(1, max(1, total))
        calls.on(call, at, before=fails_with(ERRORS[name]), persistent=lasting)
        return f"{CALL_NAMES[call]} fails {'from' if lasting else 'at'} call {at} of {total}"

    return lambda seed: Injection(f"{name} at {CALL_NAMES[call]}", scenario.name, base, seed, prepare=prepare)


def _limits(scenario: Scenario) -> Iterator[Made]:
    """Limits that the operating system itself enforces, also on compiled writers."""
    room = partial(limit, resource.RLIMIT_FSIZE)
    yield _limited(scenario, "no room for large files", room, (500, 60_000)), 4.0
    yield _limited(scenario, "too few file descriptors", limit_descriptors, (1, 12)), 4.0


def _limited(
    scenario: Scenario, fault: str, enforce: Callable[[int], None], amounts: tuple[int, int]
) -> Callable[[int], Injection]:
    def prepare(calls: Calls, chance: random.Random) -> str:
        amount = chance.randint(*amounts)
        calls.at_start(partial(enforce, amount))
        return f"a limit of {amount}"

    return lambda seed: Injection(fault, scenario.name, "empty", seed, prepare=prepare)


def _time(scenario: Scenario) -> Iterator[Made]:
    """Clocks that jump and disks that are slow; the command must end as if nothing had happened."""

    def jumps(calls: Calls, chance: random.Random) -> str:
        steps = [chance.uniform(-1e6, 1e6) for _ in range(5)]
        calls.at_start(lambda: jumping_clock(steps))
        return "jumps of up to 12 days"

    def slow(calls: Calls, chance: random.Random) -> str:
        calls.on("sync", 1, before=slow_disk(0.03), persistent=True)
        return "30 ms per flush"

    yield (
        lambda seed: Injection("clock that jumps", scenario.name, "empty", seed, prepare=jumps, allowed=(0,)),
        3.0,
    )
    yield lambda seed: Injection("slow disk", scenario.name, "empty", seed, prepare=slow, allowed=(0,)), 2.0


def _services(scenario: Scenario) -> Iterator[Made]:
    """An endpoint that misbehaves for a few requests, or always."""
    for name in (*MISBEHAVIOURS, REFUSES):
        yield _misbehaving(scenario, name, name), 2.0
        yield _misbehaving(scenario, name, f"{name}{LASTING}"), 2.0


def _misbehaving(scenario: Scenario, name: str, misbehaviour: str) -> Callable[[int], Injection]:
    return lambda seed: Injection(
        f"an endpoint {name}", scenario.name, "empty", seed, misbehaves=misbehaviour, limit=30.0
    )


def _served(scenario: Scenario, server: str, misdeeds: Collection[str], requests: int) -> list[Made]:
    """A server that misbehaves once, or always; files are those of other scenarios.

    Args:
        scenario: What talks to it.
        server: As in the report.
        misdeeds: What it does, by name.
        requests: Among so many requests the first is chosen.
    """
    found: list[Made] = [(_misserved(scenario, server, REFUSES, 0), 2.0)]
    for name in misdeeds:
        found += [
            (_misserved(scenario, server, name, requests), 2.0),
            (_misserved(scenario, server, name, 0), 1.0),
        ]
    return found


def _misserved(scenario: Scenario, server: str, name: str, requests: int) -> Callable[[int], Injection]:
    """Make an injection of a misdeed at one of so many requests; 0 is always."""

    def made(seed: int) -> Injection:
        full = f"{name}{AT}{random.Random(seed).randint(1, requests)}" if requests else f"{name}{LASTING}"
        return Injection(f"{server} {name}", scenario.name, "empty", seed, misbehaves=full, limit=SERVED_S)

    return made


def _numbers(scenario: Scenario) -> Iterator[Made]:
    """Numbers that are not finite, in gradients and in weights."""
    for name, value in (("NaN", float("nan")), ("infinity", float("inf"))):
        for where in ("gradients", "weights"):
            yield _not_finite(scenario, name, value, where), 3.0


def _not_finite(scenario: Scenario, name: str, value: float, where: str) -> Callable[[int], Injection]:
    def prepare(calls: Calls, chance: random.Random) -> str:
        at = chance.randint(1, scenario.calls["prepared"][STEPS])
        calls.at_start(lambda: not_finite(value, where, at))
        return f"at step {at}"

    return lambda seed: Injection(
        f"{name} in the {where}", scenario.name, "prepared", seed, prepare=prepare, allowed=(0, 1, 2)
    )


ABORTS = (-signal.SIGABRT, -signal.SIGSEGV, 127)
"""How compiled libraries, and the loader of libraries, end a process that they cannot give memory."""


def _machine(scenario: Scenario) -> Iterator[Made]:
    """A machine whose cores and memory others have."""

    def crowded(child: int, chance: random.Random) -> None:
        crowd(2 * len(os.sched_getaffinity(0)), seconds=4.0)

    def scarce(calls: Calls, chance: random.Random) -> str:
        spare = chance.randint(1, 60) << 20
        calls.at_start(lambda: limit_memory(spare))
        return f"{spare >> 20} MiB more than at the start"

    yield (
        lambda seed: Injection(
            "cores taken by others", scenario.name, "empty", seed, during=crowded, allowed=(0,)
        ),
        3.0,
    )
    yield (
        lambda seed: Injection(
            "too little memory",
            scenario.name,
            "empty",
            seed,
            prepare=scarce,
            allowed=(0, 2, STILL_RUNNING, *ABORTS),
            rounds=True,
        ),
        4.0,
    )
