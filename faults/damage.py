"""Damage to a file at rest, as power failures, bad disks and careless hands leave it."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path, random.Random], None]


def flip(path: Path, chance: random.Random) -> None:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    if content:
        bit = chance.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(content))


def truncate(path: Path, chance: random.Random) -> None:
    """Cut the file somewhere."""
    size = path.stat().st_size
    os.truncate(path, chance.randrange(size) if size else 0)


def empty(path: Path, chance: random.Random) -> None:
    """Leave a file of no bytes, as a file system does that had written the name and not the data."""
    os.truncate(path, 0)


def delete(path: Path, chance: random.Random) -> None:
    """Remove the file."""
    path.unlink()


def zeros(path: Path, chance: random.Random) -> None:
    """Overwrite a block with zeros, as a power failure does."""
    content = bytearray(path.read_bytes())
    first = chance.randrange(0, max(1, len(content)), 512)
    length = min(4096, len(content) - first)
    content[first : first + length] = bytes(length)
    path.write_bytes(bytes(content))


def garbage(path: Path, chance: random.Random) -> None:
    """Replace the content by random bytes of the same length."""
    path.write_bytes(chance.randbytes(path.stat().st_size))


def half_written(path: Path, chance: random.Random) -> None:
    """Leave the first half, and a temporary file of a killed writer beside it; a log is only appended to."""
    size = path.stat().st_size
    if path.suffix != ".jsonl":
        shutil.copyfile(path, path.with_name(f".{path.name}.abcdefgh.tmp"))
    os.truncate(path, size // 2)


def swap(path: Path, chance: random.Random) -> None:
    """Exchange the file with another one of its kind, or give it another file's content."""
    root = path.parent.parent.parent
    same = sorted(each for each in root.glob(f"*/*/*{path.suffix}") if each != path)
    named = [each for each in same if each.name == path.name]
    if not same:
        path.write_bytes(chance.randbytes(path.stat().st_size))
        return
    other = chance.choice(named or same)
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


DAMAGES: dict[str, Damage] = {
    "one bit flipped": flip,
    "truncated": truncate,
    "emptied": empty,
    "deleted": delete,
    "a block of zeros": zeros,
    "random bytes": garbage,
    "half written": half_written,
    "swapped with another": swap,
}
"""What can happen to any file, by name."""
FOUND_BY_CHECKSUMS = ("one bit flipped", "swapped with another")
"""What can leave a file that is read as another one, unless its checksum is known."""
