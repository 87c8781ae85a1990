"""Translation accuracy: is the nearest of all translations of a sentence its own?"""

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import require
from stillhouse.core.types import Encoder, FloatArray
from stillhouse.corpora.reading.translations import language_spans
from stillhouse.corpora.tables import open_rows, open_texts
from stillhouse.evaluation.retrieval import LocalSearch, Search, unit
from stillhouse.values.data import Examples


class TranslationAccuracy:
    """Share of sentences whose nearest sentence of the other language is the translation, both ways.

    Nearest by cosine. Equal to the TranslationEvaluator of sentence-transformers: another row with the same
    text counts as a hit.

    Figures, in [0, 1]: ``{name}_src2trg_accuracy``, ``{name}_trg2src_accuracy``, ``{name}_mean_accuracy``.

    Args:
        examples: Columns ``source`` and ``target``; row i of one translates row i of the other. All targets
            are of one language, since translations into several languages would compete with each other.
        workspace: Holds the examples and their texts.
        rows: Number of rows to use; 0 takes all.
        start: First row to use.
        split: ``dev`` may be used for selection; ``test`` is for the final report.
        name: Prefix of the figures' names.
        search: Finds the nearest sentences; None searches in this process.

    Raises:
        BadInput: If there are other columns, fewer than two rows, or the split is unknown.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        examples: Examples,
        workspace: Workspace,
        rows: int = 0,
        split: str = "dev",
        name: str = "translation",
        search: Search | None = None,
        start: int = 0,
    ) -> None:
        columns = sorted(examples.columns)
        require(columns == ["source", "target"], "columns = (source, target)", columns=columns)
        require(split in ("dev", "test"), "split in (dev, test)", split=split)
        require(rows >= 0, "rows >= 0", rows=rows)
        ids = open_rows(workspace, examples)
        sides = [
            open_texts(workspace, examples.columns[side])[ids[side][start : start + rows if rows else None]]
            for side in ("source", "target")
        ]
        require(len(sides[0]) >= 2, "rows >= 2", rows=len(sides[0]))
        self.name, self.split, self.search = name, split, search or LocalSearch()
        self.texts = list(dict.fromkeys(text for side in sides for text in side))
        row_of = {text: row for row, text in enumerate(self.texts)}
        self.source_N, self.target_N = (np.array([row_of[text] for text in side]) for side in sides)

    def __call__(self, model: Encoder) -> dict[str, float]:
        """Encode every text once and search for the translations."""
        vectors = unit(model.encode(self.texts))
        forth = accuracy(vectors, self.source_N, self.target_N, self.search)
        back = accuracy(vectors, self.target_N, self.source_N, self.search)
        return {
            f"{self.name}_src2trg_accuracy": forth,
            f"{self.name}_trg2src_accuracy": back,
            f"{self.name}_mean_accuracy": (forth + back) / 2,
        }


class Translations:
    """`TranslationAccuracy` for every language of a corpus, and ``{name}_mean_accuracy``, their mean.

    Args:
        examples: Written by `corpora.reading.translations`, with the language of every row.
        workspace: Holds the examples and their texts.
        split: ``dev`` may be used for selection; ``test`` is for the final report.
        name: Prefix of the figures' names; the language follows.
        search: Finds the nearest sentences; None searches in this process.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        examples: Examples,
        workspace: Workspace,
        split: str = "dev",
        name: str = "translation",
        search: Search | None = None,
    ) -> None:
        self.name, self.split = name, split
        self.languages = [
            TranslationAccuracy(
                examples, workspace, len(span), split, f"{name}_{language}", search, start=span.start
            )
            for language, span in language_spans(workspace, examples)
        ]

    def __call__(self, model: Encoder) -> dict[str, float]:
        """Measure every language."""
        figures: dict[str, float] = {}
        for language in self.languages:
            figures |= language(model)
        means = [figures[f"{language.name}_mean_accuracy"] for language in self.languages]
        return {f"{self.name}_mean_accuracy": float(np.mean(means)), **figures}


def accuracy(
    vectors_ND: FloatArray, from_N: npt.NDArray[np.int64], to_N: npt.NDArray[np.int64], search: Search
) -> float:
    """Compute the share of rows whose nearest sentence on the other side is their own translation.

    Args:
        vectors_ND: Unit vectors of the distinct texts.
        from_N: The text of each row in the language of the queries, as an index into ``vectors_ND``.
        to_N: The text of each row in the other language.
        search: Finds the nearest sentences.
    """
    return float(np.mean(hits(vectors_ND, from_N, to_N, search)))


def hits(
    vectors_ND: FloatArray, from_N: npt.NDArray[np.int64], to_N: npt.NDArray[np.int64], search: Search
) -> npt.NDArray[np.bool_]:
    """Return for each row whether its nearest sentence is its translation; see `accuracy`."""
    _, nearest_N1 = search.search(vectors_ND[to_N], vectors_ND[from_N], 1)
    # Equal indices are equal texts, because they point to distinct texts.
    return np.asarray(to_N[nearest_N1[:, 0]] == to_N)
