"""A model that reads the texts of a pair jointly, as a scorer of texts."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from stillhouse.core.errors import BadInput, require
from stillhouse.core.tokenizing import FastTokenizer, pad, token_batches
from stillhouse.core.types import Tokens
from stillhouse.students.encoder import Vectors, inferring


class PairScorer:
    """Scores pairs without gradients and without dropout; the model keeps its training mode.

    Such a model gives no vector of a single text, so this is not an `Encoder`.

    Attributes:
        student: The model, a `stillhouse.core.types.PairModel`.
    """

    reads_pairs: ClassVar[bool] = True

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
            student: A `PairModel` that is a torch module; moved to ``device``.
            tokenizer_path: Folder with the tokenizer's files.
            max_length: Tokens per text; longer texts are truncated.
            device: Device that the model runs on.
            batch_tokens: Tokens per batch, both texts and padding included.
            autocast: ``float32`` or ``bfloat16``.
        """
        self.student, self.device, self.autocast = student, device, autocast
        self.max_length, self.batch_tokens = max_length, batch_tokens
        self.tokenizer = FastTokenizer(Path(tokenizer_path), max_length)
        student.to(device)

    def in_batches(self, texts: int) -> "PairScorer":
        """Return a scorer of the same model that reads that many pairs per forward pass."""
        other = copy.copy(self)
        other.batch_tokens = 2 * texts * self.max_length
        return other

    def score(self, first: Sequence[str], second: Sequence[str] | None = None) -> Vectors:
        """Score pairs, (N, 1), in their order.

        Raises:
            BadInput: No second texts, or a different number of them.
        """
        require(
            second is not None and len(first) == len(second) and len(first) > 0,
            "len(first) == len(second) > 0",
            first=len(first),
            second=0 if second is None else len(second),
        )
        sides = [self._tokenised(first), self._tokenised(second or ())]
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

    def _tokenised(self, texts: Sequence[str]) -> tuple[Any, Any, Any]:
        """Return concatenated ids, and the start and length of each text; equal texts are tokenised once."""
        row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        ids, offsets = self.tokenizer(list(row_of))
        rows = np.array([row_of[text] for text in texts])
        return ids, offsets[rows], np.diff(offsets)[rows]


def candidates_per_claim(claim: Tokens, documents: Tokens) -> int:
    """Return C, the number of documents per claim; those of a claim are adjacent.

    Raises:
        BadInput: The number of documents is not a multiple of the number of claims.
    """
    claims, rows = len(claim.input_ids_BT), len(documents.input_ids_BT)
    if claims < 1 or rows < claims or rows % claims:
        raise BadInput(
            f"The number of documents must be a multiple of the number of claims, but got {claims=}, "
            f"documents={rows}."
        )
    return rows // claims
