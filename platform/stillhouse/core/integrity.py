"""Integrity of finished artifacts: every file that decides a result is compared with its checksum when read.

A manifest states the SHA-256 of each of its files. A file is compared once per
process, at its first use, and again only if it was replaced; `COMPARING` lists what else can be chosen. What
differs is put aside, with the manifest: the artifact then counts as unfinished, and the command that needs it
makes it again.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillhouse.core.console import warn
from stillhouse.core.errors import BadInput, Hindered, blocked
from stillhouse.core.json_text import parse_json

MANIFEST = "manifest.json"
FILES = "files"
"""Key of a manifest: the checksums of the files by name."""
VERIFY = "STILLHOUSE_VERIFY"
"""Environment variable with one of `COMPARING`; ``--verify`` sets it for a command and its workers."""
COMPARING = ("always", "once", "never")
"""Every process compares a file at its first use; only the first process of a workspace does; none does."""
COMPARED = "compared.jsonl"
"""File of a workspace: what ``once`` has compared, one line per file."""
QUARANTINE = "quarantine"
CHECKSUMS, CARD = "stillhouse.sha256", "README.md"
"""In exported folders: the checksums of the other files, and the model card, which may be edited."""

_DATA = frozenset({".npy", ".safetensors", ".parquet", ".arrow"})
_ALSO = frozenset(
    {"quarantine.json", "quarantine.jsonl", "config.json", "tokenizer.json", "tokenizer_config.json"}
)
MARKER = "workspace.json"
"""The file that says which format a workspace has."""

_Stamp = tuple[int, int, int]
_compared: dict[Path, _Stamp] = {}
"""Files that this process has compared, with inode, size and time of change."""


def sha256_of(path: Path) -> str:
    """Hash a file's bytes; hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sums_of(folder: Path, known: Container[str] = ()) -> dict[str, str]:
    """Return the checksum of every file of an artifact that decides a result, except ``known`` ones.

    Left out is what describes a stage: its plan, which the manifest repeats, its facts and its metrics log.
    """
    found = folder.iterdir() if folder.is_dir() else ()
    names = (path.name for path in found if path.suffix in _DATA or path.name in _ALSO)
    return {name: sha256_of(folder / name) for name in sorted(names) if name not in known}


def intact(path: Path) -> Path:
    """Return the path of a file of a finished artifact after comparing its bytes, once per process.

    A file whose folder has no manifest, or whose manifest does not name it, is returned as it is.

    Raises:
        Hindered: The bytes are not those that were written; the file has been put aside.
    """
    expected = _sums_beside(path).get(path.name)
    if expected is None or _is_same(path, expected):
        return path
    aside = put_aside(path)
    raise Hindered(
        f"{path} must be as it was written, but its bytes have changed. {moved(aside)} Run the same command "
        f"again, or the one that made {path.parent.name}: it makes what is missing."
    )


def write_checksums(folder: Path) -> None:
    """Write the checksums of a folder's files beside them, as ``sha256sum --check`` reads them.

    Left out are model cards, which may be edited.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in files if path.name not in (CHECKSUMS, CARD)]
    lines = [f"{sha256_of(folder / name)}  {name}\n" for name in names]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def check_checksums(folder: Path) -> None:
    """Compare the files of a folder with the checksums beside them, if there are any, once per process.

    Raises:
        BadInput: A file is missing or has changed, or is said to be elsewhere.
    """
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        raise blocked(folder / CHECKSUMS, error) from None
    for line in lines:
        expected, _, name = line.partition("  ")
        elsewhere = not name or Path(name).is_absolute() or ".." in Path(name).parts
        if elsewhere or not _is_same(folder / name, expected):
            raise BadInput(
                f"{folder} must be as it was written, but {name or CHECKSUMS} has changed or is missing. "
                f"Export the student again, or remove {CHECKSUMS} if the change is meant."
            )


def stated_sums(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the checksums of an artifact's files by name; a shard states it in its own entry.

    Raises:
        ValueError: The manifest has another form, or names what no file can be called.
    """
    try:
        shards = [shard for shard in manifest.get("shards", ()) if isinstance(shard, dict)]
        of_shards = {shard["name"]: shard["sha256"] for shard in shards if {"name", "sha256"} <= shard.keys()}
        stated = {**of_shards, **manifest.get(FILES, {})}
        odd = [each for each in stated if not each.isprintable() or len(each.encode()) > 255]
    except (AttributeError, TypeError) as error:
        raise ValueError(f"it has another form: {error}") from None
    if odd:
        raise ValueError(f"no file is called {odd[0][:40]!r}")
    return stated


def is_whole(folder: Path, *, contents: bool) -> bool:
    """Return whether an artifact is finished and undamaged; what is damaged is reported and put aside.

    With ``contents`` the bytes of its files are compared, else only that each is there.
    """
    path = folder / MANIFEST
    if not path.exists():
        return False
    try:
        manifest = parse_json(path.read_bytes())
        sums = stated_sums(manifest)
    except FileNotFoundError:
        return False
    except ValueError:
        warn(f"{path} is damaged: {moved(put_aside(path))} {folder.name} is made again.")
        return False
    shards = (shard for shard in manifest.get("shards", ()) if isinstance(shard, dict))
    sizes = {str(shard.get("name")): shard.get("bytes") for shard in shards}
    for name, expected in sums.items():
        problem = _problem(folder / name, expected, contents, sizes.get(name))
        if problem:
            aside = put_aside(folder / name)
            warn(f"{folder / name} {problem}. {moved(aside)} What is missing of {folder.name} is made again.")
            return False
    return True


def damage_of(folder: Path) -> list[str]:
    """Compare every file of a finished artifact anew; one sentence per problem, and nothing is moved.

    Raises:
        Hindered: The system does not let a file be read; it may be good.
    """
    try:
        sums = stated_sums(parse_json((folder / MANIFEST).read_bytes()))
    except (FileNotFoundError, ValueError) as error:
        return [f"{MANIFEST} cannot be read: {error}"]
    except OSError as error:
        raise blocked(folder / MANIFEST, error) from None
    problems = []
    for name, expected in sums.items():
        try:
            if sha256_of(folder / name) != expected:
                problems.append(f"{name} was altered: its bytes differ from those that were written")
        except FileNotFoundError:
            problems.append(f"{name} is missing")
        except OSError as error:
            raise blocked(folder / name, error) from None
    return problems


def put_aside(path: Path, *, alone: bool = False) -> Path | None:
    """Move a damaged file, and the manifest beside it, to the workspace's ``quarantine`` folder.

    The file goes ``alone`` where the artifact is finished without it.

    Returns:
        The file's new path; None if there was nothing to move or the folder cannot be written.
    """
    folder = path.parent
    root = _workspace_of(path)
    target = folder / QUARANTINE if root is None else root / QUARANTINE / folder.relative_to(root)
    moved = None
    with contextlib.suppress(OSError):
        target.mkdir(parents=True, exist_ok=True)
        for source in dict.fromkeys((path,) if alone else (path, folder / MANIFEST)):
            to = _free_name(target / source.name)
            with contextlib.suppress(FileNotFoundError):
                source.rename(to)
                moved = to if source == path else moved
    return moved


def comparing() -> str:
    """Say when files are compared with their checksums: one of `COMPARING`.

    Raises:
        BadInput: The environment variable has another value.
    """
    choice = os.environ.get(VERIFY, COMPARING[0])
    if choice not in COMPARING:
        raise BadInput(f"{VERIFY} must be `always`, `once` or `never`, but is {choice!r}.")
    return choice


def _problem(path: Path, expected: str, contents: bool, stated: int | None) -> str:
    """Say what is wrong with a file, whose size may be stated; empty if nothing is."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return "is missing"
    if stated not in (None, size):
        return f"has {size} bytes instead of {stated}"
    return "" if not contents or _is_same(path, expected) else "has changed since it was written"


def _is_same(path: Path, expected: str) -> bool:
    """Return whether a file has the checksum; one that was compared already is not read again."""
    rule = comparing()
    if rule == "never":
        return True
    record = _Record.beside(path) if rule == "once" else None
    try:
        stamp = _stamp(path)
        if _compared.get(path) == stamp or (record is not None and record.has(path, stamp, expected)):
            return True
        if sha256_of(path) != expected:
            return False
    except FileNotFoundError:
        return False
    except OSError as error:
        raise blocked(path, error) from error
    _compared[path] = stamp
    if record is not None:
        record.add(path, stamp, expected)
    return True


@dataclass
class _Record:
    """The files of a workspace that some process has compared, as the first bytes of `COMPARED` tell.

    Known are inode, size, time of change and checksum by the file's path in the workspace.
    """

    root: Path
    size: int = 0
    known: dict[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def beside(cls, path: Path) -> "_Record | None":
        """The record of the workspace that a file of an artifact is in; None outside of workspaces."""
        root = _workspace_of(path)
        return None if root is None else _records.setdefault(root, cls(root))

    def has(self, path: Path, stamp: _Stamp, expected: str) -> bool:
        """Return whether the file was found to have this checksum and has not been replaced since."""
        self._read()
        return self.known.get(self._name(path)) == [*stamp, expected]

    def add(self, path: Path, stamp: _Stamp, expected: str) -> None:
        """Record that the file has this checksum; nothing happens where the workspace cannot be written."""
        line = json.dumps([self._name(path), *stamp, expected]) + "\n"
        with contextlib.suppress(OSError), (self.root / COMPARED).open("a", encoding="utf-8") as file:
            file.write(line)

    def _read(self) -> None:
        """Read the lines that have come since the last time; one that is damaged says nothing."""
        with contextlib.suppress(OSError), (self.root / COMPARED).open("rb") as file:
            file.seek(self.size)
            for line in file:
                self.size += len(line)
                with contextlib.suppress(ValueError, TypeError):
                    name, *rest = parse_json(line)
                    self.known[name] = rest

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


_records: dict[Path, _Record] = {}


def _workspace_of(path: Path) -> Path | None:
    """The workspace that a file of an artifact is in, if it is in one."""
    return next((each for each in path.parents[:4] if (each / MARKER).exists()), None)


def _stamp(path: Path) -> _Stamp:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


_sums: dict[Path, tuple[_Stamp, dict[str, str]]] = {}


def _sums_beside(path: Path) -> dict[str, str]:
    """Read the checksums in the manifest beside a file, once per process while it does not change."""
    manifest = path.parent / MANIFEST
    try:
        stamp = _stamp(manifest)
        known = _sums.get(manifest)
        if known is None or known[0] != stamp:
            known = _sums[manifest] = stamp, stated_sums(parse_json(manifest.read_bytes()))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return known[1]


def _free_name(path: Path) -> Path:
    """Return a name that is not taken yet: ``a.npy``, ``a.npy.1``, ``a.npy.2``, …."""
    number, free = 0, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


def moved(aside: Path | None) -> str:
    """Say where `put_aside` has moved a file."""
    return f"It was moved to {aside}." if aside else "It could not be moved aside."
