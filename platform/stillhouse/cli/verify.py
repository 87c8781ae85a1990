"""`stillhouse verify`: check everything in a workspace, and repair what can be repaired."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections import defaultdict
from typing import TYPE_CHECKING

from stillhouse.cli.arguments import add_common, new_command
from stillhouse.cli.options import root_of
from stillhouse.cli.run import write_results
from stillhouse.core.console import show

if TYPE_CHECKING:
    from stillhouse.sweeps.verify import Checked


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "verify",
        "check everything in a workspace, and repair it",
        "stillhouse verify\n  stillhouse verify --repair --json verified.json",
    )
    command.add_argument(
        "--repair",
        action="store_true",
        help="mend what is damaged: move it aside, so that it is made again, or take its last good copy",
    )
    add_common(command)
    return command


def run(options: Namespace) -> int:
    """Run the command.

    Returns:
        1 if something is wrong that has not been mended, else 0.
    """
    from stillhouse.sweeps.verify import KINDS, verify

    root = root_of(options)
    found = verify(root, repair=options.repair)
    by_kind: dict[str, list[Checked]] = defaultdict(list)
    for checked in found:
        by_kind[checked.kind].append(checked)
    for kind in KINDS:
        if kind in by_kind:
            _print_kind(kind, by_kind[kind])
    problems, left = sum(bool(each.problems) for each in found), sum(each.wrong for each in found)
    mended = f", {problems - left} mended" if options.repair and problems else ""
    could = any(each.wrong and each.mend for each in found)
    hint = "; --repair mends what can be mended" if could else ""
    show(f"{len(found)} looked at in {root}: {problems or 'none'} damaged{mended}{hint}")
    write_results(options, [each.as_json() for each in found])
    return int(left > 0)


def _print_kind(kind: str, found: "list[Checked]") -> None:
    damaged = sum(bool(each.problems) for each in found)
    state = f"{damaged} DAMAGED" if damaged else "" if kind == "leftovers" else "intact"
    show(f"{kind:<12} {len(found):>5}  {state}".rstrip())
    for each in found:
        name = f"{each.path.parent.name}/{each.path.name}"
        for problem in each.problems:
            show(f"  {name}: {problem}")
        if each.problems:
            show(
                f"    {'mended' if each.mended else 'to mend'}: {each.cost}"
                if each.mend
                else f"    {each.cost}"
            )
        elif each.note:
            show(f"  {name}: {each.note}")
