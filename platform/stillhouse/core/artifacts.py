"""Artifacts: folders that are complete if and only if their manifest exists, named by their content."""

import contextlib
import dataclasses
import functools
import json
import math
import os
import re
import shutil
import tempfile
import threading
import time
import tokenize
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stillhouse.core.cache import make_room, use
from stillhouse.core.console import doing
from stillhouse.core.errors import (
    BadInput,
    Hindered,
    blocked,
    full_disk,
    is_full_disk,
    is_short_write,
    require,
    short_write,
)
from stillhouse.core.integrity import (
    FILES,
    MANIFEST,
    MARKER,
    intact,
    is_whole,
    sha256_of,
    stated_sums,
    sums_of,
)
from stillhouse.core.json_text import parse_json
from stillhouse.core.locks import ALONE, SHARED, lock, lock_file
from stillhouse.core.redaction import redacted_json
from stillhouse.core.remotes import Remote

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["MANIFEST", "sha256_of"]  # Defined in `core.integrity`.

FORMAT = 3
"""Version of the workspace's layout and of the fingerprints in it; raised when older ones cannot be read."""
CHECKPOINTS, PARTS = "checkpoints", "parts"
"""Subfolders that an artifact has only while it is made."""
LOCK = ".lock"
"""File of a workspace whose lock every command shares."""
_FINGERPRINTED = ("corpora", "tokens", "stores", "examples", "collections", "stages", "sweeps")
"""Folders whose content depends on the format. Version 0.1 did not mark its workspaces."""
_LARGE = frozenset({"stores"})
_MIN_FREE_BYTES = 1 << 16
_LONGEST_NAME = 100
_NO_ARRAY = (
    FileNotFoundError,
    ValueError,
    TypeError,
    EOFError,
    OverflowError,
    SyntaxError,
    tokenize.TokenError,
    RecursionError,
)
"""What NumPy raises at a file that is no array; it parses the header as Python."""

FETCHING = "fetching"
"""Folder of what is on its way from the remote."""
STREAMED = "streamed"
"""Folder of the parts of artifacts that are read from the remote a part at a time."""

_claimed: set[Path] = set()
"""Workspaces whose marker this process has read or written."""
_published: set[tuple[Remote, str]] = set()
"""Artifacts that this process knows to be in a remote."""
_held: dict[Path, int] = {}
"""Locks that this process holds, with the thread that does."""


class Artifact(Protocol):
    """A frozen value that names a folder."""

    @property
    def kind(self) -> str:
        """The subfolder of the workspace that holds it: ``corpora``, ``stores``, ``stages``, …."""
        ...

    @property
    def label(self) -> str:
        """A short name for people who list the folder."""
        ...

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that identify what it is made of."""
        ...


@dataclasses.dataclass(frozen=True)
class Workspace:
    """The folder that holds everything a team has built: ``ROOT/<kind>/<label>-<fingerprint>/``.

    A file in it states its format. It is written when the first artifact's path is needed, before the
    artifact itself; a workspace of another format is refused.

    Attributes:
        root: The folder, which is a node's own where there is a remote.
        remote: Where artifacts are kept for all nodes. What is finished is published there, and what is
            missing in ``root`` is fetched when its path is asked for. None keeps everything in ``root``.
    """

    root: Path
    remote: Remote | None = None

    def check(self) -> None:
        """Refuse a workspace of another format; one that holds no artifacts yet is accepted.

        Raises:
            BadInput: Another version made the workspace.
        """
        # Looked at before the marker, which is always written first: so a process that starts meanwhile
        # and finds another one's artifacts finds the marker too.
        if self.root.exists() and not self.root.is_dir():
            raise BadInput(
                f"a workspace must be a folder that can be written, but {self.root} is a file. Give another "
                "--root."
            )
        holds = any((self.root / kind).exists() for kind in _FINGERPRINTED)
        made_by = _format_of(self.root)
        if made_by == FORMAT or (made_by is None and not holds):
            return
        what = f"has the format {made_by}" if made_by is not None else f"holds artifacts but no {MARKER}"
        version = "the version that made it" if made_by is not None else "version 0.1"
        raise BadInput(
            f"this version of stillhouse reads workspaces of format {FORMAT}, but {self.root} {what}. Give "
            f"another --root, or open it with {version}. Its exports and its MLflow database remain usable."
        )

    def claim(self) -> None:
        """Check the format, and write it down where the workspace is new.

        Raises:
            BadInput: Another version made the workspace.
        """
        marker = self.root / MARKER
        if self.root in _claimed and marker.exists():
            return
        try:
            self.check()
            if not marker.exists():
                write_json(marker, {"format": FORMAT})
        except OSError as error:
            raise BadInput(
                f"a workspace must be a folder that can be written, but {self.root} cannot be: "
                f"{error.strerror or error}. Give another --root."
            ) from None
        _claimed.add(self.root)

    def folder(self, kind: str) -> Path:
        """The folder of all artifacts of a kind, whether it exists or not."""
        self.claim()
        return self.root / kind

    def place(self, artifact: Artifact) -> Path:
        """The folder of an artifact, finished or not, as it is on this disk."""
        self.claim()
        return self.root / self.key(artifact)

    def path(self, artifact: Artifact) -> Path:
        """The folder of an artifact, finished or not; a finished one of the remote is fetched.

        Raises:
            Hindered: What the remote has is damaged, or it does not answer.
        """
        folder = self.place(artifact)
        self.obtain(artifact.kind, folder.name)
        return folder

    def finished(self, artifact: Artifact) -> bool:
        """Whether the artifact exists, here or in the remote, complete and with the bytes that were written.

        A damaged file is reported and put aside, so that the artifact counts as unfinished, or is fetched
        again. Stores may be larger than memory and than this disk: they are fetched, and their shards
        compared, when they are first read. What is finished here but not in the remote is published.
        """
        if self._is_whole(artifact):
            self.publish(artifact)
            return True
        if self.remote is None:
            return False
        if artifact.kind not in _LARGE:
            return self._is_whole(artifact)
        is_there = self.remote.has(self.key(artifact))
        if is_there:
            self._tidy(self.place(artifact))
        return is_there

    def _tidy(self, folder: Path) -> None:
        """Remove what a process left that was killed when it had published all, and not finished its own."""
        if folder.is_dir():
            with _unless_busy(lock_of(folder)) as free:
                if free:
                    remove_leftovers(folder)

    def _is_whole(self, artifact: Artifact) -> bool:
        """Whether the artifact is here, or was fetched, and undamaged; stores are not fetched for it."""
        if artifact.kind in _LARGE:
            return is_whole(self.place(artifact), contents=False)
        return is_whole(self.path(artifact), contents=True)

    def publish(self, artifact: Artifact) -> None:
        """Publish a finished artifact, unless there is no remote or it is there.

        Raises:
            Hindered: The remote does not take it.
        """
        key = self.key(artifact)
        if self.remote is None or (self.remote, key) in _published:
            return
        self.remote.publish(self.place(artifact), key)
        _published.add((self.remote, key))
        make_room(self.root, self.remote.has)

    def obtain(self, kind: str, name: str) -> None:
        """Fetch a finished artifact by its folder's name, if the remote has it and this node has not."""
        folder = self.root / kind / name
        if self.remote is not None:
            self.claim()
            use(folder)
            if not (folder / MANIFEST).exists():
                self._fetch(self.remote, folder)

    def key(self, artifact: Artifact) -> str:
        """The name of an artifact's folder in the remote."""
        return f"{artifact.kind}/{artifact.label}-{artifact.fingerprint}"

    def _fetch(self, remote: Remote, folder: Path) -> None:
        """Fetch an artifact, once for all processes of this node; what is being made here is left alone."""
        key = f"{folder.parent.name}/{folder.name}"
        if not remote.has(key):
            return
        scratch = self.root / FETCHING / key
        with locked(scratch.with_name(f"{scratch.name}.lock")), _unless_busy(lock_of(folder)) as free:
            # Another process may have fetched it meanwhile.
            if free and not (folder / MANIFEST).exists() and remote.fetch(key, folder, scratch):
                # A process may have been killed here when it had published all, and not finished its own.
                remove_leftovers(folder)
                remove_unfinished(folder)
                _published.add((remote, key))
        make_room(self.root, remote.has)

    def listed(self, kind: str) -> list[Path]:
        """Every artifact folder of a kind, finished or not, sorted by name."""
        self.check()
        folder = self.root / kind
        return sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []


def check_name(name: str, what: str) -> None:
    """Refuse a name that cannot be the name of a folder.

    Raises:
        BadInput: It is empty, longer than 100 characters, or has other characters than letters, digits,
            ``.``, ``-`` and ``_``.
    """
    good = len(name) <= _LONGEST_NAME and re.fullmatch(r"[\w-][\w.-]*", name) is not None
    if not good:
        raise BadInput(
            f"the name of {what} must be at most {_LONGEST_NAME} letters, digits, `-`, `_` and `.`, and not "
            f"begin with `.`, but got {name[:120]!r}."
        )


def _format_of(root: Path) -> Any:
    """The format that a workspace states; None if it does not say so."""
    try:
        return parse_json((root / MARKER).read_bytes())["format"]
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        return "unknown"


def default_root() -> Path:
    """``$STILLHOUSE_ROOT``, else ``./runs``; in a Ray job, which runs in a copy, ``~/stillhouse-runs``."""
    if "STILLHOUSE_ROOT" in os.environ:
        return Path(os.environ["STILLHOUSE_ROOT"])
    inside_ray_job = "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
    return Path.home() / "stillhouse-runs" if inside_ray_job else Path("runs")


def root_folder(root: Path | str | None) -> Path:
    """The absolute folder of a workspace: ``root``, else the default.

    Raises:
        BadInput: It is a URL, which would become a folder of that name.
    """
    folder = default_root() if root is None else Path(root)
    remedy = "Give a folder of this machine, and this address with --remote."
    check_no_url(folder, "the workspace must be a folder, not a URL", "root", remedy)
    return folder.resolve()


def check_no_url(
    path: Path, rule: str, given: str, remedy: str = "Give a path of this machine, and copy what is written."
) -> None:
    """Refuse a path that was given as a URL, which would become a folder of that name.

    Raises:
        BadInput: It is a URL.
    """
    scheme, colon, rest = str(path).partition(":/")  # A path has lost the second slash of `://`.
    url = bool(colon) and re.fullmatch(r"[A-Za-z][A-Za-z0-9.+-]+", scheme) is not None
    require(not url, rule, remedy=remedy, **{given: f"{scheme}://{rest.lstrip('/')}"})


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file completely or not at all: temporary file, fsync, rename, fsync of the folder.

    Raises:
        Hindered: The disk is full; the old file, if any, is untouched.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_array(path: Path, array: "npt.NDArray[Any]") -> None:
    """Write an array as ``.npy``, completely or not at all.

    Raises:
        Hindered: The disk is full.
    """
    import numpy as np  # Not needed by `--help` and other quick commands.

    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, array)


def mapped_array(path: Path) -> "npt.NDArray[Any]":
    """Map a ``.npy`` file of a finished artifact, after comparing its bytes once per process.

    Raises:
        Hindered: The file is missing, damaged, or the system refuses to open it.
    """
    import numpy as np  # Not needed by `--help` and other quick commands.

    intact(path)
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except _NO_ARRAY as error:
        raise Hindered(
            f"{path} must be a complete array, but: {error}. Remove the {MANIFEST} beside it and run the "
            "same command again: it makes what is missing."
        ) from None
    except OSError as error:
        raise blocked(path, error) from None
    return array


def whole_array(path: Path) -> "npt.NDArray[Any] | None":
    """Map a ``.npy`` file that no manifest names; None if there is none, and remove one that is no array.

    Raises:
        Hindered: The system refuses to open the file.
    """
    import numpy as np  # Not needed by `--help` and other quick commands.

    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return array
    except _NO_ARRAY:
        path.unlink(missing_ok=True)
        return None
    except OSError as error:
        raise blocked(path, error) from None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that durably replaces ``path`` when the block ends without an error.

    Raises:
        Hindered: The disk is full, or the system takes only a part of the file.
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
        if is_full_disk(error) or free_bytes(path.parent) < _MIN_FREE_BYTES:
            raise full_disk(path) from error
        if is_short_write(error):
            raise short_write(path) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what an artifact has only while it is made; call it when its manifest is written."""
    for name in (CHECKPOINTS, PARTS):
        shutil.rmtree(folder / name, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files and folders of a killed process; call it under the folder's lock."""
    for leftover in [*folder.glob(".*.tmp"), *folder.glob(".*.tmp-journal")]:  # the second are SQLite's
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Declare a folder finished; call it last, when everything else is on disk.

    The checksums of its files are added; what a killed writer left is removed.
    """
    remove_leftovers(folder)
    write_atomically(folder / MANIFEST, manifest_of(folder, content))


def manifest_of(folder: Path, content: dict[str, Any]) -> bytes:
    """Return the manifest that `write_manifest` writes."""
    files = sums_of(folder, known=stated_sums(content))
    return as_json({**content, **({FILES: files} if files else {})}).encode()


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a finished folder.

    Raises:
        BadInput: The manifest is missing or no JSON object.
    """
    manifest: dict[str, Any] = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict):
        raise BadInput(
            f"{folder / MANIFEST} must be a JSON object, but is a {type(manifest).__name__}. Remove it and "
            "run the command that made it again: it makes what is missing."
        )
    return manifest


def write_json(path: Path, content: object) -> None:
    """Write indented JSON atomically, keys in the order given, and secrets in strings replaced by ``***``."""
    write_atomically(path, as_json(content).encode())


def as_json(content: object) -> str:
    """Return what `write_json` writes."""
    return json.dumps(redacted_json(content), indent=2, ensure_ascii=False) + "\n"


def without_nan(content: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by null."""
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
        return parse_json(path.read_bytes())
    except FileNotFoundError:
        raise BadInput(
            f"{path} must exist, but it does not: this folder is unfinished or was removed."
        ) from None
    except ValueError as error:
        raise BadInput(
            f"{path} must be JSON, but reading it gave: {error}. Remove this file and run the same command "
            "again."
        ) from None
    except OSError as error:
        raise blocked(path, error) from None


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True, held: str = "") -> Iterator[None]:
    """Hold the lock of a file, which is created and left behind; it is free however this process ends.

    Raises:
        BadInput: Another process holds the lock and ``wait`` is False; ``held`` is the message.
    """
    with lock_file(path) as file:
        if not lock(file, ALONE):
            if not wait:
                raise BadInput(held or f"{path} must be free, but another process holds it.")
            with doing(f"waiting for another command, which makes {path.parent.name}/{path.stem}"):
                lock(file, ALONE, wait=True)
        _held[path] = threading.get_ident()
        try:
            yield
        finally:
            del _held[path]


@contextlib.contextmanager
def shared(
    path: Path, *, first: Callable[[], None], last: Callable[[], None], seconds: float
) -> Iterator[None]:
    """Hold a file lock together with others that share it, which keeps those out that want it for themselves.

    Args:
        path: The lock file, which is created and left behind.
        first: Called at the beginning, while no other process holds the lock in any way; not called where
            another one shares it.
        last: Likewise at the end.
        seconds: How long to wait for a process that holds it for itself.

    Raises:
        BadInput: Another process holds it for itself, and has not let go in time.
    """
    with lock_file(path) as file:
        if lock(file, ALONE):
            first()
        deadline = time.monotonic() + seconds
        while not lock(file, SHARED):
            if time.monotonic() > deadline:
                raise BadInput(f"{path} must be free, but another process holds it for itself.")
            time.sleep(0.1)
        try:
            yield
        finally:
            if lock(file, ALONE):
                last()


def lock_of_file(path: Path) -> Path:
    """Return the lock file of whoever writes a file."""
    return path.with_name(f".{path.name}.lock")


def lock_of(folder: Path) -> Path:
    """Return the lock file of whoever makes the artifact of a folder."""
    return folder.with_suffix(".lock")


@contextlib.contextmanager
def _unless_busy(path: Path) -> Iterator[bool]:
    """Hold a lock, unless this thread does already; yields False if another holds it."""
    if _held.get(path) == threading.get_ident():
        yield True
        return
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(path, wait=False))
        except BadInput:
            yield False
            return
        yield True


def remove(folder: Path) -> None:
    """Remove an artifact, its manifest first: what an interrupted removal leaves counts as unfinished."""
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def free_bytes(folder: Path) -> int:
    """Bytes that may still be written; some writers report a full disk only as a short write."""
    return shutil.disk_usage(folder).free


@functools.cache
def _umask() -> int:
    """The process's umask, read once: that takes setting it, which other threads would see."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
