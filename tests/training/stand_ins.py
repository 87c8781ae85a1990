"""A cheap student, objective and table for tests of the training loop."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from stillhouse.core.artifacts import Workspace
from stillhouse.core.distributed import gather
from stillhouse.core.identity import spec
from stillhouse.core.types import Batch, Encoding, IntArray, Terms, Tokens
from stillhouse.corpora.tables import write_rows, write_texts
from stillhouse.objectives.objective import Objective
from stillhouse.training.table import TrainingTable
from stillhouse.values.data import AllRows, Examples, TextTable
from stillhouse.values.stage import DevSuite, Optimizer, Stage

VOCABULARY, TEACHER_DIM = 50, 6
SHARD_ROWS = 30


class Tiny(nn.Module):
    """Mean of word vectors, dropout, a linear layer."""

    def __init__(self, dim: int = 16, dropout: float = 0.2) -> None:
        super().__init__()
        self.dim = dim
        self.words = nn.Embedding(VOCABULARY, 12)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(12, dim)

    def forward(self, tokens: Tokens) -> Encoding:
        words = self.dropout(self.words(tokens.input_ids_BT)) * tokens.attention_mask_BT[..., None]
        mean = words.sum(1) / tokens.attention_mask_BT.sum(1, keepdim=True)
        return Encoding(self.out(mean), (words,), tokens.attention_mask_BT)


class Regress(Objective):
    """Squared error through W, and a pull away from a ring of earlier teacher vectors (a bank)."""

    def __init__(self, student_dim: int, teacher_dim: int, bank: int = 24, poison: int = 0) -> None:
        super().__init__()
        self.W = nn.Linear(student_dim, teacher_dim, bias=False)
        self.poison = poison
        self.bank: Tensor
        self.calls: Tensor
        self.register_buffer("bank", torch.zeros(bank, teacher_dim))
        self.register_buffer("calls", torch.tensor(0))

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        student_BE = self.W(gather(student["text"].embedding_BD))
        teacher_BE = gather(teacher["text"].embedding_BD)
        overlap = (student_BE @ self.bank.T).pow(2)
        near = overlap.sum() / max(1, overlap.numel())
        self.bank = torch.cat([teacher_BE, self.bank])[: len(self.bank)]
        self.calls = self.calls + 1
        scale = float("nan") if self.poison and int(self.calls) >= self.poison else 1.0
        return {"mse": (student_BE - teacher_BE).pow(2).mean() * scale, "away": 0.1 * near}


class Flatten(Objective):
    """An objective that rewards equal vectors: a student that minimises it collapses."""

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        vectors = student["text"].embedding_BD
        return {"flat": (vectors - 1.0).pow(2).mean()}


class Classes(Regress):
    """An objective that declares few directions to be enough."""

    few_directions = True


class Words:
    """Random token ids of different lengths."""

    def __init__(self, rows: int, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.lengths: IntArray = random.integers(2, 8, rows)
        self.ids = random.integers(1, VOCABULARY, (rows, 8))

    def lengths_of(self, rows: IntArray) -> IntArray:
        return self.lengths[rows]

    def padded(self, rows: IntArray) -> Tokens:
        lengths = self.lengths[rows]
        mask = np.arange(lengths.max()) < lengths[:, None]
        ids = self.ids[rows, : lengths.max()] * mask
        return Tokens(torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64)))


class Vectors:
    """A store of random teacher vectors."""

    def __init__(self, rows: IntArray, dim: int = TEACHER_DIM) -> None:
        self.lacking, self.dim = np.setdiff1d(np.arange(1000), rows), dim
        self.all = np.random.default_rng(2).normal(size=(int(rows.max()) + 1, dim)).astype(np.float32)
        self.starts = np.arange(0, len(self.all), SHARD_ROWS)
        self.expected: list[list[list[int]]] = []

    def expect(self, rows_N2: IntArray) -> None:
        self.expected.append(rows_N2.tolist())

    def gather(self, rows: IntArray) -> npt.NDArray[np.float32]:
        return self.all[rows]


def table(rows: int = 200) -> TrainingTable:
    ids = np.arange(rows)
    return TrainingTable({"text": ids}, {"text": Words(rows)}, {"text": Vectors(ids)})


def no_evaluator() -> None:
    """Placeholder named by specs; the tests pass a function to `fit` instead."""


def dev(select: str = "figure") -> DevSuite:
    return DevSuite((spec(no_evaluator),), select=select)


def stage(**changes: Any) -> Stage:
    texts = TextTable(sha256="0" * 64)
    defaults: dict[str, Any] = {
        "label": "distil",
        "student": spec(Tiny),
        "objective": spec(Regress),
        "examples": Examples(columns={"text": texts}, origin=AllRows()),
        "stores": {},
        "budget": 60 * 8,
        "batch_size": 8,
        "optimizer": Optimizer(learning_rate=1e-2, weight_decay=0.01, warmup=0.1),
        "seed": 3,
    }
    return Stage(**{**defaults, **changes})


def weight_figure(encoder: Any) -> dict[str, float]:
    """Return a metric of the student alone; also draw random numbers, which must not affect training."""
    torch.rand(3)
    np.random.random()  # noqa: NPY002
    return {"figure": -float(encoder.out.weight.detach().abs().mean())}


def tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    loaded: dict[str, Tensor] = load_file(path)
    return loaded


def equal_or_not(workspace: Workspace, words: list[str]) -> Examples:
    """All pairs of short texts, one per word; the label says whether both are the same."""
    table = write_texts(workspace, "words", [f"the {word}" for word in words])
    count = np.arange(len(words))
    first, second = (grid.ravel() for grid in np.meshgrid(count, count, indexing="ij"))
    labels = (first == second).astype(np.int64)
    columns = {"text": first, "other": second}
    return write_rows(workspace, dict.fromkeys(columns, table), columns, "pairs", values={"label": labels})
