"""The stores of a workspace: what is there, and what could go.

A store is referenced when a plan kept in the workspace names it: in a JSON file (a manifest, a plan, a
sweep's settings) on any shelf but those of the stores, tokens and texts themselves, nested as a value or by
its fingerprint. Tokens are referenced when some plan names their texts.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import MANIFEST, Workspace, locked, read_json, read_manifest, remove
from stillhouse.core.errors import BadInput
from stillhouse.plan.data import Collection as RetrievalCollection
from stillhouse.plan.data import Store, TextTable, TokenTable

A_DAY = 86_400.0
_NOT_PLANS = {Store.kind, TokenTable.kind, TextTable.kind, RetrievalCollection.kind}


@dataclass(frozen=True)
class Listed:
    """A line of ``stillhouse store ls``; an unfinished store has no rows, dimension, dtype and teacher.

    ``quarantined`` rows of the input have no vector: they could not be read, or could not be embedded.
    """

    label: str
    fingerprint: str
    rows: int
    quarantined: int
    dim: int
    dtype: str
    teacher: str
    megabytes: float
    finished: bool
    path: Path


@dataclass(frozen=True)
class Collectable:
    """A folder that ``stillhouse store gc`` would delete, and why."""

    path: Path
    bytes: int
    reason: str


def list_stores(workspace: Workspace) -> list[Listed]:
    """Every store of a workspace, finished or not, by name."""
    return [_listed(folder) for folder in workspace.listed(Store.kind)]


def collectable(
    workspace: Workspace, *, keep: Collection[str] = (), older_than: float = A_DAY
) -> list[Collectable]:
    """What could be deleted; never what a live process is building.

    That is unfinished stores and tokens that nobody has written to for a while, and finished ones that no
    plan of this workspace names.

    Args:
        workspace: Where to look.
        keep: Fingerprints of stores and tokens that stay.
        older_than: Seconds since an unfinished folder was last written to.
    """
    stores, texts, text = _references(workspace)
    found = []
    for folder in [*workspace.listed(Store.kind), *workspace.listed(TokenTable.kind)]:
        fingerprint = folder.name.rpartition("-")[2]
        if fingerprint in keep or _is_locked(folder):
            continue
        if not (folder / MANIFEST).exists():
            idle = time.time() - max(path.stat().st_mtime for path in [folder, *folder.iterdir()])
            if idle > older_than:
                hours = int(idle // 3600)
                found.append(Collectable(folder, _bytes(folder), f"unfinished, last written {hours} h ago"))
            continue
        is_store = folder.parent.name == Store.kind
        named = stores if is_store else texts
        wanted = fingerprint if is_store else _texts_of(folder)
        if wanted not in named and fingerprint not in text:
            found.append(Collectable(folder, _bytes(folder), "no plan in this workspace names it"))
    return found


def collect(items: Iterable[Collectable]) -> int:
    """Delete what `collectable` found, but nothing that has been locked since. Returns the bytes freed."""
    freed = 0
    for item in items:
        with contextlib.suppress(BadInput), locked(_lock(item.path), wait=False):
            remove(item.path)
            freed += item.bytes
    return freed


def _listed(folder: Path) -> Listed:
    label, _, fingerprint = folder.name.rpartition("-")
    finished = (folder / MANIFEST).exists()
    unknown: dict[str, Any] = {"rows": 0, "quarantined": 0, "dim": 0, "dtype": "", "teacher": {"name": ""}}
    manifest = read_manifest(folder) if finished else unknown
    return Listed(
        label,
        fingerprint,
        manifest["rows"],
        manifest["quarantined"],
        manifest["dim"],
        manifest["dtype"],
        manifest["teacher"]["name"],
        round(_bytes(folder) / 1e6, 2),
        finished,
        folder,
    )


def _references(workspace: Workspace) -> tuple[set[str], set[str], str]:
    """Fingerprints of stores and of texts that plans name, and the plans themselves as one text."""
    stores: set[str] = set()
    texts: set[str] = set()
    plans = []
    shelves = sorted(workspace.root.iterdir()) if workspace.root.is_dir() else []
    for shelf in shelves:
        if not shelf.is_dir() or shelf.name in _NOT_PLANS:
            continue
        for path in sorted([*shelf.glob("*.json"), *shelf.glob("*/*.json")]):
            plan = path.read_text(encoding="utf-8", errors="replace")
            plans.append(plan)
            if f'.{Store.__name__}"' in plan or f'.{TextTable.__name__}"' in plan:
                for name, fingerprint in _values(read_json(path)):
                    (stores if name == Store.__name__ else texts).add(fingerprint)
    return stores, texts, "\n".join(plans)


def _values(plan: Any) -> Iterator[tuple[str, str]]:
    """The stores and text tables nested in the canonical form of a plan, with their fingerprints."""
    if isinstance(plan, list):
        for item in plan:
            yield from _values(item)
    elif isinstance(plan, dict):
        name = str(plan.get("value", "")).rpartition(".")[2]
        if name in (Store.__name__, TextTable.__name__):
            yield name, _fingerprint(plan)
        for item in plan.values():
            yield from _values(item)


def _fingerprint(canonical: dict[str, Any]) -> str:
    """As `spec.fingerprint` has it, out of a form that is canonical already."""
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _texts_of(folder: Path) -> str:
    """The fingerprint of the texts that a token table was made of."""
    return _fingerprint(read_manifest(folder)["plan"]["with"]["texts"])


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
