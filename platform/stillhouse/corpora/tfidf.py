"""The documents nearest to a query by the cosine of their TF-IDF vectors.

Weights as scikit-learn's TfidfVectorizer has them by default: lower-cased words of two characters and more,
count × (ln((1 + N) / (1 + df)) + 1), rows of length 1. DrQA, which the paper on retrieval distillation used,
hashes uni- and bigrams and takes log counts and the BM25 idf; ``ngrams=2`` is the nearest to it here.

N  documents    V  terms    Q  queries    K  depth of the ranking
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

from stillhouse.core.errors import require

Scores = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

BLOCK_CELLS = 1 << 23
"""Scores held at once, 64 MiB of them: queries are taken in blocks of so many divided by the documents."""

_WORD = re.compile(r"\b\w\w+\b")
_DIGITS = 10


class TfIdf:
    """An index over documents. It holds one weight for every different term of a document.

    Args:
        documents: In the order of their ids, from 0.
        ngrams: Words of the longest term: 1 is words alone, 2 adds pairs of neighbours.

    Raises:
        BadInput: No document has a word, or a value is out of range.
    """

    def __init__(self, documents: Sequence[str], *, ngrams: int = 1) -> None:
        require(ngrams in (1, 2, 3), "ngrams in (1, 2, 3)", ngrams=ngrams)
        self.ngrams = ngrams
        counts = [Counter(_terms(text, ngrams)) for text in documents]
        # Sorted, so that sums run in an order that no dictionary decides.
        self._columns = {term: v for v, term in enumerate(sorted(set().union(*counts)))}
        require(bool(self._columns), "a document has a word of two characters", documents=len(documents))
        counts_NV = self._matrix(counts)
        df_V = np.bincount(counts_NV.indices, minlength=len(self._columns))
        self._idf_V = np.log((1 + len(documents)) / (1 + df_V)) + 1
        self._documents_VN = sparse.csr_array(self._weighted(counts_NV).T)

    def __len__(self) -> int:
        """The number of documents."""
        return int(self._documents_VN.shape[1])

    def nearest(self, queries: Sequence[str], k: int) -> tuple[Scores, Ids]:
        """The k nearest documents of every query, best first.

        Cosines that agree to 10 digits are ties, and go to the lower id; so do the zeros of documents, and of
        queries, without a common word. A query's ranking does not depend on the other queries.

        Args:
            queries: Texts.
            k: At most the number of documents.

        Returns:
            Cosines (Q, K) and document ids (Q, K).

        Raises:
            BadInput: A depth out of range.
        """
        require(1 <= k <= len(self), "1 <= k <= documents", k=k, documents=len(self))
        scores_QK = np.empty((len(queries), k), np.float64)
        ids_QK = np.empty((len(queries), k), np.int64)
        rows = max(1, BLOCK_CELLS // len(self))
        for first in range(0, len(queries), rows):
            block = [Counter(_terms(text, self.ngrams)) for text in queries[first : first + rows]]
            cosines_BN = (self._weighted(self._matrix(block)) @ self._documents_VN).toarray()
            for row, cosines_N in enumerate(np.round(cosines_BN, _DIGITS), start=first):
                ids_QK[row] = _best(cosines_N, k)
                scores_QK[row] = cosines_N[ids_QK[row]]
        return scores_QK, ids_QK

    def _matrix(self, counts: Sequence[Counter[str]]) -> "sparse.csr_array[np.float64]":
        """Counts of the known terms, a row a text, columns rising within a row."""
        lines = [
            np.array(
                sorted((self._columns[term], n) for term, n in terms.items() if term in self._columns),
                np.int64,
            ).reshape(-1, 2)
            for terms in counts
        ]
        ends = np.cumsum([0, *(len(line) for line in lines)], dtype=np.int64)
        cells = np.concatenate([np.empty((0, 2), np.int64), *lines])
        shape = (len(lines), len(self._columns))
        return sparse.csr_array((cells[:, 1].astype(np.float64), cells[:, 0], ends), shape=shape)

    def _weighted(self, counts_BV: "sparse.csr_array[np.float64]") -> "sparse.csr_array[np.float64]":
        weights = counts_BV.data * self._idf_V[counts_BV.indices]
        of_cell = np.repeat(np.arange(counts_BV.shape[0]), np.diff(counts_BV.indptr))
        lengths_B = np.sqrt(np.bincount(of_cell, weights**2, minlength=counts_BV.shape[0]))
        cells = (weights / lengths_B[of_cell], counts_BV.indices, counts_BV.indptr)
        return sparse.csr_array(cells, shape=counts_BV.shape)


def _terms(text: str, ngrams: int) -> Iterator[str]:
    words = _WORD.findall(text.lower())
    yield from words
    for size in range(2, ngrams + 1):
        yield from (" ".join(words[at : at + size]) for at in range(len(words) - size + 1))


def _best(scores_N: Scores, k: int) -> Ids:
    """The ids of the k highest scores; among equals, at the edge of the top k too, the lower ids."""
    lowest = np.partition(scores_N, len(scores_N) - k)[len(scores_N) - k]
    ids = np.flatnonzero(scores_N >= lowest)
    return np.asarray(ids[np.argsort(-scores_N[ids], kind="stable")][:k], np.int64)
