"""A student together with its objective's head: it encodes texts, and scores rows of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stillhouse.core.errors import BadInput
from stillhouse.core.types import (
    Encoding,
    InRoles,
    IntArray,
    LogitObjective,
    ScoringObjective,
    SidedModel,
    encode_as,
)
from stillhouse.students.encoder import StudentEncoder, Vectors, evaluating
from stillhouse.values.data import column_role

ROWS_AT_ONCE = 1024

Compute = Callable[[Mapping[str, Encoding]], Tensor]


class StudentScorer(InRoles):
    """An encoder that also scores rows of texts, with the head of an objective; each text is encoded once.

    A row has a text for each column of the examples that it learned from, in their order.

    A student with separate towers encodes each column with its own; `encode` is then its second tower.

    The objective is given `Encoding` without hidden states, in full precision, and gathers nothing, so that
    it can be used on one rank alone. It is left in the mode it had.
    """

    def __init__(self, encoder: StudentEncoder, objective: Any, columns: Sequence[str]) -> None:
        self.encoder, self.objective, self.columns = encoder, objective, tuple(columns)
        self.student, self.dim, self.max_length = encoder.student, encoder.dim, encoder.max_length
        self.prompts = encoder.prompts
        self._towers = dict.fromkeys(self.columns, encoder)
        if isinstance(encoder.student, SidedModel):
            student: Any = encoder.student
            self._towers = {column: encoder.of_tower(student.tower(column)) for column in self.columns}
        objective.to(encoder.device)

    def in_batches(self, texts: int) -> "StudentScorer":
        """Return a scorer of the same student that reads that many texts per forward pass."""
        return StudentScorer(self.encoder.in_batches(texts), self.objective, self.columns)

    def encoded(self, role: str, texts: Sequence[str]) -> Vectors:
        """Encode texts of a role, (N, D), in their order."""
        return self.encoder.encoded(role, texts)

    def encode_column(self, column: str, texts: Sequence[str]) -> Vectors:
        """Encode texts as texts of a column, (N, D), in their order."""
        return np.asarray(encode_as(self._towers[column], column_role(column), texts), np.float32)

    def score(self, first: Sequence[str], second: Sequence[str] | None = None) -> Vectors:
        """Score texts or pairs of texts, (N,) or (N, C), in their order.

        Raises:
            BadInput: The number of lists differs from the number of columns, or the lists are empty or of
                different lengths.
        """
        return self._computed(self.objective.score, first, second)

    def logits(self, first: Sequence[str], second: Sequence[str] | None = None) -> Vectors:
        """Compute the logits of texts or pairs of texts, (N, C), in their order; arguments as in `score`.

        Raises:
            BadInput: As `score`.
        """
        assert isinstance(self.objective, LogitObjective), "only an objective with logits has them recorded"
        return self._computed(self.objective.logits, first, second)

    def _computed(self, compute: Compute, first: Sequence[str], second: Sequence[str] | None) -> Vectors:
        sides = [first] if second is None else [first, second]
        lengths = {len(side) for side in sides}
        if len(sides) != len(self.columns):
            raise BadInput(
                f"Texts must be given for every column of the training examples, {list(self.columns)}, but "
                f"got {len(sides)} lists of texts."
            )
        if len(lengths) != 1 or 0 in lengths:
            raise BadInput(
                f"Both sides of the pairs must have the same length > 0, but got {sorted(lengths)}."
            )
        vectors = self._encoded(sides)
        parts = [
            self._part(
                compute, [vectors_ND[ids[start : start + ROWS_AT_ONCE]] for vectors_ND, ids in vectors]
            )
            for start in range(0, len(first), ROWS_AT_ONCE)
        ]
        return np.concatenate(parts)

    def _encoded(self, sides: Sequence[Sequence[str]]) -> list[tuple[Vectors, IntArray]]:
        """Encode each distinct text of a tower and a prompt once; return vectors and rows of every side."""
        # Columns of one tower and one prompt share their texts.
        readers = [
            (self._towers[column], self.encoder.prompts.of(column_role(column))) for column in self.columns
        ]
        texts: dict[tuple[StudentEncoder, str], dict[str, int]] = {reader: {} for reader in readers}
        for reader, side in zip(readers, sides, strict=True):
            for text in side:
                texts[reader].setdefault(text, len(texts[reader]))
        vectors: dict[tuple[StudentEncoder, str], Vectors] = {}
        for column, reader in zip(self.columns, readers, strict=True):
            if reader not in vectors:
                vectors[reader] = self.encode_column(column, list(texts[reader]))
        return [
            (vectors[reader], np.array([texts[reader][text] for text in side]))
            for reader, side in zip(readers, sides, strict=True)
        ]

    @torch.no_grad()
    def _part(self, compute: Compute, sides: Sequence[Vectors]) -> Vectors:
        device = self.encoder.device
        encodings = {
            column: Encoding(torch.from_numpy(vectors_BD).to(device))
            for column, vectors_BD in zip(self.columns, sides, strict=True)
        }
        with evaluating(self.objective):
            return np.asarray(compute(encodings).float().cpu().numpy())


def with_scores(
    encoder: StudentEncoder, objective: nn.Module, columns: Sequence[str]
) -> StudentEncoder | StudentScorer:
    """Return the encoder, as a scorer if the objective scores."""
    return StudentScorer(encoder, objective, columns) if isinstance(objective, ScoringObjective) else encoder
