"""Passage vectors on the disk: written a part at a time as the passages stream by, read as memory maps.

    FOLDER/part-00000.npy, part-00001.npy, …    float32 (PART, D), of the last part what is left

A part is there whole or not at all, and a part that is there is not encoded again: so an interrupted run goes
on where it ended. The folder's name tells the model and the passages apart; see `vectors_folder`.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stillhouse.core.artifacts import Workspace, remove_leftovers, sha256_of, write_array
from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import fingerprint
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.corpora.published.judged import Entry, JudgedCollection
from stillhouse.evaluation.search.exact import TILE, finite

PART = 2 * TILE
"""Passages a part, and those that are encoded at once; a model may round differently in another company."""

SHELF = "vectors"

Encode = Callable[[list[str]], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class VectorFiles:
    """Vectors in parts. Sent to other processes by value: only the folder's name travels.

    Attributes:
        folder: Where the parts lie.
        rows: Passages.
        dim: D.
    """

    folder: Path
    rows: int
    dim: int

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[FloatArray]:
        """Memory maps of the rows from ``start`` to ``stop``, in order, each within a part."""
        stop = self.rows if stop is None else stop
        for first in range(start // PART * PART, stop, PART):
            part = _opened(part_path(self.folder, first // PART))
            yield part[max(start - first, 0) : stop - first]

    def gather(self, rows: IntArray) -> npt.NDArray[np.float32]:
        """The vectors of ascending ``rows``."""
        places = np.searchsorted(rows, np.arange(0, self.rows + PART, PART))
        parts = [
            _opened(part_path(self.folder, number))[rows[low:high] - number * PART]
            for number, (low, high) in enumerate(itertools.pairwise(places))
            if high > low
        ]
        return np.concatenate([np.empty((0, self.dim), np.float32), *parts])


def vectors_folder(workspace: Workspace, collection: JudgedCollection, model: str) -> Path:
    """Where the vectors of a collection's passages lie.

    Args:
        workspace: The workspace.
        collection: Its passages; their file is hashed.
        model: All that decides a vector: the hash of the weights, and the device.
    """
    made_of = {"passages": sha256_of(collection.files[0]), "model": model, "part": PART, "version": 1}
    return workspace.root / SHELF / f"{collection.name}-{fingerprint(made_of)}"


def write_vectors(
    folder: Path, passages: Iterable[Entry], encode: Encode
) -> tuple[VectorFiles, "pa.ChunkedArray"]:
    """Encode the passages that have no vector yet; at no time are more than a part's in memory.

    Args:
        folder: Where the parts are written.
        passages: In the order of their rows.
        encode: Texts to float32 vectors.

    Returns:
        The files, and the passages' ids by row, in Arrow's compact form.

    Raises:
        BadInput: A vector that is not finite, with the passage's id, or dimensions that differ.
    """
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    remaining, rows, dim = iter(passages), 0, 0
    ids: list[Any] = []
    while entries := list(itertools.islice(remaining, PART)):
        path = part_path(folder, len(ids))
        part = _kept(path, len(entries))
        if part is None:
            part = encode([entry.text for entry in entries])
            _check(part, entries)
        dim = dim or part.shape[1]
        require(
            part.shape[1] == dim,
            "all vectors of a model have one dimension",
            dimension=dim,
            file=str(path),
            got=part.shape[1],
            remedy=f"Remove {folder}, and run the same command again.",
        )
        if not path.exists():
            write_array(path, np.ascontiguousarray(part, np.float32))
        ids.append(pa.array([entry.id for entry in entries], pa.large_string()))
        rows += len(entries)
    require(rows > 0, "there are passages to encode", folder=str(folder))
    return VectorFiles(folder, rows, dim), pa.chunked_array(ids)


def part_path(folder: Path, number: int) -> Path:
    """The file of a part."""
    return folder / f"part-{number:05d}.npy"


def _kept(path: Path, rows: int) -> FloatArray | None:
    """A part of an earlier run; one of another length, or that cannot be read, is removed."""
    if not path.exists():
        return None
    try:
        part: FloatArray = np.load(path, mmap_mode="r")
    except (OSError, ValueError):
        part = np.empty((0, 0), np.float32)
    if part.ndim == 2 and len(part) == rows and part.dtype == np.float32:
        return part
    path.unlink()
    return None


def _check(part: FloatArray, entries: list[Entry]) -> None:
    shape = part.shape
    require(part.ndim == 2 and len(part) == len(entries), "a model gives a vector a text", shape=shape)
    bad = np.flatnonzero(~np.isfinite(part).all(axis=1))
    if len(bad):
        first = entries[bad[0]]
        finite(part, f"vectors (passage {first.id!r}, line {first.line} of its file, and others)")


def _opened(path: Path) -> FloatArray:
    try:
        part: FloatArray = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{path} must be readable where passages are searched, but: {error}. Give a workspace that every "
            "node sees (--root), or search with --search-shards 1."
        ) from None
    return part
