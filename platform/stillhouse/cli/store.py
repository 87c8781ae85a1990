"""`stillhouse store {ls,verify,gc}`: list, verify and clear the teacher stores."""

import dataclasses
from argparse import ArgumentParser, Namespace, _SubParsersAction
from typing import Any

from stillhouse.cli.arguments import add_common, new_command
from stillhouse.cli.parsed_values import root_of
from stillhouse.cli.run import write_results
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import show
from stillhouse.core.errors import require
from stillhouse.teachers.store_admin import collect as delete
from stillhouse.teachers.store_admin import collectable, damaged, list_stores

Entries = list[dict[str, Any]]
"""What `--json` writes: one entry per printed line."""


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "store",
        "list, verify and clear the teacher stores",
        "stillhouse store ls\n  stillhouse store verify\n  stillhouse store gc --yes",
    )
    command.add_argument("action", choices=["ls", "verify", "gc"])
    command.add_argument("--yes", action="store_true", help="gc: delete; without it, only show")
    add_common(command)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    rule = "--yes must go with `store gc`, which deletes"
    require(options.action == "gc" or not options.yes, rule, action=options.action)
    workspace = Workspace(root_of(options))
    if options.action == "gc":
        found = collect(workspace, really=options.yes)
    else:
        found = verify(workspace) if options.action == "verify" else listed(workspace)
    write_results(options, found)
    return int(any(entry.get("problems") for entry in found))


def listed(workspace: Workspace) -> Entries:
    """List the stores."""
    stores = list_stores(workspace)
    if not stores:
        show(f"no stores in {workspace.root}")
    for s in stores:
        aside = f", {s.quarantined:,} set aside" if s.quarantined else ""
        if s.problem:
            show(f"{s.label}-{s.fingerprint}  DAMAGED: {s.problem}")
            continue
        prompt = f", prompt {s.prompt!r}" if s.prompt else ""
        state = f"{s.rows:>9,} rows  {s.dim:>5} x {s.dtype}" if s.finished else "  unfinished".ljust(31)
        show(f"{s.label}-{s.fingerprint}  {state}  {s.megabytes:>8.1f} MB  {s.teacher}{prompt}{aside}")
    return [{**dataclasses.asdict(s), "path": str(s.path)} for s in stores]


def verify(workspace: Workspace) -> Entries:
    """Recompute every checksum of the finished stores; an entry has ``problems``, empty when all is well.

    Texts, tokens, examples, collections and stages are compared too, and listed if they are damaged.
    """
    from stillhouse.teachers.store import verify_store

    found = []
    for store in list_stores(workspace):
        name = store.path.name
        problems = [store.problem] if store.problem else []
        if store.finished and not store.problem:
            problems = verify_store(store.path)
        if store.finished:
            show(f"{name}: {store.rows:,} rows, {'intact' if not problems else 'DAMAGED'}")
        else:
            show(f"{name}: unfinished; the command that built it resumes it")
        for problem in problems:
            show(f"  {problem}")
        found.append({"store": name, "finished": store.finished, "rows": store.rows, "problems": problems})
    for folder, problems in damaged(workspace):
        name = f"{folder.parent.name}/{folder.name}"
        show(f"{name}: DAMAGED")
        for problem in problems:
            show(f"  {problem}")
        found.append({"store": name, "finished": True, "rows": 0, "problems": problems})
    return found


def collect(workspace: Workspace, *, really: bool) -> Entries:
    """Show what no experiment needs; delete it with `--yes`."""
    items = collectable(workspace)
    for item in items:
        show(f"{item.path}  {item.bytes / 1e6:.1f} MB  {item.reason}")
    if not items:
        show("nothing to delete")
    elif really:
        show(f"{delete(items) / 1e6:.1f} MB freed")
    else:
        show(f"{sum(item.bytes for item in items) / 1e6:.1f} MB would be freed: add --yes")
    return [
        {**dataclasses.asdict(item), "path": str(item.path), "deleted": not item.path.exists()}
        for item in items
    ]
