"""Rank documents by the cosine of TF-IDF vectors.

The weights are the defaults of scikit-learn's TfidfVectorizer: lower-cased words of at least two characters,
count × (ln((1 + N) / (1 + df)) + 1), rows of length 1. DrQA, which the paper on retrieval distillation used,
hashes uni- and bigrams, takes log counts and uses the BM25 idf; ``ngrams=2`` is the closest setting here.

N  documents    V  terms    Q  queries    K  depth of the ranking
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stillhouse.core.errors import require

Scores = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

BLOCK_CELLS = 1 << 23
"""Scores held at once (64 MiB); the number of queries per block is this number divided by the documents."""

_DIGITS = 10


class TfIdf:
    """An index over documents. It holds one weight for every distinct term of a document.

    Args:
        documents: Texts; a document's id is its position.
        ngrams: Words in the longest term: 1 indexes single words, 2 adds pairs of neighbouring words.

    Raises:
        BadInput: If no document has a word, or a value is out of range.
    """

    def __init__(self, documents: Sequence[str], *, ngrams: int = 1) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        require(ngrams in (1, 2, 3), "ngrams in (1, 2, 3)", ngrams=ngrams)
        self._vectorizer = TfidfVectorizer(ngram_range=(1, ngrams))
        has_word = any(map(self._vectorizer.build_analyzer(), documents))
        require(has_word, "at least one document has a word of two characters", documents=len(documents))
        self._documents_VN = self._vectorizer.fit_transform(documents).T.tocsr()

    def __len__(self) -> int:
        """The number of documents."""
        return int(self._documents_VN.shape[1])

    def nearest(self, queries: Sequence[str], k: int) -> tuple[Scores, Ids]:
        """Find the k nearest documents of every query, best first.

        Cosines that agree to 10 digits are ties, and the lower id comes first; this includes the zeros of
        documents and queries without a common word. The ranking of a query does not depend on the other
        queries.

        Args:
            queries: Texts.
            k: Depth, at most the number of documents.

        Returns:
            Cosines (Q, K) and document ids (Q, K).

        Raises:
            BadInput: If the depth is out of range.
        """
        require(1 <= k <= len(self), "1 <= k <= documents", k=k, documents=len(self))
        scores_QK = np.empty((len(queries), k), np.float64)
        ids_QK = np.empty((len(queries), k), np.int64)
        rows = max(1, BLOCK_CELLS // len(self))
        for first in range(0, len(queries), rows):
            queries_BV = self._vectorizer.transform(queries[first : first + rows])
            cosines_BN = (queries_BV @ self._documents_VN).toarray()
            for row, cosines_N in enumerate(np.round(cosines_BN, _DIGITS), start=first):
                ids_QK[row] = _best(cosines_N, k)
                scores_QK[row] = cosines_N[ids_QK[row]]
        return scores_QK, ids_QK


def _best(scores_N: Scores, k: int) -> Ids:
    """Return the ids of the k highest scores; among equal ones, also at the cut, lower ids come first."""
    lowest = np.partition(scores_N, len(scores_N) - k)[len(scores_N) - k]
    ids = np.flatnonzero(scores_N >= lowest)
    return np.asarray(ids[np.argsort(-scores_N[ids], kind="stable")][:k], np.int64)
