"""Files that a user names for results: replaced whole where they are files, written in place where not.

``-`` is standard output. Devices, FIFOs and the shell's ``>(command)`` are written in place. A link stays,
and the file that it leads to is written. Artifacts are written by `core.artifacts.replacing`.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from stillhouse.core.artifacts import check_no_url, replacing
from stillhouse.core.console import result_stream
from stillhouse.core.errors import BadInput, require

STDOUT = Path("-")
_DESCRIPTORS = ("/dev/fd/", "/dev/std", "/proc/")
"""What these name is open already, even where it is a file."""


def is_file(path: Path) -> bool:
    """Return whether a path names a regular file, or one that can be made."""
    if path == STDOUT or str(path.absolute()).startswith(_DESCRIPTORS):
        return False
    return path.is_file() or not path.exists()


@contextlib.contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """Open what a user names for writing; a file appears whole when the block ends without an error.

    Raises:
        Hindered: The disk is full, or the system takes only a part of the file.
    """
    if path == STDOUT:
        stream = result_stream()
        yield stream
        stream.flush()
    elif is_file(path):
        with replacing(path.resolve()) as temporary, temporary.open("w", encoding="utf-8") as file:
            yield file
    else:
        with path.open("a", encoding="utf-8") as file:
            yield file


def check_directory() -> None:
    """Refuse a working directory that is gone: libraries would end the process, or blame another file."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise BadInput(
            "the working directory must exist, but it was removed. Change to another one."
        ) from None


def check_writable(path: Path, flag: str) -> None:
    """Refuse what could not be written at the end; the flag, such as ``--json``, is the message's.

    Raises:
        BadInput: It is a URL or a folder, cannot be written, or lies in something that cannot be.
    """
    given = flag.lstrip("-")
    check_no_url(path, f"{flag} must name a file, not a URL", given)
    require(not path.is_dir(), f"{flag} must name a file", **{given: str(path)}, remedy="It is a folder.")
    if path == STDOUT:
        return
    if not is_file(path):
        require(os.access(path, os.W_OK), f"{flag} must name what can be written", **{given: str(path)})
        return
    parent = next(each for each in path.resolve().parents if each.exists())
    try:
        tempfile.TemporaryFile(dir=parent).close()
    except OSError as error:
        raise BadInput(
            f"{flag} must name a file in a folder that can be written, but {parent} cannot be: "
            f"{error.strerror}. Give another file."
        ) from None
