"""Passage vectors on disk: written part by part while passages stream by, read as memory maps.

    FOLDER/part-00000.npy, part-00001.npy, …    float32 (PART, D); the last part may be shorter

A part is written atomically, and an existing part is not encoded again, so an interrupted run resumes where
it stopped. The folder's name identifies the model and the passages; see `vectors_folder`.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stillhouse.core.artifacts import Workspace, remove_leftovers, sha256_of, whole_array, write_array
from stillhouse.core.errors import BadInput, blocked
from stillhouse.core.identity import fingerprint
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.corpora.published.judged import Entry, JudgedCollection
from stillhouse.evaluation.search.exact import TILE

PART = 2 * TILE
"""Passages per part. A part is encoded at once, since a model may round differently in another batch."""

FOLDER = "vectors"

Encode = Callable[[list[str]], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class PassageVectors:
    """Vectors in parts. Cheap to send to other processes: only the folder's name is sent."""

    folder: Path
    rows: int
    dim: int

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[FloatArray]:
        """Map the rows from ``start`` to ``stop``, in order, part by part."""
        stop = self.rows if stop is None else stop
        for first in range(start // PART * PART, stop, PART):
            part = _opened(part_path(self.folder, first // PART))
            yield part[max(start - first, 0) : stop - first]

    def gather(self, rows: IntArray) -> npt.NDArray[np.float32]:
        """Read the vectors of ascending ``rows``."""
        places = np.searchsorted(rows, np.arange(0, self.rows + PART, PART))
        parts = [
            _opened(part_path(self.folder, number))[rows[low:high] - number * PART]
            for number, (low, high) in enumerate(itertools.pairwise(places))
            if high > low
        ]
        return np.concatenate([np.empty((0, self.dim), np.float32), *parts])


def vectors_folder(workspace: Workspace, collection: JudgedCollection, model: str) -> Path:
    """Return the folder for the vectors of a collection's passages, whose file is hashed.

    ``model`` says all that determines a vector: the hash of the weights, and the device.
    """
    made_of = {"passages": sha256_of(collection.files[0]), "model": model, "part": PART, "version": 4}
    return workspace.root / FOLDER / f"{collection.name}-{fingerprint(made_of)}"


def write_vectors(
    folder: Path, passages: Iterable[Entry], encode: Encode
) -> tuple[PassageVectors, "pa.ChunkedArray"]:
    """Encode the passages that have no vector yet, with at most one part in memory.

    Returns:
        The files, and the passages' ids by row as an Arrow array.

    Raises:
        BadInput: If dimensions differ.
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
        dim = dim or part.shape[1]
        if part.shape[1] != dim:
            raise BadInput(
                f"all vectors of a model must have the same dimension, {dim}, but those in {path} have "
                f"{part.shape[1]}. Remove {folder} and run the same command again."
            )
        if not path.exists():
            write_array(path, np.ascontiguousarray(part, np.float32))
        ids.append(pa.array([entry.id for entry in entries], pa.large_string()))
        rows += len(entries)
    if not rows:
        raise BadInput("a collection must have passages to encode, but has none.")
    return PassageVectors(folder, rows, dim), pa.chunked_array(ids)


def part_path(folder: Path, number: int) -> Path:
    """Return the file of a part."""
    return folder / f"part-{number:05d}.npy"


def _kept(path: Path, rows: int) -> FloatArray | None:
    """Open a part of an earlier run; remove it if it has another length or was damaged."""
    part: FloatArray | None = whole_array(path)
    if part is None:
        return None
    if part.ndim == 2 and len(part) == rows and part.dtype == np.float32:
        return part
    path.unlink()
    return None


def _opened(path: Path) -> FloatArray:
    try:
        part: FloatArray = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise blocked(path, error) from None
        raise BadInput(
            f"{path} must be readable on every node that searches, but: {error}. Give a workspace that every "
            "node sees (--root), or search with --search-shards 1."
        ) from None
    return part
