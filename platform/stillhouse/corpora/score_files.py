"""Writing scored text in the forms that `corpora.reading.labelled` reads: JSON lines, one row per query.

* ``scores``: sentence-transformers. ``query``, ``positive``, ``negative_1`` … ``negative_K``, and ``scores``
  with one number per passage, the positive's first.
* ``scores-flag``: FlagEmbedding. ``query``, and the lists ``pos``, ``neg``, ``pos_scores`` and
  ``neg_scores``.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from stillhouse.core.user_files import writing
from stillhouse.corpora.reading.forms import ScoredRow


def _stock(row: ScoredRow) -> dict[str, Any]:
    positive, *negatives = row.passages
    numbered = {f"negative_{number}": text for number, text in enumerate(negatives, start=1)}
    return {"query": row.query, "positive": positive, **numbered, "scores": list(row.scores)}


def _flag(row: ScoredRow) -> dict[str, Any]:
    texts, scores = list(row.passages), list(row.scores)
    return {
        "query": row.query,
        "pos": texts[:1],
        "neg": texts[1:],
        "pos_scores": scores[:1],
        "neg_scores": scores[1:],
    }


SCORE_FORMS: dict[str, Callable[[ScoredRow], dict[str, Any]]] = {"scores": _stock, "scores-flag": _flag}
"""The forms by name."""


def write_scored(path: Path, rows: Iterable[ScoredRow], form: str) -> int:
    """Write scored rows as JSON lines in one of `SCORE_FORMS`, all or nothing, and return their number.

    A score is written with all digits of its float32, so that reading it gives the same number.
    """
    count, columns = 0, SCORE_FORMS[form]
    with writing(path) as file:
        for row in rows:
            file.write(json.dumps(columns(row), ensure_ascii=False) + "\n")
            count += 1
    return count
