"""Artifacts: folders that are whole if and only if their manifest exists, found by what they are made of."""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stillhouse.core.errors import BadInput, Hindered, full_disk, tells_of_full_disk

if TYPE_CHECKING:
    import numpy.typing as npt

MANIFEST = "manifest.json"
_LEAST_ROOM = 1 << 16


class Artifact(Protocol):
    """A frozen value that names a folder."""

    @property
    def kind(self) -> str:
        """The shelf it stands on: ``corpora``, ``stores``, ``stages``, …."""
        ...

    @property
    def label(self) -> str:
        """A short readable name, for people who list the folder."""
        ...

    @property
    def fingerprint(self) -> str:
        """What it is made of, in sixteen hexadecimal digits."""
        ...


@dataclasses.dataclass(frozen=True)
class Workspace:
    """The folder that holds everything a team has built: ``ROOT/<kind>/<label>-<fingerprint>/``."""

    root: Path

    def path(self, artifact: Artifact) -> Path:
        """The folder of an artifact, finished or not."""
        return self.root / artifact.kind / f"{artifact.label}-{artifact.fingerprint}"

    def finished(self, artifact: Artifact) -> bool:
        """Whether the artifact is there and whole."""
        return (self.path(artifact) / MANIFEST).exists()

    def listed(self, kind: str) -> list[Path]:
        """Every folder on a shelf, finished or not, by name."""
        shelf = self.root / kind
        return sorted(p for p in shelf.iterdir() if p.is_dir()) if shelf.is_dir() else []


def default_root() -> Path:
    """``$STILLHOUSE_ROOT``, else ``./runs``; in a Ray job, whose folder is a copy, ``~/stillhouse-runs``."""
    if "STILLHOUSE_ROOT" in os.environ:
        return Path(os.environ["STILLHOUSE_ROOT"])
    inside_ray_job = "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
    return Path.home() / "stillhouse-runs" if inside_ray_job else Path("runs")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all: temporary file, fsync, rename, fsync of the folder.

    Raises:
        Hindered: The disk is full; the old file, if any, is untouched.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_array(path: Path, array: "npt.NDArray[Any]") -> None:
    """Write an array as ``.npy``, there whole or not at all.

    Raises:
        Hindered: The disk is full.
    """
    import numpy as np  # `--help` and its kin want no array.

    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, array)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path that takes the place of ``path``, durably, when the block ends without error.

    Raises:
        Hindered: The disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except Hindered:
        raise
    except Exception as error:
        if tells_of_full_disk(error) or _room(path.parent) < _LEAST_ROOM:
            raise full_disk(path) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files and folders of a killed process. Called under the folder's lock."""
    for leftover in folder.glob(".*.tmp"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Declare a folder finished. Called last, when everything else is on the disk."""
    write_json(folder / MANIFEST, content)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished folder.

    Raises:
        BadInput: There is none, or it is not JSON.
    """
    manifest: dict[str, Any] = read_json(folder / MANIFEST)
    return manifest


def write_json(path: Path, content: object) -> None:
    """Write JSON atomically, indented, keys in the order given."""
    write_atomically(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def without_nan(content: Any) -> Any:
    """The same content with null for NaN and infinity, which JSON does not have."""
    if isinstance(content, Mapping):
        return {key: without_nan(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def read_json(path: Path) -> Any:
    """Read JSON.

    Raises:
        BadInput: The file is missing or not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BadInput(
            f"{path} must exist, but it does not: this folder is unfinished or was removed."
        ) from None
    except ValueError as error:
        raise BadInput(
            f"{path} must be JSON, but reading it gave: {error}. Remove its folder to rebuild it."
        ) from None


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True, held: str = "") -> Iterator[None]:
    """Hold a file lock that the operating system frees when this process ends, however it ends.

    Args:
        path: The lock file; it is created, and left behind.
        wait: Wait for another holder; else refuse at once.
        held: The message of the refusal.

    Raises:
        BadInput: Another process holds the lock and ``wait`` is False.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise BadInput(held or f"{path} must be free, but another process holds it.") from None
        yield


def remove(folder: Path) -> None:
    """Remove an artifact, its manifest first: what a broken removal leaves behind counts as unfinished."""
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _room(folder: Path) -> int:
    """Bytes that may still be written; some writers only say that they wrote less than they had to."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
