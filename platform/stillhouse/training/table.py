"""The training table: examples as integer ids, over memory-mapped tokens and teacher vectors."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput, require
from stillhouse.core.roles import Reading
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.core.types import Batch, Encoding, FloatArray, IntArray, Tokens, ValueArray
from stillhouse.corpora.tables import count_rows, open_rows, open_values
from stillhouse.corpora.tokens import TokenReader, open_tokens
from stillhouse.teachers.store import open_vectors
from stillhouse.values.data import AllRows, Examples, Model, Runs, TextTable, TokenTable
from stillhouse.values.stage import Stage

_NONE: IntArray = np.zeros(0, np.int64)


class EveryRow:
    """The ids of every row of a table but a few; read like an array of ids in ascending order, (N,).

    A thousand million ids are 8 GB as an array, which each trial and rank would hold. The few are in
    ascending order too, and distinct.
    """

    ndim = 1

    def __init__(self, rows: int, lacking: IntArray = _NONE) -> None:
        self._rows, self._lacking = rows, lacking
        self._kept_before = lacking - np.arange(len(lacking))

    def __len__(self) -> int:
        """The number of ids."""
        return self._rows - len(self._lacking)

    def __getitem__(self, places: IntArray) -> npt.NDArray[np.int64]:
        """Return the ids at some places.

        Raises:
            IndexError: If a place is negative or too large.
        """
        places = np.asarray(places, np.int64)
        if places.size and not (0 <= places.min() and places.max() < len(self)):
            raise IndexError(f"places must be in [0, {len(self)}), but got {places.min()}..{places.max()}")
        ids: npt.NDArray[np.int64] = places + np.searchsorted(self._kept_before, places, side="right")
        return ids

    def places_of(self, ids: IntArray) -> npt.NDArray[np.int64]:
        """Return how many ids are smaller than each of some."""
        places: npt.NDArray[np.int64] = ids - np.searchsorted(self._lacking, ids)
        return places

    def without(self, lacking: IntArray) -> "EveryRow":
        """The same without further rows; ids that are left out already may be among them."""
        return EveryRow(self._rows, np.union1d(self._lacking, lacking))


RowIds = IntArray | EveryRow
"""Ids of rows by example: an array, (N,) or (N, K), or all ids of a table."""


class TokenColumn(Protocol):
    """A reader of token ids."""

    def lengths_of(self, rows: IntArray) -> IntArray:
        """Return the number of tokens of some rows."""
        ...

    def padded(self, rows: IntArray) -> Tokens:
        """Return the tokens of some rows, padded on the right."""
        ...


class TeacherColumn(Protocol):
    """A reader of teacher vectors."""

    @property
    def dim(self) -> int:
        """E."""
        ...

    @property
    def lacking(self) -> IntArray:
        """The rows that have no vector, ascending."""
        ...

    @property
    def starts(self) -> IntArray:
        """The first row of every shard, ascending."""
        ...

    def expect(self, rows_N2: IntArray) -> None:
        """Learn which rows are read next, by the first and the last of each run."""
        ...

    def gather(self, rows: IntArray) -> FloatArray:
        """Return the float32 teacher vectors of some rows."""
        ...


class TrainingTable:
    """Examples by column, as ids into token tables and, if a teacher is read, into its vectors.

    Args:
        rows: Column name to ids, (N,) or (N, K).
        tokens: Column name to its tokens.
        stores: Column name to its teacher vectors; may have fewer columns.
        values: Labels, scores or logits of the examples by name, (N,) or (N, C).
        live_tokens: Column name to the tokens of a live teacher that has tokens of its own.

    Attributes:
        rows: The ids that are kept.
        values: The values of the examples that are kept.
        dropped: Number of examples left out because one of their texts has no teacher vector.
    """

    def __init__(
        self,
        rows: Mapping[str, RowIds],
        tokens: Mapping[str, TokenColumn],
        stores: Mapping[str, TeacherColumn],
        values: Mapping[str, ValueArray] | None = None,
        live_tokens: Mapping[str, TokenColumn] | None = None,
    ) -> None:
        given = len(next(iter(rows.values())))
        self.rows, self.values = _with_vectors(rows, dict(values or {}), stores)
        self.dropped = given - len(self)
        self.tokens, self.stores = dict(tokens), dict(stores)
        self.live_tokens = dict(live_tokens or {})

    def __len__(self) -> int:
        """The number of examples."""
        return len(next(iter(self.rows.values())))

    @property
    def teacher_dim(self) -> int | None:
        """The dimension of the teacher's vectors; None if no teacher is read."""
        dims = {column: store.dim for column, store in self.stores.items()}
        if len(set(dims.values())) > 1:
            raise BadInput(
                f"The teacher vectors of all columns must have one dimension, but got {dims}. Embed every "
                "column with one teacher."
            )
        return next(iter(dims.values()), None)

    def lengths_of(self, examples: IntArray) -> IntArray:
        """Return the number of tokens of some examples, (N,), where each is a single text."""
        (column,) = self.rows
        assert self.rows[column].ndim == 1, "each example is one text"
        return self.tokens[column].lengths_of(self.rows[column][examples])

    def shard_starts(self) -> IntArray:
        """Return the first example of every shard of the teacher's vectors, where examples are all rows.

        Where several columns have vectors, the shards are those of the first.
        """
        column, store = next(iter(self.stores.items()))
        ids = self.rows[column]
        starts = (
            ids.places_of(store.starts) if isinstance(ids, EveryRow) else np.searchsorted(ids, store.starts)
        )
        return np.unique(starts[starts < len(self)])

    def expect(self, runs_N2: IntArray) -> None:
        """Tell the stores which examples are read next, by the first and the last of each run of them."""
        for column, store in self.stores.items():
            store.expect(self.rows[column][runs_N2])

    def teacher_blocks(self, rows: int = 4096) -> dict[str, Iterator[FloatArray]]:
        """Iterate over each store's vectors of the training rows, in order, to fit an objective to them."""

        def blocks(column: str, store: TeacherColumn) -> Iterator[FloatArray]:
            ids = _distinct(self.rows[column])
            for start in range(0, len(ids), rows):
                yield store.gather(ids[np.arange(start, min(start + rows, len(ids)))])

        return {column: blocks(column, store) for column, store in self.stores.items()}

    def batch(self, indices: IntArray) -> Batch:
        """Gather examples; the K texts of a column such as hard negatives are flattened row by row."""
        rows = {column: ids[indices] for column, ids in self.rows.items()}
        return Batch(
            tokens={column: self.tokens[column].padded(ids.reshape(-1)) for column, ids in rows.items()},
            rows={column: torch.from_numpy(ids.astype(np.int64)) for column, ids in rows.items()},
            teacher={
                column: Encoding(torch.from_numpy(store.gather(rows[column].reshape(-1))))
                for column, store in self.stores.items()
            },
            values={name: torch.from_numpy(value[indices]) for name, value in self.values.items()},
            live_tokens={
                column: tokens.padded(rows[column].reshape(-1)) for column, tokens in self.live_tokens.items()
            },
        )

    def sample(self, count: int, at_once: int) -> Iterator[Tokens]:
        """Sample the same distinct texts of the first column at every call, in batches by length."""
        column = next(iter(self.rows))
        for rows in self.sampled(column, count, at_once, seed=0):
            yield self.tokens[column].padded(rows)

    def sampled(self, column: str, count: int, at_once: int, seed: int) -> Iterator[IntArray]:
        """Sample the rows of distinct texts of a column, in batches by length; see `sample`."""
        ids = _distinct(self.rows[column])
        places = np.random.default_rng(seed).choice(len(ids), size=min(count, len(ids)), replace=False)
        chosen = ids[places]
        chosen = chosen[np.argsort(self.tokens[column].lengths_of(chosen), kind="stable")]
        for start in range(0, len(chosen), at_once):
            yield chosen[start : start + at_once]


def _with_vectors(
    rows: Mapping[str, RowIds], values: Mapping[str, ValueArray], stores: Mapping[str, TeacherColumn]
) -> tuple[dict[str, RowIds], dict[str, ValueArray]]:
    """Leave out the examples that have a text without a teacher vector; of most tables that is none."""
    lacking = {column: store.lacking for column, store in stores.items() if len(store.lacking)}
    if not lacking:
        return dict(rows), dict(values)
    (first, ids), *others = rows.items()
    if isinstance(ids, EveryRow) and not others and not values:
        return {first: ids.without(lacking[first])}, {}
    arrays = {column: ids[np.arange(len(ids))] for column, ids in rows.items()}
    kept = np.ones(len(arrays[first]), dtype=bool)
    for column, absent in lacking.items():
        kept &= ~np.isin(arrays[column], absent).reshape(len(kept), -1).any(axis=1)
    return {c: array[kept] for c, array in arrays.items()}, {name: v[kept] for name, v in values.items()}


def _distinct(ids: RowIds) -> RowIds:
    """The ids without repetition, ascending."""
    return ids if isinstance(ids, EveryRow) else np.unique(ids)


def on_device(batch: Batch, device: str) -> Batch:
    """Copy a batch to the model's device."""
    return batch if device == "cpu" else _changed(batch, lambda tensor: tensor.to(device, non_blocking=True))


def pinned(batch: Batch) -> Batch:
    """Copy a batch to page-locked memory, from which a copy to a GPU overlaps with its work."""
    return _changed(batch, torch.Tensor.pin_memory)


def _changed(batch: Batch, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
    """The batch with every tensor changed."""

    def tokens_of(columns: Mapping[str, Tokens]) -> dict[str, Tokens]:
        return {
            column: Tokens(change(tokens.input_ids_BT), change(tokens.attention_mask_BT))
            for column, tokens in columns.items()
        }

    return Batch(
        tokens=tokens_of(batch.tokens),
        rows={column: change(ids) for column, ids in batch.rows.items()},
        teacher={column: Encoding(change(each.embedding_BD)) for column, each in batch.teacher.items()},
        values={name: change(value) for name, value in batch.values.items()},
        live_tokens=tokens_of(batch.live_tokens),
    )


class Reader(NamedTuple):
    """A model that reads the texts of a stage: the student, or a live teacher."""

    tokenizer: Model
    reading: Reading

    def tokens_of(self, texts: TextTable, role: str, roles: Runs = ()) -> TokenTable:
        """Return the tokens of some texts as this model reads them, in a role or in those of runs of them."""
        max_length, own = self.reading.max_length, self.reading.prompts
        prompts = tuple((rows, own.of(each)) for rows, each in roles)
        several = len({prompt for _, prompt in prompts}) > 1
        shared = prompts[0][1] if prompts else own.of(role)
        table = TokenTable(texts, self.tokenizer, max_length, "" if several else shared)
        return replace(table, prompts=prompts) if several else table

    def tables(self, examples: Examples) -> dict[str, TokenTable]:
        """Return the token table of every column, with this model's prompt for the column's role."""
        return {
            column: self.tokens_of(texts, examples.role(column), examples.roles(column))
            for column, texts in examples.columns.items()
        }


def student_reader(stage: Stage, tokenizer: Model) -> Reader:
    """Return how a stage's student reads, with its own tokenizer."""
    return Reader(tokenizer, Reading(stage.max_length, stage.prompts))


def live_reader(stage: Stage, student: Reader) -> Reader | None:
    """Return how the live teacher reads if it has tokens of its own, None if it reads the student's.

    It has tokens of its own where its prompts, its maximum length or its tokenizer are not the student's.
    """
    own = stage.live.model.kwargs.get("base") if stage.live is not None else None
    if stage.live is None or own is None:
        return None
    reading = stage.live.reading or student.reading
    if reading != student.reading:
        return Reader(own, reading)
    if own.sha256 == student.tokenizer.sha256:
        return None
    models = (own, student.tokenizer)
    one, other = (FastTokenizer(Path(model.path), reading.max_length) for model in models)
    return None if one.same_as(other) else Reader(own, reading)


def open_table(
    workspace: Workspace, stage: Stage, student: Reader, live: Reader | None = None
) -> TrainingTable:
    """Open the examples, tokens and teacher vectors that `training.walk` has built; see `live_reader`.

    Raises:
        BadInput: No example is left, or fewer than one batch.
    """
    table = TrainingTable(
        _row_ids(workspace, stage.examples),
        _opened(workspace, stage, student),
        {
            column: open_vectors(workspace, store, streamed=stage.shard_window > 0)
            for column, store in stage.stores.items()
        },
        open_values(workspace, stage.examples),
        _opened(workspace, stage, live) if live is not None else None,
    )
    require(
        len(table) >= stage.batch_size,
        "examples >= batch_size",
        examples=len(table),
        batch_size=stage.batch_size,
        remedy="Give more text, or a smaller batch."
        + (f" {table.dropped} examples have a text without a teacher vector." if table.dropped else ""),
    )
    return table


def _row_ids(workspace: Workspace, examples: Examples) -> Mapping[str, RowIds]:
    """The row ids of each column."""
    if isinstance(examples.origin, AllRows):
        return dict.fromkeys(examples.columns, EveryRow(count_rows(workspace, examples)))
    return open_rows(workspace, examples)


def _opened(workspace: Workspace, stage: Stage, reader: Reader) -> dict[str, TokenReader]:
    return {column: open_tokens(workspace, table) for column, table in reader.tables(stage.examples).items()}
