"""Rank documents by the cosine of TF-IDF vectors, as scikit-learn's TfidfVectorizer weighs them.

Terms are lower-cased words of at least two characters (of scripts without blanks between words, such as
Chinese, each two neighbouring characters), weighed count × (ln((1 + N) / (1 + df)) + 1), rows of length 1.
DrQA, which the paper on retrieval distillation used, hashes uni- and bigrams, takes log counts and uses the
BM25 idf; ``ngrams=2`` is the closest setting here.

N  documents    T  distinct terms    Q  queries    B  queries of a block    K  depth of the ranking
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stillhouse.core.artifacts import replacing
from stillhouse.core.errors import require
from stillhouse.core.machine import cores
from stillhouse.corpora.reading.languages import UNSPACED
from stillhouse.corpora.tables import Texts

Scores = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]
Documents = Sequence[str] | Texts

PART = 1 << 16
"""Documents that are read at once."""
BLOCK_CELLS = 1 << 23
"""Scores that a thread holds at once (64 MiB)."""
_KEEP_SECONDS = 60.0
_WORD = re.compile(r"\b\w\w+\b")
_DIGITS = 10


class TfIdf:
    """An index over documents. It holds 12 bytes per document and distinct term of it, and every term.

    Args:
        documents: Texts; a document's id is its position.
        ngrams: Words in the longest term: 1 indexes single words, 2 adds pairs of neighbouring words.
        progress: Called with the number of documents read and the total.

    Raises:
        BadInput: If no document has a word, or a value is out of range.
    """

    def __init__(self, documents: Documents, *, ngrams: int = 1, progress: Progress | None = None) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        require(ngrams in (1, 2, 3), "ngrams in (1, 2, 3)", ngrams=ngrams)
        self._documents = len(documents)
        self._vectorizer = TfidfVectorizer(tokenizer=_words, token_pattern=None, ngram_range=(1, ngrams))
        has_words = any(_words(text.lower()) for text in _each(documents))
        require(has_words, "at least one document has a word of two characters", documents=len(self))
        self._weights_TN = self._vectorizer.fit_transform(_each(documents, progress)).T.tocsr()

    def __len__(self) -> int:
        """The number of documents."""
        return self._documents

    @property
    def terms(self) -> int:
        """The number of distinct terms."""
        return int(self._weights_TN.shape[0])

    def nearest(
        self, queries: Sequence[str], k: int, *, keep: Path | None = None, progress: Progress | None = None
    ) -> tuple[Scores, Ids]:
        """Find the k nearest documents of every query, best first: cosines (Q, K) and document ids (Q, K).

        Cosines that agree to 10 digits are ties, and the lower id comes first; this includes the zeros of
        documents and queries without a common word. The ranking of a query does not depend on the other
        queries.

        Args:
            queries: Texts.
            k: Depth, at most the number of documents.
            keep: File for the rankings so far, written once a minute and when the search is stopped. A search
                with the same arguments continues from it. The caller removes it.
            progress: Called with the number of queries done and the total.

        Raises:
            BadInput: If the depth is out of range.
        """
        require(1 <= k <= len(self), "1 <= k <= documents", k=k, documents=len(self))
        scores_QK, ids_QK = np.zeros((len(queries), k)), np.zeros((len(queries), k), np.int64)
        done = _read(keep, scores_QK, ids_QK)
        block = max(1, BLOCK_CELLS // len(self))
        starts = range(done, len(queries), block)
        pool, written = ThreadPoolExecutor(cores()), time.monotonic()
        try:
            ranked = pool.map(lambda at: self._rank(queries[at : at + block], k), starts)
            for start, found in zip(starts, ranked, strict=True):
                done = min(start + block, len(queries))
                scores_QK[start:done], ids_QK[start:done] = found
                if progress:
                    progress(done, len(queries))
                if time.monotonic() - written > _KEEP_SECONDS:
                    _write(keep, scores_QK, ids_QK, done)
                    written = time.monotonic()
        finally:
            pool.shutdown(cancel_futures=True)
            if done < len(queries):
                _write(keep, scores_QK, ids_QK, done)
        return scores_QK, ids_QK

    def _rank(self, queries: Sequence[str], k: int) -> tuple[Scores, Ids]:
        cosines_BN = np.round((self._vectorizer.transform(queries) @ self._weights_TN).toarray(), _DIGITS)
        ids_BK = np.array([_highest(cosines_N, k) for cosines_N in cosines_BN])
        return np.take_along_axis(cosines_BN, ids_BK, axis=1), ids_BK


def _each(documents: Documents, progress: Progress | None = None) -> Iterator[str]:
    for first in range(0, len(documents), PART):
        yield from documents[first : first + PART]
        if progress:
            progress(min(len(documents), first + PART), len(documents))


def _words(text: str) -> list[str]:
    """The words of a lower-cased text; of a run of characters without blanks, each two neighbours."""
    if text.isascii():
        return _WORD.findall(text)
    pairs = [run[at : at + 2] for run in UNSPACED.findall(text) for at in range(max(1, len(run) - 1))]
    return [*_WORD.findall(UNSPACED.sub(" ", text)), *pairs]


def _highest(scores_N: Scores, k: int) -> Ids:
    """Return the ids of the k highest scores; among equal ones, also at the cut, lower ids come first."""
    lowest = np.partition(scores_N, len(scores_N) - k)[len(scores_N) - k]
    ids = np.flatnonzero(scores_N >= lowest)
    return np.asarray(ids[np.argsort(-scores_N[ids], kind="stable")][:k], np.int64)


def _read(keep: Path | None, scores_QK: Scores, ids_QK: Ids) -> int:
    """Fill in the rankings that were kept, and return their number."""
    if keep is None or not keep.exists():
        return 0
    with np.load(keep) as kept:
        scores_QK[:], ids_QK[:] = kept["scores"], kept["ids"]
        return int(kept["done"])


def _write(keep: Path | None, scores_QK: Scores, ids_QK: Ids, done: int) -> None:
    """Keep the rankings so far, completely or not at all."""
    if keep is not None:
        with replacing(keep) as temporary, temporary.open("wb") as file:
            np.savez(file, scores=scores_QK, ids=ids_QK, done=done)
