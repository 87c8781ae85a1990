"""A training table in memory, to measure training without a token table or a store."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.tokenizing import FastTokenizer, pad
from stillhouse.core.types import FloatArray, IntArray, Tokens
from stillhouse.corpora.tables import open_rows, open_values, sample_of
from stillhouse.teachers.loading import tokenizer_of
from stillhouse.training.table import Reader, TrainingTable, live_reader, student_reader
from stillhouse.values.data import Examples, FewerNegatives, Mined, Recorded, Scored, TokenTable
from stillhouse.values.stage import Stage


class MemoryTokens:
    """Token ids of a few texts; row r is the text at position r."""

    def __init__(self, tokenizer: FastTokenizer, texts: Sequence[str]) -> None:
        self._ids, offsets = tokenizer(list(texts))
        self._starts, self._lengths, self._pad_id = offsets[:-1], np.diff(offsets), tokenizer.pad_id

    def lengths_of(self, rows: IntArray) -> IntArray:
        """Return the number of tokens of some rows."""
        return self._lengths[rows]

    def padded(self, rows: IntArray) -> Tokens:
        """Return the tokens of some rows, flattened, as a batch."""
        rows = np.asarray(rows).reshape(-1)
        return pad(self._ids, self._starts[rows], self._lengths[rows], self._pad_id)


class RandomVectors:
    """Unit vectors of random directions, the same for every instance of a shape."""

    def __init__(self, rows: int, dim: int) -> None:
        self.lacking: IntArray = np.empty(0, np.int64)
        self.dim = dim
        drawn = np.random.default_rng(0).standard_normal((rows, dim), dtype=np.float32)
        self._vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        self.starts: IntArray = np.zeros(1, np.int64)

    def expect(self, rows_N2: IntArray) -> None:
        """Do nothing: all vectors are here."""

    def gather(self, rows: IntArray) -> FloatArray:
        """Return the vectors of some rows."""
        vectors: FloatArray = self._vectors[rows]
        return vectors


def prompt_of(table: TokenTable) -> str:
    """What stands before the texts of a token table; with several roles, before those of the first."""
    return table.prompts[0][1] if table.prompts else table.prompt


def stand_in(workspace: Workspace, stage: Stage, dim: int, count: int) -> TrainingTable:
    """Make a training table like that of a stage: sampled texts, random vectors and rows.

    Raises:
        BadInput: The shape of the examples is known only once the teacher has recorded them.
    """
    shapes, values = _shapes(workspace, stage.examples, count)
    random = np.random.default_rng(0)

    def tokens(reader: Reader) -> dict[str, MemoryTokens]:
        found = {}
        for column, table in reader.tables(stage.examples).items():
            texts = sample_of(workspace, table.texts, count)[1]
            texts = [prompt_of(table) + texts[at % len(texts)] for at in range(count)]
            found[column] = MemoryTokens(FastTokenizer(Path(table.tokenizer.path), table.max_length), texts)
        return found

    student = student_reader(stage, tokenizer_of(stage))
    live = live_reader(stage, student)
    return TrainingTable(
        {column: random.integers(count, size=(count, *shape)) for column, shape in shapes.items()},
        tokens(student),
        {column: RandomVectors(count, dim) for column in stage.stores},
        values,
        tokens(live) if live is not None else None,
    )


def _shapes(
    workspace: Workspace, examples: Examples, count: int
) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    """Shapes of the ids of every column, and values of some rows."""
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(examples.columns, ())
    values: dict[str, Any] = {}
    for part in examples.sources():
        if isinstance(part.origin, Mined | FewerNegatives):
            shapes["negatives"] = (part.origin.negatives,)
        elif workspace.finished(part):
            shapes |= {n: ids.shape[1:] for n, ids in open_rows(workspace, part).items() if n in shapes}
            for name, value in open_values(workspace, part).items():
                values[name] = np.resize(value[:count], (count, *value.shape[1:]))
        elif isinstance(part.origin, Recorded | Scored):
            raise BadInput(
                f"the examples {part.label} must be recorded before their stage can be measured: they come "
                "with what a teacher says of them. Train once."
            )
    return shapes, values
