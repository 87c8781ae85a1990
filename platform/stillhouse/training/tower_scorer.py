"""Two exported towers, as the scorer that they were trained to be."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from stillhouse.core.artifacts import read_json
from stillhouse.core.tensors import read_tensors
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.losses.pair_head import Joiner
from stillhouse.students.export.tower_folders import DESCRIPTION, JOINER, SIDES
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.weights import resolve_model

_ROWS_AT_ONCE = 1024


class ExportedTowers:
    """Both folders of an export as sentence-transformers loads them, and the joiner of their vectors.

    Raises:
        BadInput: If a tower cannot be loaded.
    """

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        self.columns = SIDES
        self._claims, self._documents = (
            load_sentence_transformer(resolve_model(str(folder / side)), device) for side in SIDES
        )
        self.student = nn.ModuleList([self._claims, self._documents])  # Its weights are counted.
        self._joiner: nn.Module | None = None
        kind = read_json(folder / DESCRIPTION)["joiner"]
        if kind != "bilinear":
            weights = read_tensors(folder / JOINER)
            self._joiner = Joiner(claim_dim=self.encode(["a text"]).shape[1], kind=kind).eval()
            self._joiner.load_state_dict({f"layer.{name}": weight for name, weight in weights.items()})

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """Encode documents as vectors, (N, D), in their order."""
        return np.asarray(self._documents.encode(list(texts), show_progress_bar=False), np.float32)

    def score(self, first: Sequence[str], second: Sequence[str] | None = None) -> FloatArray:
        """Score pairs of a claim and a document, (N,), in their order."""
        assert second is not None, "two towers score pairs"
        (claims, rows_N), (documents, others_N) = _distinct(first), _distinct(second)
        claims_ND = np.asarray(self._claims.encode(claims, show_progress_bar=False), np.float32)
        documents_ND = self.encode(documents)
        parts = [
            self._joined(
                claims_ND[rows_N[at : at + _ROWS_AT_ONCE]], documents_ND[others_N[at : at + _ROWS_AT_ONCE]]
            )
            for at in range(0, len(rows_N), _ROWS_AT_ONCE)
        ]
        return np.concatenate(parts)

    @torch.no_grad()
    def _joined(self, claims_ND: FloatArray, documents_ND: FloatArray) -> FloatArray:
        if self._joiner is None:
            return np.asarray((claims_ND * documents_ND).sum(axis=1))
        documents_N1D = torch.from_numpy(documents_ND)[:, None, :]
        scores_N1 = self._joiner(torch.from_numpy(claims_ND), documents_N1D)
        return np.asarray(scores_N1[:, 0].numpy())


def _distinct(texts: Sequence[str]) -> tuple[list[str], IntArray]:
    """The different texts, and for every text its place among them."""
    places = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    return list(places), np.array([places[text] for text in texts])
