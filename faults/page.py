"""The report, docs/faults.md: what was injected, what came of it, and what was not recovered."""

import datetime
import platform
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from injection import Result
from scenarios import SAME

from stillhouse import __version__
from stillhouse.core.machine import describe_machine
from stillhouse.reports.layout import markdown_table

_HEAD = """\
# Faults

`make faults` injects faults into real commands, runs the same command again until it finishes, and compares
what is there with an undisturbed run. This page is written by that command and holds nothing else. The suite
is in `faults/`: [Operations](operations.md#faults) says how to run it.

After every injection all of this must hold, otherwise it counts as not recovered:

* The same command finishes within five attempts, and no attempt takes longer than its limit ({limits}).
* An attempt ends with exit code 0, with 2 and one message, or with the code of the signal that ended it. 1, a
  failure without advice, is allowed only where a number that is not finite ends a training run, and where one
  of Ray's own processes was ended. Where memory is short, a compiled library may abort the process,
  and Python may wait without end for a thread that could not begin: the command then ends itself or, where
  not even that finds memory, the suite ends it.
* All counts, checksums, evaluations and weights are those of the undisturbed run, bit for bit (one thread,
  one trial at a time). With too little memory oneDNN takes other kernels, which round differently: there,
  what is not equal in the table has the same counts, and every vector a cosine of {same} or more with its
  own.
* For every store, input = stored + quarantined + duplicates.
* No process, held lock, temporary file or checkpoint of a finished stage is left.
* A file that the command did not read, and that is therefore still damaged, is reported by
  `stillhouse store verify`.

A sweep on Ray is disturbed by one fault after another, start after start of the same command, until it has
finished. The command must notice the death of one of Ray's own processes and end within {notice}. What is
there in the end (all trials with their curves and weights, what won, the runs in MLflow) counts for every
fault of such a chain: if it differs from the undisturbed sweep, none of them was recovered.
"""
_COLUMNS = """\
*Work repeated* is what all attempts together did more often than the undisturbed run, at most: optimiser
steps, and files written. *Longest stall* is how much longer the longest attempt took than the undisturbed
run; it includes what had to be made again. For a sweep on Ray it is the time from the fault to the end of
the command, for faults that end it.
"""


def write_page(
    path: Path, results: Sequence[Result], *, seed: int, listed: int, seconds: float, limits: str, notice: str
) -> None:
    """Write the report of a run.

    Args:
        path: The page.
        results: What was injected.
        seed: The seed that all choices follow from.
        listed: How many injections the seed lists; there are fewer results if the time was up before.
        seconds: How long it took.
        limits: How long one attempt may take, in words.
        notice: Within which time a command must end whose Ray has died, in words.
    """
    machine = describe_machine(1)
    lost = [result for result in results if not result.recovered]
    rows = sum(result.lost + result.doubled for result in results)
    parts = [_HEAD.format(limits=limits, notice=notice, same=SAME)]
    done = f"{len(results)} injections, {len(results) - len(lost)} recovered, {rows} rows lost or doubled."
    if len(results) < listed:
        done += (
            f" The time was up before the other {listed - len(results)} of the list; their order is random."
        )
    today = datetime.datetime.now(datetime.UTC).date()
    parts.append(
        f"**{done}** Seed {seed}, {seconds / 60:.0f} minutes on {machine['cores']} cores of "
        f"{machine['cpu']}, Python {platform.python_version()}, Stillhouse {__version__}, {today}; "
        f"commit of {commit_date(path.parent.parent)}. "
        f'`make faults ARGS="--seed {seed}"` injects the same faults again.\n'
    )
    parts.append(_COLUMNS)
    for scenario in dict.fromkeys(result.scenario for result in results):
        parts.append(_section(scenario, [result for result in results if result.scenario == scenario]))
    if lost:
        parts.append("## Not recovered\n")
        parts += [_failure(result) for result in lost]
        parts.append("")
    path.write_text("\n".join(parts).rstrip() + "\n")


def commit_date(repository: Path) -> str:
    """Date of the newest commit, and whether files differ from it; ``unknown`` outside a repository."""
    try:
        git = ["git", "-C", str(repository)]
        date = subprocess.check_output([*git, "log", "-1", "--format=%cs"], text=True).strip()
        changed = subprocess.check_output([*git, "status", "--porcelain", "platform"], text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{date}{' with changes' if changed else ''}"


def _section(scenario: str, results: Sequence[Result]) -> str:
    heading = scenario[0].upper() + scenario[1:]
    header = ["fault", "times", "recovered", "rows lost or doubled"]
    header += ["hashes equal", "work repeated", "longest stall"]
    rows = [
        _row(fault, [result for result in results if result.fault == fault])
        for fault in dict.fromkeys(result.fault for result in results)
    ]
    return f"## {heading}\n\n{markdown_table(header, rows)}\n"


def _row(fault: str, results: Sequence[Result]) -> list[str]:
    times = len(results)
    recovered = sum(result.recovered for result in results)
    equal = sum(result.equal for result in results)
    rows = sum(result.lost + result.doubled for result in results)
    stall = max(result.stall for result in results)
    counts = [str(times), str(recovered), str(rows), f"{equal} of {times}"]
    return [fault, *counts, _work(results), f"{stall:.1f} s"]


def _work(results: Sequence[Result]) -> str:
    """What was done more often than in the undisturbed run, at most."""
    steps = [result.steps for result in results if result.steps is not None]
    files = [result.files for result in results if result.files is not None]
    if not steps and not files:
        return "not counted"
    return ", ".join(_counted(((max(steps), "step"), (max(files), "file")))) or "none"


def _counted(amounts: Iterable[tuple[int, str]]) -> list[str]:
    return [f"{amount} {what}{'s' if amount != 1 else ''}" for amount, what in amounts if amount]


def _failure(result: Result) -> str:
    what = f": {result.what}" if result.what else ""
    return (
        f"* {result.fault} ({result.scenario}, seed {result.seed}){what}. Exit codes "
        f"{', '.join(map(str, result.codes))}. {'; '.join(result.problems)}."
    )
