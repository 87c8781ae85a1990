"""Files of vectors from elsewhere, which become the shards that a teacher's run would write.

All stores of the same files are imported in one pass. Nothing is written before every text has its vector.
"""

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from stillhouse.core.console import say
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import fingerprint
from stillhouse.core.roles import PLAIN
from stillhouse.corpora.reading.understood import Understood
from stillhouse.corpora.tables import Texts
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.kinds import TeacherKind
from stillhouse.teachers.shards import Shard, Work, write_shard
from stillhouse.teachers.vector_files import (
    FilesEncoder,
    Found,
    TextIndex,
    counted_texts,
    find_vectors,
    keys_of,
    look_up,
)
from stillhouse.values.data import VectorFiles

_WITHOUT = "the files of vectors have no vector of this text"
_SHOWN = 3


class Files(TeacherKind):
    """See `TeacherKind`."""

    def find(self, choice: TeacherChoice) -> VectorFiles:
        """Find the files, choose their columns, and see from a sample whether vectors have length 1."""
        return find_vectors(
            choice.vectors,
            text_column=choice.text_column,
            vector_column=choice.vector_column,
            role_column=choice.role_column,
            normalize=choice.normalize,
            dimension=choice.dimension,
            incomplete=choice.incomplete,
            name=choice.own_name,
        )

    def remarks(self, choice: TeacherChoice, teacher: VectorFiles) -> list[str]:
        """Say what was found out about the files."""
        text, vector, role = teacher.columns
        roles = f", their roles in {role!r}" if role else ""
        columns = f"texts in {text!r}, vectors in {vector!r}{roles}"
        return [f"{teacher.source}: {_form(teacher)}; {columns}"]

    def understood(self, teacher: VectorFiles) -> list[Understood]:
        """Describe the files as they were understood."""
        columns = zip(("text", "vector", "role"), teacher.columns, strict=True)
        roles = {role: column for role, column in columns if column}
        return [Understood(teacher.source, "files of vectors", note=_form(teacher), roles=roles)]

    def encoder(self, teacher: VectorFiles, max_length: int, device: str) -> tuple[FilesEncoder, None]:
        """Return the files as an encoder of the texts that they have."""
        return FilesEncoder(teacher), None

    def shards(
        self, works: list[Work], missing: list[tuple[int, int]], actors: int, told: Callable[[int, int], None]
    ) -> Iterator[tuple[int, Shard]]:
        """Import the shards of stores, those of the same files in one pass.

        Raises:
            BadInput: A text has no vector, or several, or the files cannot be read.
        """
        groups: dict[str, list[int]] = {}
        for number in dict.fromkeys(number for number, _ in missing):
            teacher = _vectors(works[number])
            groups.setdefault(fingerprint([teacher.sha256, *teacher.columns]), []).append(number)
        for numbers in groups.values():
            chosen = [(number, part) for number, part in missing if number in numbers]
            yield from _import_group({number: works[number] for number in numbers}, chosen)


def _import_group(works: Mapping[int, Work], missing: list[tuple[int, int]]) -> Iterator[tuple[int, Shard]]:
    """Import stores of the same files."""
    first = next(iter(works.values()))
    vectors = _vectors(first)
    tables = {number: Texts(work.texts_folder) for number, work in works.items()}
    keys = {
        number: [keys_of(table.shard(part)) for part in range(len(table.shard_starts))]
        for number, table in tables.items()
    }
    index = TextIndex(np.concatenate([key for each in keys.values() for key in each]))
    roles = list(dict.fromkeys((PLAIN, *(_vectors(work).role for work in works.values()))))
    with _room(first.folder, roles, (len(index), vectors.dimension)) as room:
        found = look_up(vectors, index, roles, room)
        found.check(vectors)
        places, start = {}, 0
        for number, each in keys.items():
            rows = sum(map(len, each))
            places[number], start = index.places[start : start + rows], start + rows
        lost = {
            number: _check_complete(work, tables[number], found, places[number])
            for number, work in works.items()
        }
        _report(vectors, found, sum(lost.values()))
        for number, part in missing:
            begun = time.perf_counter()
            work, starts = works[number], tables[number].shard_starts
            end = starts[part + 1] if part + 1 < len(starts) else len(tables[number])
            vectors_NE, there = found.of(places[number][starts[part] : end], _vectors(work).role)
            without = {int(row): _WITHOUT for row in np.flatnonzero(~there)}
            yield number, write_shard(work, part, vectors_NE, without, tokens=0, start=begun)


def _form(vectors: VectorFiles) -> str:
    length = "of length 1" if vectors.normalize else "not normalised"
    return f"{vectors.dimension} dimensions, {length}"


def _vectors(work: Work) -> VectorFiles:
    return cast(VectorFiles, work.store.teacher)


def _check_complete(work: Work, texts: Texts, found: Found, places: npt.NDArray[np.int64]) -> int:
    """Count the texts of a store without a vector, and refuse them unless they may be left out."""
    vectors = _vectors(work)
    there = found.filled_N[vectors.role][places] | found.filled_N[PLAIN][places]
    missing = np.flatnonzero(~there)
    if len(missing) and (not vectors.incomplete or len(missing) == len(there)):
        examples = counted_texts(len(missing), texts[missing[:_SHOWN]])
        of_role = f" for the role {vectors.role!r}" if vectors.role else ""
        remedy = (
            "The texts as they are asked for are the column `text` of "
            f"{work.texts_folder}/*.parquet: add their vectors"
        )
        if not vectors.incomplete:
            remedy += ", or leave them out with teacher.incomplete=true"
        raise BadInput(
            f"every text must have a vector in {vectors.source}{of_role}, but {examples} of {len(there):,} "
            f"in {work.store.label} has none. {remedy}."
        )
    return len(missing)


def _report(vectors: VectorFiles, found: Found, lost: int) -> None:
    left_out = f", {lost:,} texts left out without one" if lost else ""
    repeated = f", {found.duplicates:,} repeated" if found.duplicates else ""
    counts = f"{found.rows:,} vectors read, {found.others:,} of other texts"
    say(f"  {vectors.source}: {counts}{repeated}{left_out}")


@contextlib.contextmanager
def _room(
    folder: Path, roles: Sequence[str], shape: tuple[int, int]
) -> Iterator[dict[str, npt.NDArray[np.float32]]]:
    """Zero arrays in a file of a store's folder, which is removed: vectors may not fit into memory."""
    with contextlib.ExitStack() as files:
        room: dict[str, npt.NDArray[np.float32]] = {}
        for role in roles:
            file = files.enter_context(
                tempfile.NamedTemporaryFile(dir=folder, prefix=".import.", suffix=".tmp")
            )
            os.truncate(file.name, 4 * shape[0] * shape[1])
            if sys.platform == "linux":  # Otherwise a full disk would end the process without a word.
                os.posix_fallocate(file.fileno(), 0, 4 * shape[0] * shape[1])
            room[role] = np.memmap(file.name, np.float32, "r+", shape=shape)
        yield room
