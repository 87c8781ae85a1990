"""A small text table and the plan of its store; building takes a few milliseconds per shard."""

from pathlib import Path

import numpy as np
import pytest

from stillhouse.core.artifacts import Workspace
from stillhouse.corpora.tables import write_texts
from stillhouse.teachers.weights import resolve_model
from stillhouse.values.data import Store

WORDS = (
    "the cat dog sat mat river water moon red old small returns value array of in and sort rows name".split()
)


@pytest.fixture
def texts() -> list[str]:
    """44 distinct texts, one of them much longer than the others."""
    random = np.random.default_rng(0)
    sentences = [" ".join(random.choice(WORDS, random.integers(3, 12))) + f" {i}" for i in range(43)]
    return [*sentences, " ".join(WORDS * 4)]


@pytest.fixture
def store(workspace: Workspace, texts: list[str], tiny_model: Path) -> Store:
    """The plan of a store over five shards: 10, 10, 10, 10 and 4 rows; two duplicates and one empty text."""
    table = write_texts(workspace, "words", [*texts, texts[0], texts[1], ""], rows_per_shard=10)
    return Store(table, resolve_model(str(tiny_model)), max_length=32)
