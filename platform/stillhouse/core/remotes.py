"""Remotes: where the artifacts of a workspace are kept for every node, in object storage or a mounted folder.

A remote has the folders of a workspace. The files of an artifact are published under the hash of their
content, ``stages/<name>/<sha256[:16]>/<file>``. The manifest comes last, in a single write, and names each of
them with its checksum and its size: ``stages/<name>/manifest.json``. So a folder without a manifest is
unfinished, and two nodes that publish the same artifact at once cannot mix their files.
"""

import base64
import contextlib
import errno
import functools
import hashlib
import itertools
import json
import math
import os
import random
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from stillhouse.core.console import Progress, say
from stillhouse.core.errors import BadInput, Hindered, full_disk, is_full_disk
from stillhouse.core.integrity import MANIFEST, MARKER, QUARANTINE, sha256_of, stated_sums
from stillhouse.core.redaction import redacted, remember

T = TypeVar("T")

SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "file")
"""What an address may begin with; one without a scheme is a mounted folder."""

_FILES = "files"
_LOCAL = frozenset({"checkpoints", "workers", QUARANTINE})
"""Folders within artifacts that are of use to the node alone that made them."""
PATIENCE = "STILLHOUSE_REMOTE_WAIT"
"""Environment variable: seconds for which a remote that is away is asked again; 900 where it is unset."""
_WAITS = (0.5, 2.0, 8.0)
"""Seconds before the first repetitions of what failed for a reason that may pass."""
_LATER = 30.0
"""Seconds before each further one."""
_said_away = [-math.inf]
"""When this process last said that a remote is away."""
_ANSWER_SECONDS = 25.0
"""How long a remote may take to prove that it can be read and written."""
_AT_ONCE = 8
_BLOCK = 1 << 23
_DIGITS = 16

_FOR_GOOD = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR})
_NO_BUCKET = ("NO_SUCH_BUCKET", "NoSuchBucket", "ContainerNotFound", "bucket does not exist")
_NO_ACCESS = (
    *("ACCESS_DENIED", "AccessDenied", "INVALID_ACCESS_KEY", "InvalidAccessKeyId", "PERMISSION_DENIED"),
    *("SIGNATURE_DOES_NOT_MATCH", "INVALID_CLIENT_TOKEN_ID", "UNRECOGNIZED_CLIENT", "UNAUTHENTICATED"),
    *("MISSING_AUTHENTICATION_TOKEN", "EXPIRED_TOKEN", "ExpiredToken", "REQUEST_EXPIRED"),
    *("AuthenticationFailed", "AuthorizationFailure", "HTTP status 401", "HTTP status 403"),
)
_FULL = ("QuotaExceeded", "StorageFull", "InsufficientStorage", "RESOURCE_EXHAUSTED", "HTTP status 507")


class File(NamedTuple):
    """A file of a published folder."""

    sha256: str
    bytes: int

    def place(self, name: str) -> str:
        """Return where the file is, below the folder that it belongs to."""
        return f"{self.sha256[:_DIGITS]}/{Path(name).name}"


@dataclass(frozen=True)
class Remote:
    """A place that every node can reach; names in it are relative, such as ``stages/mse-0123456789abcdef``.

    Attributes:
        url: ``s3://bucket/folder``, ``gs://…``, ``az://container/folder``, ``abfs://…``, or a mounted folder.
            Settings are given as parameters (``?region=…&endpoint_override=…&scheme=http``) or by the usual
            environment variables of the storage.
    """

    url: str

    def __post_init__(self) -> None:
        """Hide the secrets of the address in what this process prints."""
        remember(self.url)

    def __reduce__(self) -> tuple[type["Remote"], tuple[str]]:
        """Make it anew in the process that unpickles it, which hides the secrets too."""
        return Remote, (self.url,)

    def __str__(self) -> str:
        """The address without its secrets."""
        return redacted(self.url)

    def __repr__(self) -> str:
        return f"Remote({str(self)!r})"

    def has(self, key: str) -> bool:
        """Return whether a published folder is complete."""
        path = self._path(f"{key}/{MANIFEST}")
        return bool(self._patiently(lambda: self._system.get_file_info(path)).is_file)

    def listed(self, key: str) -> dict[str, File] | None:
        """Return the files of a published folder by name; None if it is not there or not complete.

        Raises:
            Hindered: The manifest is damaged, or the remote does not answer.
        """
        data = self.read(f"{key}/{MANIFEST}")
        if data is None:
            return None
        try:
            content = json.loads(data)
            files = {name: File(**file) for name, file in content[_FILES].items()}
            for name, file in files.items():
                if not isinstance(file.sha256, str) or not isinstance(file.bytes, int) or "\0" in name:
                    raise ValueError(f"{name!r} has no checksum and size that can be read")
            outside = [name for name in files if Path(name).is_absolute() or ".." in Path(name).parts]
            if outside:
                raise ValueError(f"{outside[0]} would lie outside of its folder")
            return files
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self._damaged(key, MANIFEST, str(error)) from None

    def publish(self, folder: Path, key: str) -> None:
        """Publish the folder of a finished artifact, unless it is there: its files, then the manifest.

        Raises:
            Hindered: The remote does not take it. What is there counts as unfinished.
        """
        if self.has(key):
            return
        stated = stated_sums(json.loads((folder / MANIFEST).read_bytes()))
        found = {name: folder / name for name in files_in(folder)}
        files = {
            name: File(stated.get(name) or sha256_of(path), path.stat().st_size)
            for name, path in found.items()
        }
        self.put_all(found, files, key)
        self.complete(files, key)

    def put_all(self, paths: Mapping[str, Path], files: Mapping[str, File], key: str) -> None:
        """Send the files that the remote does not have yet; without `complete` nobody reads them."""
        there = self._sizes(key)
        missing = {name: file for name, file in files.items() if there.get(file.place(name)) != file.bytes}
        with _moving(f"publishing {key}", missing.values()) as moved:

            def send(name: str) -> None:
                self._send(paths[name], f"{key}/{missing[name].place(name)}", moved)

            _at_once(send, missing)

    def complete(self, files: Mapping[str, File], key: str) -> None:
        """Write the manifest of a published folder, all files of which are there."""
        described = {name: file._asdict() for name, file in files.items()}
        self.write(f"{key}/{MANIFEST}", json.dumps({_FILES: described}, indent=1).encode())

    def replace(self, paths: Mapping[str, Path], key: str) -> None:
        """Publish the files of a folder instead of those that it has in the remote.

        A reader finds either all the old ones or all the new ones. What the last manifest before this one
        names stays, since somebody may be reading it; what is older is removed.

        Raises:
            Hindered: The remote does not take them.
        """
        files = {name: File(sha256_of(path), path.stat().st_size) for name, path in paths.items()}
        before = self.listed(key) or {}
        if files == before:
            return
        self.put_all(paths, files, key)
        self.complete(files, key)
        needed = {file.place(name) for each in (files, before) for name, file in each.items()}
        for place in self._sizes(key).keys() - needed - {MANIFEST}:
            self.remove(f"{key}/{place}")

    def fetch(self, key: str, folder: Path, scratch: Path) -> bool:
        """Fetch a published folder: the manifest, then the files, whose checksums are compared, then renames.

        Files that are already in the folder with the right bytes are kept. The local manifest comes last.

        Args:
            key: The folder's name in the remote.
            folder: Where it will be; an unfinished one is completed. Call this under a lock.
            scratch: An own folder of the same disk for what is on its way; what a killed fetch left is used.

        Returns:
            Whether the remote has it.

        Raises:
            Hindered: A file is not what the manifest states, the remote does not answer, or the disk is full.
        """
        files = self.listed(key)
        while files is not None:
            try:
                self._fetch_files(files, key, folder, scratch)
                return True
            except Hindered:  # Perhaps since the folder has been published anew meanwhile.
                before, files = files, self.listed(key)
                if files == before:
                    raise
        return False

    def _fetch_files(self, files: Mapping[str, File], key: str, folder: Path, scratch: Path) -> None:
        left = {name: file for name, file in files.items() if not _is_same(folder / name, file)}
        coming = {name: file for name, file in left.items() if not _is_same(scratch / name, file)}
        _check_room(folder, sum(file.bytes for file in coming.values()))
        with _moving(f"fetching {key}", coming.values()) as moved:

            def receive(name: str) -> None:
                self._receive(key, name, coming[name], scratch / name, moved)

            _at_once(receive, coming)
        for name in sorted(left, key=lambda name: name == MANIFEST):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(scratch / name, folder / name)
        shutil.rmtree(scratch, ignore_errors=True)

    def fetch_file(self, key: str, name: str, file: File, to: Path) -> None:
        """Fetch one file of a published folder, completely or not at all, unless it is here.

        Call this under a lock, with what `listed` says of the file.

        Raises:
            Hindered: It is not what the manifest states, the remote does not answer, or the disk is full.
        """
        if _is_same(to, file):
            return
        scratch = to.with_name(f".{to.name}.tmp")
        with _moving(f"fetching {name} of {key}", [file]) as moved:
            self._receive(key, name, file, scratch, moved)
        os.replace(scratch, to)

    def read(self, name: str) -> bytes | None:
        """Read a small file; None if there is none."""

        def read() -> bytes:
            with self._system.open_input_stream(self._path(name)) as file:
                return bytes(file.read())

        try:
            return self._patiently(read)
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a small file in a single step: a reader finds all of it or nothing.

        A client that an exception passes completes the file with what it has, which may be nothing. Signals
        raise in the main thread alone, so another one writes.
        """
        _uncut(lambda: self._patiently(lambda: self._write(name, iter([data]))))

    def names(self, folder: str) -> list[str]:
        """List the files that lie directly in a folder, sorted; none if there is no folder."""
        return sorted(self.written(folder))

    def written(self, folder: str) -> dict[str, float]:
        """Return when each file that lies directly in a folder was written, in seconds since the epoch."""
        files = {name: info for name, info in self._listed(folder, recursive=False).items() if info.is_file}
        return {name: info.mtime_ns / 1e9 if info.mtime_ns else 0.0 for name, info in files.items()}

    def folders(self, folder: str) -> list[str]:
        """List the folders that lie directly in a folder, sorted."""
        found = self._listed(folder, recursive=False).items()
        return sorted(name for name, info in found if not info.is_file)

    def remove(self, name: str) -> None:
        """Remove a file or a folder, if it is there."""

        def remove() -> None:
            path = self._path(name)
            info = self._system.get_file_info(path)
            with contextlib.suppress(FileNotFoundError):
                if info.is_file:
                    self._system.delete_file(path)
                else:
                    self._system.delete_dir(path)

        self._patiently(remove)

    def check(self, workspace_format: int) -> None:
        """Refuse a remote that cannot be used, within half a minute, before any work is done for it.

        A new one is marked with the format of this version's workspaces.

        Raises:
            BadInput: It has no such bucket or folder, cannot be read and written with these credentials,
                is full, does not answer, or is of another format.
        """
        ended: list[Exception | None] = []

        def prove() -> None:
            try:
                self._prove(workspace_format)
                ended.append(None)
            except Exception as error:
                ended.append(error)

        # A thread, since a client that waits for the network hears neither signals nor deadlines.
        thread = threading.Thread(target=prove, daemon=True)
        thread.start()
        thread.join(_ANSWER_SECONDS)
        if not ended:
            raise BadInput(
                f"the remote {self} must answer, but did not within {_ANSWER_SECONDS:.0f} s. Check the "
                "address, the network and the credentials."
            )
        if isinstance(ended[0], OSError):
            raise self._explained(ended[0]) from None
        if ended[0] is not None:
            raise ended[0]

    def _prove(self, workspace_format: int) -> None:
        if self._is_mounted and not Path(self._path("")).is_dir():
            raise BadInput(
                f"a remote must be an address such as s3://bucket/folder or a folder that every node sees, "
                f"but there is no folder {self}. Mount it, or create it once."
            )
        probe, content = f".probe-{uuid.uuid4().hex}", b"stillhouse"
        self._write(probe, iter([content]))
        with self._system.open_input_stream(self._path(probe)) as file:
            if file.read() != content:
                raise BadInput(f"the remote {self} must return what was written, but gives other bytes.")
        self._system.delete_file(self._path(probe))
        marker = self.read(MARKER)
        if marker is None:
            self.write(MARKER, json.dumps({"format": workspace_format}).encode())
            return
        try:
            found = json.loads(marker)["format"]
        except (ValueError, TypeError, KeyError):
            found = "unknown"
        if found != workspace_format:
            raise BadInput(
                f"this version of stillhouse reads remotes of format {workspace_format}, but {self} has the "
                f"format {found!r}. Give another --remote."
            )

    @property
    def _system(self) -> Any:
        return _opened(self.url, os.getpid())[0]

    @property
    def _is_mounted(self) -> bool:
        return _scheme(self.url) == "file"

    def _path(self, name: str) -> str:
        base = _opened(self.url, os.getpid())[1].rstrip("/")
        return f"{base}/{name}" if name else base or "/"

    def _sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files below a folder, by their names in it."""
        found = self._listed(folder, recursive=True)
        return {name: info.size for name, info in found.items() if info.is_file}

    def _listed(self, folder: str, *, recursive: bool) -> dict[str, Any]:
        from pyarrow import fs

        base = self._path(folder)
        selector = fs.FileSelector(base, recursive=recursive, allow_not_found=True)
        found = self._patiently(lambda: self._system.get_file_info(selector))
        return {info.path[len(base) + 1 :].rstrip("/"): info for info in found}

    def _send(self, path: Path, name: str, moved: Callable[[int], None]) -> None:
        sent = 0

        def blocks() -> Iterator[bytes]:
            nonlocal sent
            moved(-sent)
            sent = 0
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    yield block
                    sent += len(block)
                    moved(len(block))

        self._patiently(lambda: self._write(name, blocks()))

    def _write(self, name: str, blocks: Iterator[bytes]) -> None:
        path = self._path(name)
        if not self._is_mounted:
            size = 0
            with self._system.open_output_stream(path) as file:
                for block in blocks:
                    file.write(block)
                    size += len(block)
            kept = self._system.get_file_info(path).size
            # A client may take a wrong answer for success, or repeat a request without its body.
            if kept != size:
                raise OSError(f"it was given {size} bytes of {name} and has {kept or 'none'}")
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("wb") as file:
                for block in blocks:
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _receive(self, key: str, name: str, file: File, to: Path, moved: Callable[[int], None]) -> None:
        """Fetch a file and compare its checksum; a first difference may be of the way, a second is not."""
        source = f"{key}/{file.place(name)}"
        for _ in range(2):
            try:
                digest = self._patiently(lambda: self._copy(source, to, file.bytes, moved))
            except FileNotFoundError:
                raise self._damaged(key, name, "it is missing") from None
            if digest == file.sha256:
                return
            moved(-to.stat().st_size)
        to.unlink(missing_ok=True)
        raise self._damaged(key, name, "its bytes are others than those that were published")

    def _copy(self, source: str, to: Path, size: int, moved: Callable[[int], None]) -> str:
        """Copy a file to this disk, and no more than shows that it is too long; returns the checksum."""
        digest, received = hashlib.sha256(), 0

        def blocks(stream: Any) -> Iterator[bytes]:
            nonlocal received
            while received <= size and (block := stream.read(_BLOCK)):
                digest.update(block)
                received += len(block)
                moved(len(block))
                yield block

        try:
            with self._system.open_input_stream(self._path(source)) as stream:
                incoming = blocks(stream)
                first = next(incoming, b"")
                with _own_disk(to):
                    to.parent.mkdir(parents=True, exist_ok=True)
                    file = to.open("wb")
                with file:
                    for block in itertools.chain([first], incoming):
                        with _own_disk(to):
                            file.write(block)
                    with _own_disk(to):
                        file.flush()
                        os.fsync(file.fileno())
        except OSError:
            moved(-received)
            raise
        return digest.hexdigest()

    def _patiently(self, action: Callable[[], T]) -> T:
        """Do something, and again after a while if it fails for a reason that may pass.

        Raises:
            FileNotFoundError: What is asked for is not there.
            Hindered: It keeps failing, or fails for a reason that will not pass.
        """
        waits = iter(_waits())
        while True:
            try:
                return action()
            except FileNotFoundError:
                raise
            except OSError as error:
                wait = next(waits, None)
                if wait is None or not _may_pass(error):
                    raise self._explained(error) from error
                if wait == _LATER:
                    _say_away(str(self), redacted(str(error)))
            time.sleep(wait * (1 + random.random() / 2))

    def _explained(self, error: OSError) -> Hindered:
        answer = redacted(" ".join((error.strerror or str(error)).split()))
        text = str(error)
        if is_full_disk(error) or any(words in text for words in _FULL):
            return Hindered(
                f"there must be room in the remote {self}, but it is full ({answer}). Free some and run the "
                "same command again: it resumes from here."
            )
        if any(words in text for words in _NO_BUCKET):
            return Hindered(
                f"the bucket of the remote {self} must exist, but it does not ({answer}). Create it, or "
                "correct the address."
            )
        if error.errno in _FOR_GOOD or any(words in text for words in _NO_ACCESS):
            return Hindered(
                f"the remote {self} must be readable and writable with the credentials at hand, but it "
                f"refuses: {answer}. Check the credentials and the permissions: list, read, write and delete "
                "are needed."
            )
        return Hindered(
            f"the remote {self} must answer, but: {answer}. Check the address, the network and the "
            "credentials, and run the same command again: it resumes from here."
        )

    def _damaged(self, key: str, name: str, problem: str) -> Hindered:
        return Hindered(
            f"the files of an artifact must be those that its manifest names, but {name} of {self}/{key} is "
            f"not: {problem}. Remove that folder from the remote and run the same command again: it makes "
            "what is missing."
        )


def remote_at(url: str) -> Remote | None:
    """Return the remote at an address; None for an empty one.

    Raises:
        BadInput: It is no address that can be used.
    """
    if not url:
        return None
    remember(url)
    scheme = _scheme(url)
    if scheme not in SCHEMES:
        raise BadInput(
            f"the address of a remote must begin with {', '.join(f'{each}://' for each in SCHEMES)} or be a "
            f"mounted folder, but is {redacted(url)!r}. Give it with --remote."
        )
    rest = url.partition("://")[2].partition("?")[0]
    if scheme != "file" and not rest.partition("/")[0]:
        raise BadInput(
            f"the address of a remote must name a bucket, such as {scheme}://bucket/folder, but is "
            f"{redacted(url)!r}. Give it with --remote."
        )
    return Remote(url if scheme != "file" else f"file://{_folder(url)}")


def default_remote() -> str:
    """``$STILLHOUSE_REMOTE``, else an empty string, which is none."""
    return os.environ.get("STILLHOUSE_REMOTE", "")


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower() if "://" in url else "file"


def _folder(url: str) -> Path:
    """Return the absolute path of a mounted folder."""
    path = unquote(urlsplit(url).path) if "://" in url else url
    return Path(path).expanduser().absolute()


@functools.lru_cache(maxsize=16)
def _opened(url: str, process: int) -> tuple[Any, str]:
    """Open the file system of an address, once per process: its clients do not survive a fork.

    Raises:
        BadInput: It is no address that can be used.
    """
    from pyarrow import ArrowException, fs

    scheme, (_, _, rest) = _scheme(url), url.partition("://")
    if scheme == "file":
        return fs.LocalFileSystem(), str(_folder(url))
    try:
        if scheme in ("az", "abfs", "abfss") and "@" not in rest:
            # As other clients do; pyarrow itself takes the account from the address alone.
            return _azure(), rest.partition("?")[0]
        system, path = fs.FileSystem.from_uri(f"abfs://{rest}" if scheme == "az" else url)
        return system, str(path)
    except (ValueError, OSError, ArrowException) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(
            f"the address of a remote must be one that can be opened, but {redacted(url)!r} is not: "
            f"{redacted(str(error))}"
        ) from None


def _azure() -> Any:
    from pyarrow import fs

    names = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
    account = next((os.environ[name] for name in names if name in os.environ), "")
    keys = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
    key = next((os.environ[name] for name in keys if name in os.environ), None)
    if not account:
        raise BadInput(
            "an az:// remote must have an account, but neither the address nor AZURE_STORAGE_ACCOUNT names "
            "one. Set that variable, or give abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER."
        )
    # pyarrow ends the process over either of them.
    if not re.fullmatch(r"[a-z0-9]{3,24}", account):
        raise BadInput(
            f"AZURE_STORAGE_ACCOUNT must be 3 to 24 lower-case letters and digits, but is {account!r}."
        )
    try:
        base64.b64decode(key or "", validate=True)
    except ValueError:
        raise BadInput("AZURE_STORAGE_KEY must be base64, as Azure gives it, but is not.") from None
    return fs.AzureFileSystem(account_name=account, account_key=key)


def files_in(folder: Path) -> Iterator[str]:
    """Iterate over the names of the files of a folder that other nodes need."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in inside.parts)
        if path.is_file() and not hidden and path.suffix != ".lock" and inside.parts[0] not in _LOCAL:
            yield inside.as_posix()


def _is_same(path: Path, file: File) -> bool:
    """Return whether a file is there with the right bytes."""
    try:
        return path.stat().st_size == file.bytes and sha256_of(path) == file.sha256
    except (FileNotFoundError, NotADirectoryError):
        return False


def _check_room(folder: Path, needed: int) -> None:
    """Refuse to begin what this disk has no room for.

    Raises:
        Hindered: Less is free than is needed.
    """
    there = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise Hindered(
            f"there must be room on the disk for the {needed / 1e9:,.2f} GB of {folder}, but "
            f"{free / 1e9:,.2f} GB are free. Free some space, or give a --root on a larger disk. A training "
            "reads a store from the remote, a few shards at a time, with --set budget.shard_window=64."
        )


def _waits() -> Sequence[float]:
    """Seconds before each repetition."""
    later = max(0.0, float(os.environ.get(PATIENCE) or 900) - sum(_WAITS)) // _LATER
    return [*_WAITS, *[_LATER] * int(later)]


def _say_away(remote: str, answer: str) -> None:
    """Say it once in five minutes: transfers wait side by side."""
    if time.monotonic() - _said_away[0] > 10 * _LATER:
        _said_away[0] = time.monotonic()
        say(f"the remote {remote} does not answer ({answer}): asking again every half a minute")


def _may_pass(error: OSError) -> bool:
    text = str(error)
    return error.errno not in _FOR_GOOD and not any(
        words in text for words in (*_NO_BUCKET, *_NO_ACCESS, *_FULL)
    )


def _at_once(action: Callable[[str], None], names: Iterable[str]) -> None:
    """Do something for several files at once; the first error is raised when those that run have ended."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="remote") as pool:
        jobs = [pool.submit(action, name) for name in names]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _uncut(action: Callable[[], None]) -> None:
    """Do something in a thread of its own, where no signal raises, and return when it has ended.

    An executor, and `Thread.join`, may leave a thread alone that a signal interrupts them at starting or
    waiting for.
    """
    ended, errors = threading.Event(), list[BaseException]()

    def act() -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=act, name="remote")
    try:
        thread.start()
        ended.wait()
    except BaseException:
        if thread.ident is not None:
            ended.wait()
        raise
    if errors:
        raise errors[0]


@contextlib.contextmanager
def _moving(what: str, files: Iterable[File]) -> Iterator[Callable[[int], None]]:
    """Yield what counts moved bytes, and says every few seconds how far a long transfer is."""
    progress, total, done, lock = Progress(what, "MB"), sum(file.bytes for file in files), 0, threading.Lock()

    def moved(number: int) -> None:
        nonlocal done
        with lock:
            done += number
            if done < total:  # Short transfers need no line.
                progress(done // 1_000_000, -(-total // 1_000_000))

    yield moved


@contextlib.contextmanager
def _own_disk(path: Path) -> Iterator[None]:
    """Tell what this disk refuses from what the remote refuses.

    Raises:
        Hindered: The disk is full, or does not take the file.
    """
    try:
        yield
    except OSError as error:
        if is_full_disk(error):
            raise full_disk(path) from error
        raise Hindered(
            f"{path} must be written, but the system answered: {error.strerror or error}. Check the disk, "
            "the mount and the permissions, and run the same command again."
        ) from error
