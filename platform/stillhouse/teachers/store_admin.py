"""The administration of a workspace's stores: listing them, and collecting unused ones.

A store is referenced if a plan kept in the workspace names it: in a JSON file (a manifest, a plan, a sweep's
settings) in any folder except those of the stores, tokens and texts themselves, nested as a value or by its
fingerprint. Tokens are referenced if some plan names their texts.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import (
    FETCHING,
    MANIFEST,
    STREAMED,
    Workspace,
    locked,
    read_json,
    read_manifest,
    remove,
)
from stillhouse.core.errors import BadInput, is_refused
from stillhouse.core.integrity import damage_of
from stillhouse.values.data import Collection, Store, TextTable, TokenTable

DAY_SECONDS = 86_400.0
_READ_BY_STAGES = ("examples", "collections", "stages")
_NOT_PLANS = {Store.kind, TokenTable.kind, TextTable.kind, Collection.kind, FETCHING, STREAMED}


@dataclass(frozen=True)
class Listed:
    """A line of ``stillhouse store ls``; all but its name and size is unknown of an unfinished store.

    ``quarantined`` input rows have no vector: they could not be read, or could not be embedded. ``problem``
    says why the manifest of a finished store cannot be read; empty if it can.
    """

    label: str
    fingerprint: str
    rows: int
    quarantined: int
    dim: int
    dtype: str
    teacher: str
    prompt: str
    megabytes: float
    finished: bool
    path: Path
    problem: str = ""


@dataclass(frozen=True)
class Collectable:
    """A folder that ``stillhouse store gc`` would delete, and why."""

    path: Path
    bytes: int
    reason: str


def list_stores(workspace: Workspace) -> list[Listed]:
    """List all stores of a workspace, finished or not, by name."""
    return [_listed(folder) for folder in workspace.listed(Store.kind)]


def collectable(workspace: Workspace, *, older_than: float = DAY_SECONDS) -> list[Collectable]:
    """List the folders that could be deleted, never one that a live process is building.

    These are unfinished stores and tokens that have not been written to for a while, and finished ones that
    no plan of this workspace names. An unfinished one counts from ``older_than`` seconds after it was last
    written to.
    """
    stores, texts, text = _references(workspace)
    found = []
    for folder in [*workspace.listed(Store.kind), *workspace.listed(TokenTable.kind)]:
        fingerprint = folder.name.rpartition("-")[2]
        if _is_locked(folder):
            continue
        if not (folder / MANIFEST).exists():
            idle = time.time() - max(path.stat().st_mtime for path in [folder, *folder.iterdir()])
            if idle > older_than:
                hours = int(idle // 3600)
                found.append(Collectable(folder, _bytes(folder), f"unfinished, last written {hours} h ago"))
            continue
        if folder.parent.name == Store.kind:
            named = fingerprint in stores
        else:
            named = _fingerprint(read_manifest(folder)["plan"]["with"]["texts"]) in texts
        if not named and fingerprint not in text:
            found.append(Collectable(folder, _bytes(folder), "no plan in this workspace names it"))
    return found


def collect(items: Iterable[Collectable]) -> int:
    """Delete the folders that `collectable` found, except any locked since. Returns the bytes freed."""
    freed = 0
    for item in items:
        with contextlib.suppress(BadInput), locked(_lock(item.path), wait=False):
            remove(item.path)
            freed += item.bytes
    return freed


def damaged(workspace: Workspace) -> Iterator[tuple[Path, list[str]]]:
    """Compare every file of the finished artifacts that are no stores; nothing is moved."""
    for kind in (TextTable.kind, TokenTable.kind, *_READ_BY_STAGES):
        for folder in workspace.listed(kind):
            if (folder / MANIFEST).exists() and (problems := damage_of(folder)):
                yield folder, problems


def _listed(folder: Path) -> Listed:
    label, _, fingerprint = folder.name.rpartition("-")
    finished = (folder / MANIFEST).exists()
    unknown: dict[str, Any] = {"rows": 0, "quarantined": 0, "dim": 0, "dtype": "", "teacher": ""}
    facts, problem, prompt = unknown, "", ""
    if finished:
        try:
            found = read_manifest(folder)
            facts = {**{name: found[name] for name in unknown}, "teacher": dict(found["teacher"])["name"]}
            prompt = str(found["plan"]["with"]["prompt"]) if "plan" in found else ""
            int(facts["rows"]), int(facts["quarantined"])
        except (BadInput, TypeError, KeyError, ValueError) as error:
            facts, problem = unknown, f"{MANIFEST} is damaged: {error}"
    return Listed(
        label,
        fingerprint,
        **facts,
        prompt=prompt,
        megabytes=round(_bytes(folder) / 1e6, 2),
        finished=finished,
        path=folder,
        problem=problem,
    )


def _references(workspace: Workspace) -> tuple[set[str], set[str], str]:
    """Return the fingerprints of stores and of texts that plans name, and the plans as one text."""
    stores: set[str] = set()
    texts: set[str] = set()
    plans = []
    folders = sorted(workspace.root.iterdir()) if workspace.root.is_dir() else []
    for folder in folders:
        if not folder.is_dir() or folder.name in _NOT_PLANS:
            continue
        for path in sorted([*folder.glob("*.json"), *folder.glob("*/*.json")]):
            plan = path.read_text(encoding="utf-8", errors="replace")
            plans.append(plan)
            if f'"{Store.__name__}"' in plan or f'"{TextTable.__name__}"' in plan:
                for name, fingerprint in _values(read_json(path)):
                    (stores if name == Store.__name__ else texts).add(fingerprint)
    return stores, texts, "\n".join(plans)


def _values(plan: Any) -> Iterator[tuple[str, str]]:
    """Iterate over the stores and text tables nested in a plan's canonical form, with fingerprints."""
    if isinstance(plan, list):
        for item in plan:
            yield from _values(item)
    elif isinstance(plan, dict):
        name = plan.get("value")
        if name in (Store.__name__, TextTable.__name__):
            yield name, _fingerprint(plan)
        for item in plan.values():
            yield from _values(item)


def _fingerprint(canonical: dict[str, Any]) -> str:
    """Compute `core.identity.fingerprint` from a form that is canonical already."""
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _lock(folder: Path) -> Path:
    return folder.with_suffix(".lock")


def _is_locked(folder: Path) -> bool:
    try:
        with locked(_lock(folder), wait=False):
            return False
    except BadInput:
        return True
    except OSError as error:
        if is_refused(error):  # No process of this user builds where nothing can be written.
            return False
        raise
