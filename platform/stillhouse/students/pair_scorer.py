"""A model that reads the texts of a pair together, as a scorer of texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stillhouse.core.errors import require
from stillhouse.core.tokenizing import FastTokenizer, pad, token_batches
from stillhouse.core.types import Tokens
from stillhouse.students.encoder import Vectors, inferring


class PairScorer:
    """Scores pairs without gradients and without dropout; the model is left in the mode it had.

    Such a model has ``together``, the columns that it reads at once, and gives no vector of a text: this is
    no `Encoder`.

    Attributes:
        student: The model.
    """

    def __init__(
        self,
        student: Any,
        tokenizer_path: str | Path,
        max_length: int,
        *,
        device: str = "cpu",
        batch_tokens: int = 8192,
        autocast: str = "float32",
    ) -> None:
        """Wrap a model.

        Args:
            student: Moved to ``device``; (tokens of B texts, of B others) to scores (B, 1).
            tokenizer_path: Folder with the tokenizer's files.
            max_length: Tokens a text; longer ones are cut.
            device: Where it runs.
            batch_tokens: Tokens a batch, both texts and padding included.
            autocast: ``float32`` or ``bfloat16``.
        """
        self.student, self.device, self.autocast = student, device, autocast
        self.max_length, self.batch_tokens = max_length, batch_tokens
        self.tokenizer = FastTokenizer(Path(tokenizer_path), max_length)
        student.to(device)

    def score(self, first: Sequence[str], second: Sequence[str] | None = None) -> Vectors:
        """Scores of pairs, (N, 1), in their order.

        Raises:
            BadInput: No second texts, or not as many as first ones.
        """
        require(
            second is not None and len(first) == len(second) and len(first) > 0,
            "both sides of pairs are given, as long as each other, and not empty",
            first=len(first),
            second=0 if second is None else len(second),
        )
        sides = [self._cut(first), self._cut(second or ())]
        lengths_N = sides[0][2] + sides[1][2]
        scores_N1 = np.empty((len(first), 1), np.float32)
        with inferring(self.student, self.device, self.autocast):
            for rows in token_batches(lengths_N, self.batch_tokens):
                claim, document = (
                    pad(ids, starts[rows], lengths[rows], self.tokenizer.pad_id).to(self.device)
                    for ids, starts, lengths in sides
                )
                scores_N1[rows] = self.student(claim, document).float().cpu().numpy()
        return scores_N1

    def _cut(self, texts: Sequence[str]) -> tuple[Any, Any, Any]:
        """Ids end to end, and where each text begins and how long it is; equal texts are cut once."""
        row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        ids, offsets = self.tokenizer(list(row_of))
        rows = np.array([row_of[text] for text in texts])
        return ids, offsets[rows], np.diff(offsets)[rows]


def candidates_each(claim: Tokens, documents: Tokens) -> int:
    """C, where the C documents of a claim stand side by side.

    Raises:
        BadInput: The documents are not C a claim.
    """
    claims, rows = len(claim.input_ids_BT), len(documents.input_ids_BT)
    require(
        claims >= 1 and rows >= claims and rows % claims == 0,
        "documents are C a claim",
        claims=claims,
        documents=rows,
    )
    return rows // claims
