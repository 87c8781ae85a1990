"""Vectors from elsewhere: finding the files, reading them batch by batch, and looking up texts.

A file is Parquet or Arrow (Feather, or a stream as `datasets` writes it) with a column of texts and one of
vectors, lists of floats. A text of ours and one of the files are the same if they are equal after
`corpora.reading.sentences.clean`: white space, control characters and composed letters do not count.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.core.roles import PLAIN, ROLES
from stillhouse.core.types import FloatArray, InRoles, IntArray
from stillhouse.corpora.reading.cleaning import clean
from stillhouse.corpora.reading.sources import SourceFile, list_files
from stillhouse.values.data import VectorFiles

TEXT_COLUMNS = ("text", "sentence", "content")
VECTOR_COLUMNS = ("embedding", "vector", "vectors", "embeddings")
ROLE_COLUMN = "role"
_SUFFIXES = (".parquet", ".arrow", ".feather", ".ipc")
_KIND = "source of vectors"
_SAMPLED = 1000
_BATCH = 4096
_SHOWN = 3
_LONGEST_SHOWN = 60
UNIT_TOLERANCE = 1e-2
"""How far from 1 the length of a vector may be that counts as 1: half precision keeps it within 1e-3."""
_SAME = 1e-2
"""Vectors of one text are equal if they differ by no more than this part of their length (cosine 0.99995):
an endpoint that is asked twice does not answer with the same bits."""
_REMEDY = "Repair the files"

Keys = npt.NDArray[np.uint64]
_hashed: dict[SourceFile, str] = {}
"""Hashes of files that this process has read."""


class NoVector(BadInput):
    """Texts have no vector in the files."""


@dataclass(frozen=True)
class _Columns:
    text: str
    vector: str
    role: str

    def used(self) -> list[str]:
        return [name for name in (self.text, self.vector, self.role) if name]


def find_vectors(
    source: str,
    *,
    text_column: str = "",
    vector_column: str = "",
    role_column: str = "",
    normalize: bool | None = None,
    dimension: int = 0,
    incomplete: bool = False,
    name: str = "",
) -> VectorFiles:
    """Find files of vectors, choose their columns, and see from a sample whether vectors have length 1.

    Args:
        source: A file, a folder, a glob, ``s3://…`` or ``gs://…``.
        text_column: Column of the texts; empty takes a usual one, or the only one of texts.
        vector_column: Column of the vectors; empty takes a usual one, or the only one of lists of floats.
        role_column: Column of the roles; empty takes ``role``, where there is one.
        normalize: Whether vectors have length 1: True divides each by its length, None finds out.
        dimension: Number of dimensions that are kept, the first ones; 0 keeps all.
        incomplete: Whether texts without a vector are left out; otherwise they are refused.
        name: What the vectors are called.

    Raises:
        BadInput: No such files or columns, files with other columns than the first, or too few dimensions.
    """
    system, files = _listed(source)
    columns = _Columns("", "", "")
    lengths: list[FloatArray] = []
    width = 0
    for file in files:
        with _batches(system, file.path) as (schema, batches):
            found = _columns(schema, file.path, text_column, vector_column, role_column)
            require(
                columns in (_Columns("", "", ""), found),
                "all files of vectors must have the same columns of texts, vectors and roles",
                first=columns.used(),
                other=found.used(),
                file=file.path,
            )
            columns = found
            sample_NE = _sample(batches, columns, file.path)
        if sample_NE is None:
            continue
        width = width or sample_NE.shape[1]
        _check_width(sample_NE.shape[1], width, file.path)
        lengths.append(np.linalg.norm(sample_NE, axis=1))
    if not width:
        raise BadInput(f"{source} must hold vectors, but every file is empty or has none. {_REMEDY}.")
    require(
        dimension <= width,
        "teacher.dimension <= dimensions of the vectors",
        dimension=dimension,
        dimensions=width,
    )
    unit = bool((np.abs(np.concatenate(lengths) - 1) <= UNIT_TOLERANCE).all())
    kept = dimension if dimension < width else 0
    return VectorFiles(
        sha256=_hash(system, files),
        columns=(columns.text, columns.vector, columns.role),
        normalize=unit if normalize is None else normalize,
        # As of a model: what has length 1 as a whole has it again when some dimensions are left out.
        rescaled=bool(unit and kept and normalize is not False) or bool(normalize and not unit),
        kept=kept,
        incomplete=incomplete,
        width=width,
        name=name or f"vectors of {_title(source)}",
        source=source,
    )


@dataclass
class Found:
    """The vectors that a pass over the files found for some texts.

    By role each distinct text has a vector, zero where there is none, and whether it is filled. Vectors of
    ``broken`` texts hold NaN, infinity, only zeros or nothing at all; ``twice`` counts texts with different
    ones. Of the rows, ``others`` were not asked for, and ``duplicates`` repeat the vector of their text.
    """

    vectors_NE: dict[str, npt.NDArray[np.float32]]
    filled_N: dict[str, npt.NDArray[np.bool_]]
    broken: "_Count" = field(default_factory=lambda: _Count())
    twice: "_Count" = field(default_factory=lambda: _Count())
    rows: int = 0
    others: int = 0
    duplicates: int = 0

    def of(self, rows: IntArray, role: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """The vectors of some texts of a role, and whether there are any; rows without a role serve any."""
        own, any_role = self.filled_N[role][rows], self.filled_N[PLAIN][rows]
        vectors = np.where(own[:, None], self.vectors_NE[role][rows], self.vectors_NE[PLAIN][rows])
        return vectors, own | any_role

    def check(self, vectors: VectorFiles) -> None:
        """Refuse broken vectors, and different vectors of one text.

        Raises:
            BadInput: There are any; broken ones are left out of files that may be incomplete.
        """
        if self.twice.number:
            remedy = "Keep one of them."
            if not vectors.columns[2]:
                remedy += " Where a text is a query and a document, say which in a column `role`."
            raise BadInput(
                f"a text must have one vector, but {self.twice} in {vectors.source} has several that differ. "
                f"{remedy}"
            )
        if self.broken.number and not vectors.incomplete:
            raise BadInput(
                f"vectors must be finite numbers and not all zero, but {self.broken} in {vectors.source} has "
                "NaN, infinity, only zeros or no vector. Remove these rows, and set teacher.incomplete=true "
                "to train without their texts."
            )


@dataclass
class _Count:
    """A number of texts, with the first of them."""

    number: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.number += 1
        if len(self.first) < _SHOWN:
            self.first.append(text)

    def __str__(self) -> str:
        return counted_texts(self.number, self.first)


def counted_texts(number: int, first: Sequence[str]) -> str:
    """``the text of 2 rows ('a cat', 'a dog')``: a number of texts, with examples."""
    shown = ", ".join(repr(text[:_LONGEST_SHOWN] + "…" * (len(text) > _LONGEST_SHOWN)) for text in first)
    more = ", …" if number > len(first) else ""
    return f"the text of {number:,} row{'s' * (number != 1)} ({shown}{more})"


def keys_of(texts: Sequence[str]) -> Keys:
    """Hash texts to 128 bits each, (N, 2), after cleaning them."""
    digests = b"".join(hashlib.blake2b(clean(text).encode(), digest_size=16).digest() for text in texts)
    return np.frombuffer(digests, np.uint64).reshape(-1, 2)


class TextIndex:
    """Distinct texts by their hashes, (N, 2); ``places`` has the number of the distinct text of each."""

    def __init__(self, keys: Keys) -> None:
        order = np.lexsort((keys[:, 1], keys[:, 0]))
        ordered = keys[order]
        new = np.ones(len(keys), bool)
        new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        self._keys = ordered[new]
        self.places = np.empty(len(keys), np.int64)
        self.places[order] = np.cumsum(new) - 1

    def __len__(self) -> int:
        """The number of distinct texts."""
        return len(self._keys)

    def find(self, keys: Keys) -> IntArray:
        """Return the number of each text, -1 for one that is none of these."""
        at = np.minimum(np.searchsorted(self._keys[:, 0], keys[:, 0]), len(self) - 1)
        return np.where((self._keys[at] == keys).all(axis=1), at, -1)


def look_up(
    vectors: VectorFiles,
    index: TextIndex,
    roles: Sequence[str],
    room: "Mapping[str, npt.NDArray[np.float32]] | None" = None,
) -> Found:
    """Read all files once, and collect the vectors of some texts.

    ``room`` is a zero array (distinct texts, E) per role, that of plain texts among them; None takes memory.

    Raises:
        BadInput: The files have changed since they were found, or a vector has another dimension or length.
    """
    system, files = _listed(vectors.source)
    if _hash(system, files) != vectors.sha256:
        raise BadInput(
            f"The files of vectors must be those that the plan names, but {vectors.source} has changed since "
            "this run began. Run the same command again, which makes a new store."
        )
    asked = dict.fromkeys((PLAIN, *roles))
    shape = (len(index), vectors.dimension)
    found = Found(
        vectors_NE={role: np.zeros(shape, np.float32) if room is None else room[role] for role in asked},
        filled_N={role: np.zeros(len(index), bool) for role in asked},
    )
    columns = _Columns(*vectors.columns)
    for file in files:
        with _batches(system, file.path, columns) as (_, batches):
            for batch in batches:
                _collect(found, batch, columns, vectors, index, file.path)
    return found


def _collect(
    found: Found, batch: Any, columns: _Columns, vectors: VectorFiles, index: TextIndex, path: str
) -> None:
    """Put the vectors of a batch of rows where they belong."""
    texts = batch[columns.text].to_pylist()
    keys = keys_of([text or "" for text in texts])
    at = index.find(keys)
    at[[text is None for text in texts]] = -1
    found.rows += len(texts)
    found.others += int((at < 0).sum())
    values_NE, good = _values(batch, columns, path)
    if good.any():
        _check_width(values_NE.shape[1], vectors.width, path)
    for row in np.flatnonzero(~good & (at >= 0)):
        found.broken.add(texts[row])
    values_NE = _prepared(values_NE, good, vectors, path)
    own_roles = batch[columns.role].to_pylist() if columns.role else [PLAIN] * len(texts)
    _check_roles(own_roles, path)
    for role in found.vectors_NE:
        rows = [r for r, own in enumerate(own_roles) if (own or PLAIN) == role and at[r] >= 0 and good[r]]
        if rows:
            _put(found, role, np.array(rows), at, values_NE, texts)


def _put(
    found: Found, role: str, rows: IntArray, at: IntArray, values_NE: FloatArray, texts: Sequence[str]
) -> None:
    """Keep the first vector of every text, and compare the others with it."""
    table, filled = found.vectors_NE[role], found.filled_N[role]
    places = at[rows]
    _, first = np.unique(places, return_index=True)
    first = first[~filled[places[first]]]
    table[places[first]] = values_NE[rows[first]]
    filled[places[first]] = True
    again = np.delete(np.arange(len(rows)), first)
    if not again.size:
        return
    kept, other = table[places[again]], values_NE[rows[again]]
    apart = np.linalg.norm(kept - other, axis=1) > _SAME * np.maximum(np.linalg.norm(kept, axis=1), 1e-12)
    found.duplicates += int((~apart).sum())
    for row in rows[again[apart]]:
        found.twice.add(texts[row])


class FilesEncoder(InRoles):
    """Files of vectors as an encoder: of texts that they have, whatever else is asked is refused."""

    def __init__(self, vectors: VectorFiles) -> None:
        self._vectors = vectors

    def encoded(self, role: str, texts: Sequence[str]) -> FloatArray:
        """Look up texts of a role, (N, E), in their order."""
        index = TextIndex(keys_of(texts))
        found = look_up(self._vectors, index, [role])
        found.check(self._vectors)
        vectors, there = found.of(index.places, role)
        if not there.all():
            missing = np.flatnonzero(~there)
            raise NoVector(
                f"every text must have a vector in {self._vectors.source}, but "
                f"{counted_texts(len(missing), [texts[row] for row in missing[:_SHOWN]])} has none."
            )
        return vectors


def _listed(source: str) -> tuple[Any, list[SourceFile]]:
    system, files, _ = list_files(source, _KIND)
    kept = [file for file in files if file.path.endswith(_SUFFIXES)]
    if not kept:
        raise BadInput(
            f"files of vectors must be {', '.join(_SUFFIXES)}, but {source} has none: "
            f"{', '.join(Path(file.path).name for file in files[:_SHOWN])}."
        )
    return system, kept


def _title(source: str) -> str:
    """The last part of a source that is a name and no pattern."""
    parts = [part for part in source.rstrip("/").split("/") if part and "*" not in part]
    return parts[-1] if parts else source


def _hash(system: Any, files: Sequence[SourceFile]) -> str:
    content = [_content_hash(system, file) for file in files]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()


def _content_hash(system: Any, file: SourceFile) -> str:
    """Hash a file, once per process for one size and time of change."""
    if file not in _hashed:
        digest = hashlib.sha256()
        with system.open_input_stream(file.path, compression=None) as stream:
            while block := stream.read(1 << 22):
                digest.update(block)
        _hashed[file] = digest.hexdigest()
    return _hashed[file]


@contextlib.contextmanager
def _batches(
    system: Any, path: str, columns: _Columns | None = None
) -> Iterator[tuple[pa.Schema, Iterator[Any]]]:
    """Open a file, and yield its schema and its rows, batch by batch."""
    try:
        with system.open_input_file(path) as file:
            magic = file.read(6)
            file.seek(0)
            if magic.startswith(b"PAR1"):
                table = pq.ParquetFile(file)
                used = columns.used() if columns else None
                yield table.schema_arrow, _checked(table.iter_batches(batch_size=_BATCH, columns=used))
            elif magic == b"ARROW1":
                reader = pa.ipc.open_file(file)
                batches = (reader.get_batch(at) for at in range(reader.num_record_batches))
                yield reader.schema, _checked(batches)
            else:
                stream = pa.ipc.open_stream(file)
                yield stream.schema, _checked(stream)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path} must be a complete Parquet or Arrow file, but reading it failed: {error}."
        ) from None


def _columns(schema: pa.Schema, path: str, text: str, vector: str, role: str) -> _Columns:
    strings = [each.name for each in schema if _is_text(each.type)]
    lists = [each.name for each in schema if _is_vector(each.type)]
    role = role or (ROLE_COLUMN if ROLE_COLUMN in strings else "")
    if role:
        _pick(schema, path, role, "role", (), strings)
    others = [name for name in strings if name != role]
    return _Columns(
        _pick(schema, path, text, "text", TEXT_COLUMNS, others),
        _pick(schema, path, vector, "vector", VECTOR_COLUMNS, lists),
        role,
    )


def _pick(
    schema: pa.Schema, path: str, given: str, what: str, usual: Sequence[str], fitting: list[str]
) -> str:
    """Choose a column: the one that is given, else the first usual one, else the only one of its type."""
    option = f"teacher.{what}_column"
    held = {"text": "texts", "vector": "lists of floats", "role": "texts"}[what]
    if given and given not in schema.names:
        raise BadInput(
            f"`{option}` must be a column of {path}, but got {given!r}. {nearest(given, list(schema.names))}"
        )
    if given and given not in fitting:
        raise BadInput(
            f"`{option}` must be a column of {held}, but {given!r} of {path} is {schema.field(given).type}."
        )
    found = given or next((name for name in usual if name in fitting), "")
    if not found and len(fitting) != 1:
        columns = ", ".join(f"{each.name} ({each.type})" for each in schema)
        raise BadInput(
            f"{path} must have a column of {held}, named {' or '.join(usual)} if there are several, but its "
            f"columns are: {columns}. Name it with {option}."
        )
    return found or fitting[0]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_vector(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(is_list and pa.types.is_floating(kind.value_type))


def _checked(batches: Iterable[Any]) -> Iterator[Any]:
    """Check each batch before it is computed with: offsets of a damaged file lead anywhere in memory."""
    for batch in batches:
        batch.validate(full=True)
        yield batch


def _sample(batches: Iterator[Any], columns: _Columns, path: str) -> npt.NDArray[np.float32] | None:
    """Read the first good vectors of a file; None if it has none."""
    for batch in batches:
        values_NE, good = _values(batch.slice(0, _SAMPLED), columns, path)
        if good.any():
            return values_NE[good]
    return None


def _values(
    batch: Any, columns: _Columns, path: str
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Return the vectors of a batch, (N, E), zero where they are not good, and whether each is good.

    A good vector is there, and its numbers are finite and not all zero: a vector of zeros has no direction.
    """
    column = batch[columns.vector]
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    widths = np.unique(lengths[lengths > 0])
    if len(widths) > 1:
        raise BadInput(
            f"all vectors must have one dimension, but {path} has vectors of {widths[0]} and of {widths[1]} "
            f"numbers. {_REMEDY}."
        )
    width = int(widths[0]) if len(widths) else 0
    there = np.asarray(column.is_valid()) & (lengths > 0)
    values_NE = np.zeros((len(column), width), np.float32)
    with np.errstate(over="ignore"):
        # A flattened list leaves null rows out; a null number becomes NaN.
        flat = column.filter(pa.array(there)).flatten().to_numpy(zero_copy_only=False)
        values_NE[there] = flat.astype(np.float32).reshape(int(there.sum()), width)
    good = there & np.isfinite(values_NE).all(axis=1) & values_NE.any(axis=1)
    values_NE[~good] = 0
    return values_NE, good


def _check_width(width: int, expected: int, path: str) -> None:
    if width != expected:
        raise BadInput(
            f"all vectors must have one dimension, but {path} has vectors of {width} numbers and others have "
            f"{expected}. {_REMEDY}, or name those of one model."
        )


def _check_roles(roles: Sequence[str | None], path: str) -> None:
    wrong = sorted({role for role in roles if role not in (None, PLAIN, *ROLES)}, key=str)
    if wrong:
        raise BadInput(
            f"a role must be one of {', '.join(ROLES)}, or empty for a text that serves any role, but {path} "
            f"has {wrong[:_SHOWN]}."
        )


def _prepared(
    values_NE: npt.NDArray[np.float32], good: npt.NDArray[np.bool_], vectors: VectorFiles, path: str
) -> npt.NDArray[np.float32]:
    """Leave dimensions out, and divide by the length, where the plan says so."""
    if vectors.kept:
        values_NE = values_NE[:, : vectors.kept]
    lengths = np.linalg.norm(values_NE, axis=1, keepdims=True)
    if vectors.rescaled:
        values_NE /= np.maximum(lengths, 1e-12)
        return values_NE
    odd = good & (np.abs(lengths[:, 0] - 1) > UNIT_TOLERANCE)
    if vectors.normalize and odd.any():
        raise BadInput(
            f"vectors must all have length 1 if the first ones have it, but {path} has one of length "
            f"{lengths[odd][0, 0]:.4g}. Set teacher.normalize=false to take the vectors as they are."
        )
    return values_NE
