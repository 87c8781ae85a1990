"""`stillhouse store {ls,verify,gc}`: what is on the shelf, whether it is whole, what nobody needs."""

import dataclasses
from typing import Any

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.teachers.store import verify_store
from stillhouse.teachers.store_admin import collect as delete
from stillhouse.teachers.store_admin import collectable, list_stores

Entries = list[dict[str, Any]]
"""What `--json` writes, an entry a line of the screen."""


def show(workspace: Workspace) -> Entries:
    """List the stores."""
    stores = list_stores(workspace)
    if not stores:
        say(f"no stores in {workspace.root}")
    for s in stores:
        aside = f", {s.quarantined:,} set aside" if s.quarantined else ""
        state = f"{s.rows:>9,} rows  {s.dim:>5} x {s.dtype}" if s.finished else "  unfinished".ljust(31)
        say(f"{s.label}-{s.fingerprint}  {state}  {s.megabytes:>8.1f} MB  {s.teacher}{aside}")
    return [{**dataclasses.asdict(s), "path": str(s.path)} for s in stores]


def verify(workspace: Workspace) -> Entries:
    """Recompute every checksum of the finished stores; an entry has ``problems``, empty when all is well."""
    found = []
    for store in list_stores(workspace):
        name = store.path.name
        problems = verify_store(store.path) if store.finished else []
        if store.finished:
            say(f"{name}: {store.rows:,} rows, {'as written' if not problems else 'NOT as written'}")
        else:
            say(f"{name}: unfinished; the command that built it goes on with it")
        for problem in problems:
            say(f"  {problem}")
        found.append({"store": name, "finished": store.finished, "rows": store.rows, "problems": problems})
    return found


def collect(workspace: Workspace, *, really: bool) -> Entries:
    """Show what nobody needs; delete it with `--yes`."""
    items = collectable(workspace)
    for item in items:
        say(f"{item.path}  {item.bytes / 1e6:.1f} MB  {item.reason}")
    if not items:
        say("nothing to delete")
    elif really:
        say(f"{delete(items) / 1e6:.1f} MB freed")
    else:
        say(f"{sum(item.bytes for item in items) / 1e6:.1f} MB would be freed: add --yes")
    return [
        {**dataclasses.asdict(item), "path": str(item.path), "deleted": not item.path.exists()}
        for item in items
    ]
