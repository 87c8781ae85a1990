"""Translation accuracy: is the nearest of all translations of a sentence its own?"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import require
from stillhouse.core.types import Encoder, IntArray
from stillhouse.corpora.reading.translations import language_spans
from stillhouse.corpora.tables import open_rows, open_texts
from stillhouse.evaluation.metrics import number
from stillhouse.evaluation.retrieval import LocalSearch, Search, unit
from stillhouse.values.data import Examples


class Translations:
    """Share of sentences whose nearest sentence of the other language is the translation, both ways.

    Nearest by cosine. Equal to the TranslationEvaluator of sentence-transformers: another row with the same
    text counts as a hit. Each language is searched by itself, since translations into several would compete
    with each other.

    Figures, in [0, 1]: for every language ``{name}_{language}_src2trg_accuracy``, ``…_trg2src_accuracy`` and
    ``…_mean_accuracy``, and ``{name}_mean_accuracy``, the mean of the last.

    Args:
        examples: Columns ``source`` and ``target``; row i of one translates row i of the other. Written by
            `corpora.reading.translations`, with the language of every row.
        workspace: Holds the examples and their texts.
        split: ``dev`` may be used for selection; ``test`` is for the final report.
        name: Prefix of the figures' names; the language follows.
        search: Finds the nearest sentences; None searches in this process.

    Raises:
        BadInput: If a language has fewer than two rows, or the split is unknown.
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
        require(split in ("dev", "test"), "split in (dev, test)", split=split)
        self.name, self.split, self.search = name, split, search or LocalSearch()
        ids = open_rows(workspace, examples)
        sides = [open_texts(workspace, examples.columns[side])[ids[side]] for side in ("source", "target")]
        self.pairs: dict[str, list[list[str]]] = {}
        for language, span in language_spans(workspace, examples):
            require(len(span) >= 2, "rows >= 2", rows=len(span))
            self.pairs[language] = [side[span.start : span.stop] for side in sides]

    def __call__(self, model: Encoder) -> dict[str, float]:
        """Encode every text of a language once and search for the translations."""
        found = {}
        for language, sides in self.pairs.items():
            forth, back = (float(np.mean(each)) for each in hits(sides, model, self.search))
            found[language] = {"src2trg": forth, "trg2src": back, "mean": (forth + back) / 2}
        mean = float(np.mean([each["mean"] for each in found.values()]))
        return {f"{self.name}_mean_accuracy": mean} | {
            f"{self.name}_{language}_{kind}_accuracy": figure
            for language, each in found.items()
            for kind, figure in each.items()
        }


def hits(
    sides: Sequence[Sequence[str]], model: Encoder, search: Search
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return for each row whether the nearest sentence is its own translation, from the first side and back.

    Every distinct text is encoded once.
    """
    row_of = number(sides)
    first_N, second_N = (np.array([row_of[text] for text in side]) for side in sides)
    vectors_ND = unit(model.encode(list(row_of)))

    def found(from_N: IntArray, to_N: IntArray) -> npt.NDArray[np.bool_]:
        _, nearest_N1 = search.search(vectors_ND[to_N], vectors_ND[from_N], 1)
        # Equal indices are equal texts, because they point to distinct texts.
        return np.asarray(to_N[nearest_N1[:, 0]] == to_N)

    return found(first_N, second_N), found(second_N, first_N)
