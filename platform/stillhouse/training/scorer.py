"""A student together with its objective's head: it encodes texts, and scores rows of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stillhouse.core.errors import BadInput
from stillhouse.core.types import Encoding, LogitObjective, ScoringObjective
from stillhouse.students.encoder import StudentEncoder, Vectors, evaluating

ROWS_AT_ONCE = 1024

Compute = Callable[[Mapping[str, Encoding]], Tensor]


class StudentScorer:
    """An encoder that also scores rows of texts, with the head of an objective; each text is encoded once.

    The objective is given `Encoding` without hidden states, in full precision, and gathers nothing, so that
    it can be used on one rank alone. It is left in the mode it had.

    Args:
        encoder: The student as an encoder.
        objective: A `ScoringObjective`.
        columns: Columns of the examples that it learned from, in their order.
    """

    def __init__(self, encoder: StudentEncoder, objective: Any, columns: Sequence[str]) -> None:
        self.encoder, self.objective, self.columns = encoder, objective, tuple(columns)
        self.student, self.dim, self.max_length = encoder.student, encoder.dim, encoder.max_length
        objective.to(encoder.device)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Encode texts as vectors, (N, D), in their order."""
        return self.encoder.encode(texts)

    def score(self, first: Sequence[str], second: Sequence[str] | None = None) -> Vectors:
        """Score texts or pairs of texts, (N,) or (N, C), in their order.

        Args:
            first: The texts of the first column.
            second: The texts of the second column, if there is one.

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
        row_of = {
            text: row for row, text in enumerate(dict.fromkeys(text for side in sides for text in side))
        }
        vectors_ND = self.encoder.encode(list(row_of))
        rows = [np.array([row_of[text] for text in side]) for side in sides]
        parts = [
            self._part(compute, [vectors_ND[ids[start : start + ROWS_AT_ONCE]] for ids in rows])
            for start in range(0, len(first), ROWS_AT_ONCE)
        ]
        return np.concatenate(parts)

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
