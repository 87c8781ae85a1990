"""A student together with its objective's head: it encodes texts, and scores rows of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from stillhouse.core.errors import require
from stillhouse.core.types import Encoding, ScoringObjective
from stillhouse.students.encoder import StudentEncoder, Vectors, evaluating

ROWS_AT_ONCE = 1024


class StudentScorer:
    """An encoder that scores rows too, with an objective that offers ``score``; every text is encoded once.

    The objective is given `Encoding` without hidden states, in full precision, and gathers nothing: it may be
    asked on one rank alone. It is left in the mode it had.

    Args:
        encoder: Texts to vectors.
        objective: A module with ``score(student: Mapping[str, Encoding]) -> Tensor``, (B,) or (B, C).
        columns: Of the examples that it learned from, in their order.
    """

    def __init__(self, encoder: StudentEncoder, objective: Any, columns: Sequence[str]) -> None:
        self.encoder, self.objective, self.columns = encoder, objective, tuple(columns)
        self.student, self.dim, self.max_length = encoder.student, encoder.dim, encoder.max_length
        objective.to(encoder.device)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors of texts, (N, D), in their order."""
        return self.encoder.encode(texts)

    def score(self, first: Sequence[str], second: Sequence[str] | None = None) -> Vectors:
        """Scores of texts, or of pairs, (N,) or (N, C), in their order.

        Args:
            first: The texts of the first column.
            second: Those of the second, where there is one.

        Raises:
            BadInput: Not one list a column, none at all, or lists of different lengths.
        """
        return self.asked("score", first, second)

    def asked(self, what: str, first: Sequence[str], second: Sequence[str] | None = None) -> Vectors:
        """What another method of the objective says, such as ``logits``; as `score`.

        Raises:
            BadInput: As `score`.
        """
        sides = [first] if second is None else [first, second]
        lengths = {len(side) for side in sides}
        require(
            len(sides) == len(self.columns),
            "texts are given for every column that was learned from",
            given=len(sides),
            columns=list(self.columns),
        )
        require(len(lengths) == 1 and 0 not in lengths, "both sides of pairs are as long, and not empty")
        row_of = {
            text: row for row, text in enumerate(dict.fromkeys(text for side in sides for text in side))
        }
        vectors_ND = self.encoder.encode(list(row_of))
        rows = [np.array([row_of[text] for text in side]) for side in sides]
        parts = [
            self._said(what, [vectors_ND[ids[start : start + ROWS_AT_ONCE]] for ids in rows])
            for start in range(0, len(first), ROWS_AT_ONCE)
        ]
        return np.concatenate(parts)

    @torch.no_grad()
    def _said(self, what: str, sides: Sequence[Vectors]) -> Vectors:
        device = self.encoder.device
        given = {
            column: Encoding(torch.from_numpy(vectors_BD).to(device))
            for column, vectors_BD in zip(self.columns, sides, strict=True)
        }
        with evaluating(self.objective):
            said = getattr(self.objective, what)(given)
        return np.asarray(said.float().cpu().numpy())


def with_scores(
    encoder: StudentEncoder, objective: nn.Module, columns: Sequence[str]
) -> StudentEncoder | StudentScorer:
    """The encoder, able to score where the objective is."""
    return StudentScorer(encoder, objective, columns) if isinstance(objective, ScoringObjective) else encoder
