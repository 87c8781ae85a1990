"""Rank documents by the cosine of TF-IDF vectors, up to millions of documents.

The weights are the defaults of scikit-learn's TfidfVectorizer: lower-cased words of at least two characters
(of scripts without blanks between words, such as Chinese, each two neighbouring characters),
count × (ln((1 + N) / (1 + df)) + 1), rows of length 1. DrQA, which the paper on retrieval distillation used,
hashes uni- and bigrams, takes log counts and uses the BM25 idf; ``ngrams=2`` is the closest setting here.

Documents are held as the ids of their words; their vectors are computed part by part while searching, for
the terms of the queries alone. A term is a key that is made of its words' ids, so there is neither a
dictionary of terms nor a collision. After the first part, the lowest of the k best scores of a query so far
is a threshold, as in MaxScore (Turtle and Flood, 1995): what a query's most frequent terms can add to a
cosine is bounded by the Cauchy–Schwarz inequality, and documents that cannot reach the threshold are not
scored. The result is the same as that of scoring all of them.

N  documents    V  distinct terms    Q  queries    K  depth of the ranking
T  distinct terms of the queries     D  documents of a part    P  pairs of a query and a document
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import sparse

from stillhouse.core.artifacts import replacing
from stillhouse.core.errors import require
from stillhouse.corpora.reading.languages import UNSPACED

Scores = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Matrix = sparse.csr_matrix

PART = 1 << 16
"""Documents per part."""
BLOCK_CELLS = 1 << 23
"""Scores held at once (64 MiB)."""
FREQUENT = 1 / 16
"""Terms in a larger share of the documents are the frequent ones."""
_ODD = 1 / 256
"""Share of a part's documents that are scored in any case: those made of frequent terms most of all."""

KEY_BITS = 63
"""Bits of a term's key, shared by its words."""

_WORD = re.compile(r"\b\w\w+\b")
_DIGITS = 10
_ROUNDING = 1e-9
"""More than rounding to 10 digits and the order of a sum can change."""
_UNKNOWN = 0


@dataclass(frozen=True)
class _Texts:
    """Texts as word ids: those of all texts end to end, and the number of words of each text."""

    words: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class _Counts:
    """Occurrences of each term in each text: distinct keys, ascending, and a matrix (texts, terms)."""

    keys: Ids
    counts: Matrix


class Documents(Protocol):
    """Texts that are read slice by slice, such as a list or a table."""

    def __len__(self) -> int:
        """The number of texts."""
        ...

    def __getitem__(self, part: slice, /) -> Sequence[str]:
        """Some consecutive texts."""
        ...


class TfIdf:
    """An index over documents. It holds 4 bytes per word of the documents and 16 per distinct term.

    Args:
        documents: Texts; a document's id is its position.
        ngrams: Words in the longest term: 1 indexes single words, 2 adds pairs of neighbouring words.
        progress: Called with the number of documents read and the total.

    Raises:
        BadInput: If no document has a word, or a value is out of range.
    """

    def __init__(
        self,
        documents: Documents,
        *,
        ngrams: int = 1,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        require(ngrams in (1, 2, 3), "ngrams in (1, 2, 3)", ngrams=ngrams)
        self._ngrams, self._bits = ngrams, KEY_BITS // ngrams
        self._ids: dict[str, int] = {}
        self._documents = len(documents)
        self._parts: list[_Texts] = []
        for first in range(0, len(documents), PART):
            self._parts.append(self._read(documents[first : first + PART], grow=True))
            if progress:
                progress(min(len(documents), first + PART), len(documents))
        require(bool(self._ids), "at least one document has a word of two characters", documents=len(self))
        require(
            len(self._ids) < 1 << self._bits,
            f"fewer than 2^{self._bits} distinct words with ngrams={ngrams}",
            words=len(self._ids),
            remedy="Take shorter terms.",
        )
        self._keys, self._df = _merged(self._frequencies(part) for part in self._parts)

    def __len__(self) -> int:
        """The number of documents."""
        return self._documents

    @property
    def terms(self) -> int:
        """The number of distinct terms."""
        return len(self._keys)

    def nearest(
        self,
        queries: Sequence[str],
        k: int,
        *,
        keep: Path | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[Scores, Ids]:
        """Find the k nearest documents of every query, best first.

        Cosines that agree to 10 digits are ties, and the lower id comes first; this includes the zeros of
        documents and queries without a common word. The ranking of a query does not depend on the other
        queries.

        Args:
            queries: Texts.
            k: Depth, at most the number of documents.
            keep: File for the best documents of the parts so far, written after every part. A search with the
                same arguments continues from it. The caller removes it.
            progress: Called with the number of documents done and the total.

        Returns:
            Cosines (Q, K) and document ids (Q, K).

        Raises:
            BadInput: If the depth is out of range.
        """
        require(1 <= k <= len(self), "1 <= k <= documents", k=k, documents=len(self))
        queries_QT, keys_T, idf_T = self._queries(queries)
        # A term of idf i is in a share of exp(1 - i) of the documents.
        frequent_T = np.exp(1 - idf_T) > FREQUENT
        best = _Best.start(keep, len(queries), k)
        for number in range(best.parts, len(self._parts)):
            documents_DT = self._weights(self._parts[number], keys_T)
            _search(queries_QT, documents_DT, frequent_T, number * PART, best)
            best.parts = number + 1
            best.write(keep)
            if progress:
                progress(min(len(self), (number + 1) * PART), len(self))
        return best.scores_QK, best.ids_QK

    def _read(self, texts: Sequence[str], *, grow: bool) -> _Texts:
        """Turn texts into word ids; a word that is not known gets an id where ``grow``."""
        ids = self._ids
        words: list[npt.NDArray[np.int32]] = []
        for text in texts:
            found = _words(text.lower())
            if grow:
                row = [ids.setdefault(word, len(ids) + 1) for word in found]
            else:
                row = [ids.get(word, _UNKNOWN) for word in found]
            words.append(np.array(row, np.int32))
        lengths = np.array([len(row) for row in words], np.int32)
        return _Texts(np.concatenate([np.empty(0, np.int32), *words]), lengths)

    def _counted(self, texts: _Texts) -> _Counts:
        """Count the terms of texts; those with an unknown word are left out."""
        row_of = np.repeat(np.arange(len(texts), dtype=np.int32), texts.lengths)
        keys, rows = [], []
        for length in range(1, self._ngrams + 1):
            ends = max(0, len(row_of) - length + 1)
            within = row_of[:ends] == row_of[length - 1 :] if ends else np.empty(0, bool)
            key = np.zeros(ends, np.int64)
            for place in range(self._ngrams):
                key <<= self._bits if place else 0  # Terms of different lengths share no key: no id is 0.
                if place < length:
                    word = texts.words[place : place + ends]
                    within &= word != _UNKNOWN
                    key |= word
            keys.append(key[within])
            rows.append(row_of[:ends][within])
        terms, columns = np.unique(np.concatenate(keys), return_inverse=True)
        row = np.concatenate(rows)
        shape = (len(texts), len(terms))
        return _Counts(terms, sparse.csr_matrix((np.ones(len(row)), (row, columns)), shape))

    def _frequencies(self, part: _Texts) -> tuple[Ids, Ids]:
        counted = self._counted(part)
        return counted.keys, np.bincount(counted.counts.indices, minlength=len(counted.keys))

    def _idf(self, keys: Ids) -> Scores:
        df = self._df[np.searchsorted(self._keys, keys)]
        return np.asarray(np.log((1 + len(self)) / (1 + df)) + 1, np.float64)

    def _queries(self, queries: Sequence[str]) -> tuple[Matrix, Ids, Scores]:
        """Return the vectors of queries, the keys of their columns and the idf of those."""
        counted = self._counted(self._read(queries, grow=False))
        known = np.isin(counted.keys, self._keys, assume_unique=True)
        keys = counted.keys[known]
        idf = self._idf(keys)
        vectors = sparse.csr_matrix(counted.counts[:, known])
        return _unit(vectors, idf), keys, idf

    def _weights(self, part: _Texts, keys_T: Ids) -> Matrix:
        """Return the vectors of a part's documents (D, T), in the columns of the queries' terms alone."""
        counted = self._counted(part)
        vectors = _unit(counted.counts, self._idf(counted.keys))
        place = np.searchsorted(keys_T, counted.keys)
        column = np.where(np.isin(counted.keys, keys_T, assume_unique=True), place, -1)
        chosen = column[vectors.indices] >= 0
        before = np.concatenate([[0], np.cumsum(chosen)])[vectors.indptr]
        return sparse.csr_matrix(
            (vectors.data[chosen], column[vectors.indices[chosen]], before), (len(part), len(keys_T))
        )


@dataclass
class _Best:
    """The best k documents of each query among the parts so far; without one yet, score and id are -1."""

    scores_QK: Scores
    ids_QK: Ids
    parts: int = 0

    @staticmethod
    def start(keep: Path | None, queries: int, k: int) -> "_Best":
        """Begin, or continue from a file."""
        if keep is not None and keep.exists():
            with np.load(keep) as kept:
                return _Best(kept["scores"], kept["ids"], int(kept["parts"]))
        return _Best(np.full((queries, k), -1.0), np.full((queries, k), -1, np.int64))

    def write(self, keep: Path | None) -> None:
        """Write it to a file, completely or not at all."""
        if keep is not None:
            with replacing(keep) as temporary, temporary.open("wb") as file:
                np.savez(file, scores=self.scores_QK, ids=self.ids_QK, parts=self.parts)

    def add(self, rows_P: Ids, scores_P: Scores, ids_P: Ids) -> None:
        """Take further pairs of a query and a document, whose ids are higher than those known."""
        changed, place = np.unique(rows_P, return_inverse=True)
        depth = self.scores_QK.shape[1]
        rows = np.concatenate([np.repeat(np.arange(len(changed)), depth), place])
        scores = np.concatenate([self.scores_QK[changed].ravel(), np.round(scores_P, _DIGITS)])
        ids = np.concatenate([self.ids_QK[changed].ravel(), ids_P])
        order = np.lexsort((ids, -scores, rows))
        starts = np.searchsorted(rows[order], np.arange(len(changed)))
        kept = order[starts[:, None] + np.arange(depth)]
        self.scores_QK[changed], self.ids_QK[changed] = scores[kept], ids[kept]


def _search(
    queries_QT: Matrix, documents_DT: Matrix, frequent_T: npt.NDArray[np.bool_], first: int, best: _Best
) -> None:
    """Add the nearest documents of a part, whose ids start at ``first``."""
    weights_TD = sparse.csr_matrix(documents_DT.T)
    known_Q = best.ids_QK[:, -1] >= 0
    every = np.full(len(known_Q), documents_DT.shape[0])
    for rows in _blocks(np.flatnonzero(~known_Q), every):
        cosines_BD = np.round((queries_QT[rows] @ weights_TD).toarray(), _DIGITS)
        depth = min(best.scores_QK.shape[1], cosines_BD.shape[1])
        ids_BK = np.array([_highest(cosines_D, depth) for cosines_D in cosines_BD])
        scores_BK = np.take_along_axis(cosines_BD, ids_BK, axis=1)
        best.add(np.repeat(rows, depth), scores_BK.ravel(), first + ids_BK.ravel())
    if known_Q.any():
        _search_above(queries_QT, documents_DT, weights_TD, frequent_T, known_Q, first, best)


def _search_above(
    queries_QT: Matrix,
    documents_DT: Matrix,
    weights_TD: Matrix,
    frequent_T: npt.NDArray[np.bool_],
    known_Q: npt.NDArray[np.bool_],
    first: int,
    best: _Best,
) -> None:
    """Add the documents of a part that reach the lowest of the k best so far of the ``known`` queries."""
    frequent_D = _norms(documents_DT, frequent_T)
    odd = np.flatnonzero(frequent_D > np.quantile(frequent_D, 1 - _ODD))
    odd_TO = sparse.csr_matrix(documents_DT[odd].T)
    frequent_D[odd] = 0
    lowest_Q = best.scores_QK[:, -1] - _ROUNDING
    heads_QT, rest_Q = _split(queries_QT, frequent_T, lowest_Q / max(_ROUNDING, frequent_D.max(initial=0)))
    products_Q = heads_QT.astype(bool).astype(np.int64) @ np.diff(weights_TD.indptr)
    for rows in _blocks(np.flatnonzero(known_Q), products_Q):
        found = (heads_QT[rows] @ weights_TD).tocoo()
        query = rows[found.row]
        near = found.data + rest_Q[query] * frequent_D[found.col] >= lowest_Q[query]
        found_odd = (queries_QT[rows] @ odd_TO).tocoo()
        near_odd = found_odd.data >= lowest_Q[rows[found_odd.row]]
        pairs = np.concatenate(
            [
                np.stack([query[near], found.col[near]], axis=1),
                np.stack([rows[found_odd.row[near_odd]], odd[found_odd.col[near_odd]]], axis=1),
            ]
        )
        query, document = np.unique(pairs, axis=0).T
        exact = queries_QT[query].multiply(documents_DT[document]).sum(axis=1)
        best.add(query, np.asarray(exact).ravel(), first + document)


def _split(queries_QT: Matrix, frequent_T: npt.NDArray[np.bool_], longest_Q: Scores) -> tuple[Matrix, Scores]:
    """Take the most frequent terms of every query away, as long as their part is shorter than a length.

    Returns:
        The queries without them (Q, T), and the length of what was taken (Q,).
    """
    queries = queries_QT.shape[0]
    query = np.repeat(np.arange(queries), np.diff(queries_QT.indptr))
    # Those of a query that are frequent, the lightest first: a term's weight falls with its frequency.
    entries = np.flatnonzero(frequent_T[queries_QT.indices])
    entries = entries[np.lexsort((queries_QT.data[entries], query[entries]))]
    owner, squares = query[entries], queries_QT.data[entries] ** 2
    sums = np.cumsum(squares)
    before = np.concatenate([[0.0], sums])[np.searchsorted(owner, np.arange(queries))]
    taken = np.sqrt(np.maximum(sums - before[owner], 0)) < longest_Q[owner]
    rest_Q = np.sqrt(np.bincount(owner[taken], squares[taken], minlength=queries))
    # The running sum of all queries is rounded: what it let through too much is put back.
    taken &= (rest_Q < longest_Q)[owner]
    rest_Q[rest_Q >= longest_Q] = 0
    heads = queries_QT.copy()
    heads.data[entries[taken]] = 0
    heads.eliminate_zeros()
    return heads, rest_Q


def _blocks(rows: Ids, widths: npt.NDArray[np.integer]) -> Iterator[Ids]:
    """Cut rows into blocks that hold at most `BLOCK_CELLS` products together, or a single row."""
    block = np.cumsum(widths[rows], dtype=np.int64) // BLOCK_CELLS
    return (part for part in np.split(rows, np.flatnonzero(np.diff(block)) + 1) if len(part))


def _norms(vectors: Matrix, terms: npt.NDArray[np.bool_]) -> Scores:
    """Length of every row in some of its columns."""
    return np.asarray(np.sqrt(vectors.multiply(vectors) @ terms.astype(np.float64)), np.float64)


def _unit(counts: Matrix, idf: Scores) -> Matrix:
    """Weigh counts, (rows, terms), and divide every row by its length; rows without a term stay 0."""
    weights = counts.data * idf[counts.indices]
    row_of = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    lengths = np.sqrt(np.bincount(row_of, weights * weights, minlength=counts.shape[0]))
    return sparse.csr_matrix((weights / lengths[row_of], counts.indices, counts.indptr), counts.shape)


def _words(text: str) -> list[str]:
    """The words of a lower-cased text; of a run of characters without blanks, each two neighbours."""
    if text.isascii():
        return _WORD.findall(text)
    pairs = [run[at : at + 2] for run in UNSPACED.findall(text) for at in range(max(1, len(run) - 1))]
    return [*_WORD.findall(UNSPACED.sub(" ", text)), *pairs]


def _merged(runs: Iterator[tuple[Ids, Ids]]) -> tuple[Ids, Ids]:
    """Add up the counts of equal keys of ascending runs; runs of one size are merged first."""
    kept: list[tuple[Ids, Ids]] = []
    for run in runs:
        kept.append(run)
        while len(kept) > 1 and len(kept[-2][0]) <= 2 * len(kept[-1][0]):
            kept.append(_merge(kept.pop(), kept.pop()))
    while len(kept) > 1:
        kept.append(_merge(kept.pop(), kept.pop()))
    return kept[0]


def _merge(one: tuple[Ids, Ids], other: tuple[Ids, Ids]) -> tuple[Ids, Ids]:
    keys, counts = (np.concatenate(both) for both in zip(one, other, strict=True))
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[starts], np.add.reduceat(counts, starts)


def _highest(scores_N: Scores, k: int) -> Ids:
    """Return the ids of the k highest scores; among equal ones, also at the cut, lower ids come first."""
    lowest = np.partition(scores_N, len(scores_N) - k)[len(scores_N) - k]
    ids = np.flatnonzero(scores_N >= lowest)
    return np.asarray(ids[np.argsort(-scores_N[ids], kind="stable")][:k], np.int64)
