"""Changes to valid files and command lines, each a function of a random generator."""

import random
from collections.abc import Callable, Sequence

Change = Callable[[bytes, random.Random, Sequence[bytes]], bytes]

TOKENS = (
    *(b"", b"\0", b"\n", b"\r", b"\r\n", b"\t", b",", b'"', b'""', b"'", b"\\", b" ", b"\xef\xbb\xbf"),
    *(b"\xff\xfe", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\\ud800", b"\xe2\x80\xa8", b"\x1f\x8b", b"PAR1"),
    *(b"{", b"}", b"[", b"]", b":", b"- ", b"&a ", b"*a", b"!!python/object:os.system ", b"? ", b"<<: "),
    *(b"null", b"true", b"~", b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1", b"0", b"1e-400", b".5"),
    *(b"9" * 400, b"18446744073709551616", b"2147483648", b"0x1F", b"1_000", b"12:30:45", b"2001-01-01"),
    *(b"[" * 2000, b'{"a":' * 2000, b"<doc id=1>", b"</doc>", b"../", b"/", b"%s", b"{0}", b"a" * 5000),
)
"""What readers may stumble over."""


def flip(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Flip one bit."""
    changed = bytearray(content or b"\0")
    bit = chance.randrange(8 * len(changed))
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def replace(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Replace a few bytes by random ones."""
    first = chance.randrange(len(content) + 1)
    length = chance.randrange(1, 9)
    return content[:first] + chance.randbytes(length) + content[first + length :]


def cut(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Cut the end off."""
    return content[: chance.randrange(len(content) + 1)]


def remove(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Remove a part."""
    first = chance.randrange(len(content) + 1)
    return content[:first] + content[first + chance.randrange(1, 40) :]


def insert(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Insert something that readers may stumble over."""
    at = chance.randrange(len(content) + 1)
    return content[:at] + chance.choice(TOKENS) + content[at:]


def value(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Replace one of the parts between separators by something that readers may stumble over."""
    separators = [at for at, byte in enumerate(content) if byte in b' \n\t,:"[]{}']
    if len(separators) < 2:
        return insert(content, chance, others)
    at = chance.randrange(len(separators) - 1)
    return content[: separators[at] + 1] + chance.choice(TOKENS) + content[separators[at + 1] :]


def lines(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Repeat, drop or exchange whole lines."""
    parts = content.splitlines(keepends=True)
    if not parts:
        return insert(content, chance, others)
    at, to = chance.randrange(len(parts)), chance.randrange(len(parts))
    kind = chance.randrange(3)
    if kind == 0:
        parts.insert(to, parts[at])
    elif kind == 1:
        del parts[at]
    else:
        parts[at], parts[to] = parts[to], parts[at]
    return b"".join(parts)


def splice(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Continue with a part of another valid file."""
    other = chance.choice(others)
    return content[: chance.randrange(len(content) + 1)] + other[chance.randrange(len(other) + 1) :]


CHANGES: tuple[Change, ...] = (flip, replace, cut, remove, insert, value, value, lines, splice)


def mutated(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Make one to four changes to a valid content.

    Args:
        content: What is changed.
        chance: Decides what is changed.
        others: Valid contents of the same kind.
    """
    for _ in range(chance.randrange(1, 5)):
        content = chance.choice(CHANGES)(content, chance, others)
    return content


def rearranged(words: Sequence[str], chance: random.Random, others: Sequence[Sequence[str]]) -> list[str]:
    """Make one to four changes to the words of a valid command line; no word contains a zero byte."""
    changed = list(words)
    for _ in range(chance.randrange(1, 5)):
        at, kind = chance.randrange(len(changed) + 1), chance.randrange(6)
        if kind == 0 or at == len(changed):
            changed.insert(at, _word(chance.choice(TOKENS)))
        elif kind == 1:
            del changed[at]
        elif kind == 2:
            changed.insert(at, changed[at])
        elif kind == 3:
            changed[at] = _word(mutated(changed[at].encode("utf-8", "surrogateescape"), chance, [b"x"]))
        elif kind == 4:
            changed[at] = chance.choice([word for line in others for word in line])
        else:
            changed[at] = _word(chance.choice(TOKENS))
    return changed


def _word(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape").replace("\0", "")
