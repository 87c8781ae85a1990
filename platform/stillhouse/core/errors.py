"""Errors that a user can fix, in one grammar: what must hold, what was given, what to do."""

import errno
import resource
from collections.abc import Callable, Mapping
from reprlib import Repr
from typing import Any

_REFUSALS = (errno.EACCES, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EROFS)
"""Answers of the operating system that concern the machine, not the command."""


class BadInput(ValueError):
    """A user's mistake, described in one message. The command line prints it and exits with code 2."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        """The message alone; Ray Data adds its own advice to the arguments of errors that workers raise."""
        return self.message


class Hindered(BadInput):
    """The command is right, but the workspace cannot serve it now: the disk is full, or a file is damaged.

    A trial that runs into this has not failed. The sweep ends, and the same command resumes it once the
    problem is fixed.
    """


def require(condition: bool, rule: str, /, *, remedy: str = "", **given: object) -> None:
    """Refuse a value that breaks a rule.

    Args:
        condition: Whether the rule holds.
        rule: A condition, such as ``temperature > 0``, or a clause with "must", such as ``a grid must list
            its values``.
        remedy: One sentence that says what to do.
        **given: The given values, by the names that the user knows.

    Raises:
        BadInput: "`condition` must hold, but got name=value. remedy"; a clause is printed as it is.
    """
    if condition:
        return
    got = ", ".join(f"{name}={_shown(value)}" for name, value in given.items())
    clause = rule if " must " in rule else f"`{rule}` must hold"
    raise BadInput(f"{clause}{f', but got {got}' if got else ''}.{f' {remedy}' if remedy else ''}")


_BRIEF = Repr()
_BRIEF.maxlevel, _BRIEF.maxother, _BRIEF.maxstring = 4, 400, 400
_BRIEF.maxlist = _BRIEF.maxtuple = _BRIEF.maxdict = _BRIEF.maxset = 24


def _shown(value: object) -> str:
    """Show a given value, however long or deep it is."""
    long = isinstance(value, str) and len(value) > _BRIEF.maxstring
    return _BRIEF.repr(value) if long or isinstance(value, list | tuple | dict) else repr(value)


_NO_MEMORY = (
    "can't allocate memory",
    "Cannot allocate memory",
    "can't start new thread",
    "failed to map segment from shared object",
)
"""What torch, the system, Python and its loader say where there is no more memory."""
_NO_PRIMITIVE = "could not create a primitive"
"""What oneDNN says then, and where it does not know an operation. Python raises a `SystemError` where memory
ended inside of compiled code that does not look."""


def mistake_in(error: BaseException | None) -> BadInput | None:
    """Find the user's mistake behind an error, or None if it is not a user's mistake.

    An error raised on a Ray worker arrives wrapped, with a traceback as its text; a full disk appears as
    whatever error the writing library raises. Where the system refuses a file or memory, the user can mend
    it.
    """
    while error is not None:
        inner = getattr(error, "cause", None)
        if isinstance(inner, BadInput):
            return inner
        if isinstance(error, BadInput):
            return error
        if is_full_disk(error):
            return full_disk(getattr(error, "filename", None) or "the workspace")
        if isinstance(error, OSError) and error.errno in _REFUSALS:
            return refused(error)
        if "attempt to write a readonly database" in str(error):
            return refused(OSError(errno.EROFS, "a database of it is read-only"))
        if isinstance(error, MemoryError) or _is_short_of_memory(error):
            return no_memory()
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            return too_long(error.filename)
        error = error.__cause__ or (inner if isinstance(inner, BaseException) else None)
    return None


def is_full_disk(error: BaseException) -> bool:
    """Whether an error means a full disk or an exhausted quota; compiled writers say so only in words."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return any(words in str(error) for words in ("No space left on device", "database or disk is full"))


def is_refused(error: OSError) -> bool:
    """Whether the system refuses a file or folder for good: a read-only disk, or missing permissions."""
    return error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)


def full_disk(path: object) -> Hindered:
    """Make the error for a file or folder that no longer fits on the disk."""
    return Hindered(
        f"there must be room on the disk for {path}, but it is full. Free some space and run the same "
        "command again: it resumes from here."
    )


def too_long(path: object) -> BadInput:
    """Make the error for a path that is longer than the file system allows."""
    text = str(path)
    shown = text if len(text) <= 60 else f"{text[:40]}…"
    return BadInput(
        f"each name in a path must have at most 255 bytes, but {shown!r} has {len(text)} characters. Give "
        "a shorter one."
    )


def refusing(check: Callable[[dict[str, Any]], object]) -> Callable[[Mapping[str, Any]], str]:
    """Turn a function that raises `BadInput` into one that returns the message, or an empty string."""

    def refusal(values: Mapping[str, Any]) -> str:
        try:
            check(dict(values))
        except BadInput as refused:
            return str(refused) or "refused"
        return ""

    return refusal


def blocked(path: object, error: OSError) -> Hindered:
    """Make the error for a file that the operating system does not let us read; the file may be good."""
    if error.errno == errno.ENOMEM:
        return no_memory()
    answer = error.strerror or error
    return Hindered(f"{path} must be readable, but the system answered: {answer}. {_remedy_of(error)}")


def refused(error: OSError) -> Hindered:
    """Make the error for a file that the operating system does not let us read, write or rename."""
    path, answer = error.filename or "every file of the workspace", error.strerror or error
    return Hindered(f"{path} must be accessible, but the system answered: {answer}. {_remedy_of(error)}")


def short_write(path: object) -> Hindered:
    """Make the error for a file of which the system took only a part."""
    return Hindered(
        f"{path} must be written as a whole, but the system took only a part of it. Check the disk, the "
        "quota and the limit of a file's size (`ulimit -f`), and run the same command again."
    )


def is_short_write(error: BaseException) -> bool:
    """Return whether torch found less in a file than it had written to it."""
    return isinstance(error, RuntimeError) and "inline_container" in str(error) and "pos" in str(error)


def _is_short_of_memory(error: BaseException) -> bool:
    said = str(error)
    if any(words in said for words in _NO_MEMORY):
        return True
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    return limited and (_NO_PRIMITIVE in said or isinstance(error, SystemError))


def out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error means that the machine or its GPU had no memory left."""
    while error is not None:
        if isinstance(error, MemoryError) or _is_short_of_memory(error) or "out of memory" in str(error):
            return True
        error = error.__cause__
    return False


def no_memory() -> Hindered:
    """Make the error for memory that the system refuses."""
    return Hindered(
        "there must be enough memory, but the system gave no more. End other programs, raise the limit "
        "(`ulimit -v`), or give smaller batches, and run the same command again: it resumes from here."
    )


def _remedy_of(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Too many files are open: raise the limit (`ulimit -n 4096`) and run the same command again."
    if error.errno == errno.EFBIG:
        return "Raise the limit of a file's size (`ulimit -f unlimited`) and run the same command again."
    if error.errno == errno.EROFS:
        return "Check the disk and the mount, or give another --root, and run the same command again."
    return "Check the disk, the mount and the permissions, and run the same command again."


def nearest(name: str, known: list[str]) -> str:
    """Suggest the names closest to a misspelt one, or list all of them when none is close."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(sorted(known))}."
