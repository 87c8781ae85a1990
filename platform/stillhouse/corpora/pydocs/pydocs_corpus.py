"""The corpus ``pydocs``: technical English from the docstrings of installed packages.

It has sentences for distillation, query–passage pairs (first sentence → rest of the docstring) for
fine-tuning, and a documentation search for evaluation. Dev and test come from separate modules, and none of
their texts is among the training texts. The docstrings are extracted once; selecting from them takes seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import require
from stillhouse.corpora.pydocs.extraction import Progress, extract, installed_packages
from stillhouse.corpora.read_once import note_path, noted, read_once
from stillhouse.corpora.tables import Texts, open_texts, write_collection, write_rows, write_texts
from stillhouse.values.data import Collection, Examples, TextTable

VERSION = 1
"""Increased when the extraction changes its results."""


@dataclass(frozen=True)
class Pydocs:
    """A selection of the corpus: text, pairs of query and passage, and two searches; test is locked."""

    sentences: TextTable
    pairs: Examples
    dev: Collection
    test: Collection
    dev_sentences: TextTable
    test_sentences: TextTable


def pydocs(
    workspace: Workspace,
    *,
    sentences: int | None = None,
    pairs: int | None = None,
    dev_queries: int = 500,
    dev_passages: int = 2000,
    test_queries: int = 500,
    test_passages: int = 2000,
    held_out_sentences: int = 2000,
    seed: int = 0,
    refresh: bool = False,
    progress: Progress | None = None,
) -> Pydocs:
    """Select from the corpus, and extract it first if needed.

    None takes all sentences or pairs. The passages of a search include the relevant one of each query.
    A smaller selection is part of a larger one with the same seed.

    Raises:
        BadInput: If more is requested than exists.
    """
    sizes = {
        "sentences": sentences,
        "pairs": pairs,
        "dev_queries": dev_queries,
        "dev_passages": dev_passages,
        "test_queries": test_queries,
        "test_passages": test_passages,
    }
    for name, size in sizes.items():
        require(size is None or size > 0, f"{name} > 0", got=size)
    tables = _extracted(workspace, refresh, progress)
    signature = {**sizes, "held_out_sentences": held_out_sentences, "seed": seed, "tables": tables}
    note = note_path(workspace, "pydocs-selection", signature)

    def read() -> dict[str, Any]:
        chosen = _Selection(workspace, {name: open_texts(workspace, t) for name, t in tables.items()}, seed)
        return {
            "sentences": chosen.texts("train_sentences", sentences, "sentences"),
            "pairs": chosen.pairs(pairs),
            "dev": chosen.search("dev", dev_queries, dev_passages),
            "test": chosen.search("test", test_queries, test_passages),
            "dev_sentences": chosen.held_out("dev", held_out_sentences),
            "test_sentences": chosen.held_out("test", held_out_sentences),
        }

    return Pydocs(**read_once(workspace, note, read))


def is_extracted(workspace: Workspace) -> bool:
    """Whether the docstrings of the installed packages have been extracted; otherwise that takes minutes."""
    return noted(workspace, _note(workspace)) is not None


def _note(workspace: Workspace) -> Path:
    return note_path(workspace, "pydocs", {"version": VERSION, "roots": None})


def _extracted(workspace: Workspace, refresh: bool, progress: Progress | None) -> dict[str, TextTable]:
    """Return the tables of the whole corpus by name; once extracted, later installations do not matter."""

    def read() -> dict[str, Any]:
        packages = installed_packages()
        versions = {package.name: package.version for package in packages}
        return {"tables": extract(workspace, packages, progress), "packages": versions}

    tables: dict[str, TextTable] = read_once(workspace, _note(workspace), read, refresh=refresh)["tables"]
    return tables


@dataclass
class _Selection:
    workspace: Workspace
    all: Mapping[str, Texts]
    seed: int

    def texts(self, name: str, size: int | None, label: str) -> TextTable:
        texts = list(self.all[name])
        return self._write(label, [texts[row] for row in self._first(texts, size, label)])

    def held_out(self, split: str, size: int) -> TextTable:
        available = len(self.all[f"{split}_sentences"])
        return self.texts(f"{split}_sentences", min(size, available), f"{split}-sentences")

    def pairs(self, size: int | None) -> Examples:
        queries, passages = list(self.all["train_queries"]), list(self.all["train_passages"])
        rows = self._first(queries, size, "pairs")
        columns = {
            "query": self._write("queries", [queries[row] for row in rows]),
            "passage": self._write("passages", [passages[row] for row in rows]),
        }
        ids = np.arange(len(rows))
        return write_rows(self.workspace, columns, {name: ids for name in columns}, "pydocs-pairs")

    def search(self, split: str, queries: int, passages: int) -> Collection:
        """Select queries, their answers, and other passages of the same modules, in random order."""
        name = {"queries": f"{split}_queries", "passages": f"{split}_passages"}
        require(queries <= passages, f"{name['queries']} <= {name['passages']}", got=(queries, passages))
        all_queries, searched = list(self.all[name["queries"]]), list(self.all[name["passages"]])
        chosen = self._first(all_queries, queries, name["queries"])
        answers = set(chosen)
        others = [row for row in self._first(searched, None, name["passages"]) if row not in answers]
        most = len(answers) + len(others)
        require(passages <= most, f"{name['passages']} <= {most}, the number available", got=passages)
        shown = [*chosen, *others[: passages - len(chosen)]]
        shown.sort(key=lambda row: self._place(searched[row]))
        row_of = {row: place for place, row in enumerate(shown)}
        qrels_N3 = np.array([[place, row_of[row], 1] for place, row in enumerate(chosen)])
        return write_collection(
            self.workspace,
            f"pydocs-{split}",
            self._write(f"{split}-queries", [all_queries[row] for row in chosen]),
            self._write(f"{split}-passages", [searched[row] for row in shown]),
            qrels_N3,
        )

    def _first(self, texts: list[str], size: int | None, name: str) -> list[int]:
        """Return the rows with the lowest hashes: deterministic, and a prefix of any larger selection."""
        require(size is None or size <= len(texts), f"{name} <= {len(texts)}, the number available", got=size)
        return sorted(range(len(texts)), key=lambda row: self._place(texts[row]))[:size]

    def _place(self, text: str) -> bytes:
        return blake2b(f"{self.seed}:{text}".encode(), digest_size=8).digest()

    def _write(self, label: str, texts: list[str]) -> TextTable:
        origin = {"selected_from": "pydocs", "seed": self.seed}
        return write_texts(self.workspace, f"pydocs-{label}", texts, deduplicate=False, origin=origin)
