"""`stillhouse verify`: check everything in a workspace."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections import defaultdict
from typing import TYPE_CHECKING

from stillhouse.cli.arguments import add_common, new_command
from stillhouse.cli.parsed_values import root_of
from stillhouse.cli.run import write_results
from stillhouse.core.console import show

if TYPE_CHECKING:
    from stillhouse.sweeps.workspace_check import Checked


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "verify",
        "check everything in a workspace",
        "stillhouse verify\n  stillhouse verify --json verified.json",
    )
    add_common(command)
    return command


def run(options: Namespace) -> int:
    """Run the command; the exit code is 1 if anything is damaged."""
    from stillhouse.sweeps.workspace_check import KINDS, verify

    root = root_of(options)
    found = verify(root)
    by_kind: dict[str, list[Checked]] = defaultdict(list)
    for checked in found:
        by_kind[checked.kind].append(checked)
    for kind in KINDS:
        if kind in by_kind:
            _print_kind(kind, by_kind[kind])
    damaged = sum(bool(each.problems) for each in found)
    show(f"{len(found)} looked at in {root}: {damaged or 'none'} damaged")
    write_results(options, [each.as_json() for each in found])
    return int(damaged > 0)


def _print_kind(kind: str, found: "list[Checked]") -> None:
    damaged = sum(bool(each.problems) for each in found)
    state = f"{damaged} DAMAGED" if damaged else "" if kind == "leftovers" else "intact"
    show(f"{kind:<12} {len(found):>5}  {state}".rstrip())
    for each in found:
        name = f"{each.path.parent.name}/{each.path.name}"
        for problem in each.problems:
            show(f"  {name}: {problem}")
        if each.problems:
            show(f"    {each.remedy}")
        elif each.note:
            show(f"  {name}: {each.note}")
