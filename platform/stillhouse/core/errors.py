"""One grammar for a user's mistakes: what must hold, what was given, what to do."""

import errno


class BadInput(ValueError):
    """A user's mistake, told in one message. The command line prints it and ends with exit code 2."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        """The message alone: Ray Data adds advice of its own to the arguments of what its workers raise."""
        return self.message


class Hindered(BadInput):
    """What was asked is right, but the workspace cannot serve it now: its disk is full, or a file is damaged.

    A trial that meets this has not failed: the sweep ends, and the same command goes on once it is mended.
    """


def require(condition: bool, rule: str, *, remedy: str = "", **given: object) -> None:
    """Refuse a value that breaks a rule.

    Args:
        condition: Whether the rule holds.
        rule: The rule as it would be written in code or words, such as ``temperature > 0``.
        remedy: One sentence that says what to do about it.
        **given: The values that were given, by the names the user knows them by.

    Raises:
        BadInput: "`rule` must hold, but got name=value. remedy"
    """
    if condition:
        return
    got = ", ".join(f"{name}={value!r}" for name, value in given.items())
    raise BadInput(f"`{rule}` must hold{f', but got {got}' if got else ''}.{f' {remedy}' if remedy else ''}")


def mistake_in(error: BaseException | None) -> BadInput | None:
    """The user's mistake behind an error, in our own words; None where there is none.

    A refusal on a Ray worker arrives wrapped, with a traceback for its text; a full disk shows itself in
    whatever library writes to it.
    """
    while error is not None:
        inner = getattr(error, "cause", None)
        if isinstance(inner, BadInput):
            return inner
        if isinstance(error, BadInput):
            return error
        if tells_of_full_disk(error):
            return full_disk(getattr(error, "filename", None) or "the workspace")
        error = error.__cause__ or (inner if isinstance(inner, BaseException) else None)
    return None


def tells_of_full_disk(error: BaseException) -> bool:
    """Whether an error says that the disk is full, or a quota spent; compiled writers do so in words."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return any(words in str(error) for words in ("No space left on device", "database or disk is full"))


def full_disk(path: object) -> Hindered:
    """The refusal to go on where there is no room for a file or folder."""
    return Hindered(
        f"there must be room on the disk for {path}, but it is full. Free some space and run the same "
        "command again: it goes on from here."
    )


def nearest(name: str, known: list[str]) -> str:
    """A remedy for a misspelt name: the near ones, or all of them when none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(sorted(known))}."
