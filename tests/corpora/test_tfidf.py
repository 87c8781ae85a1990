"""TF-IDF compared with scikit-learn, including ties, blocks and odd texts."""

import itertools
import string
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from stillhouse.core.errors import BadInput
from stillhouse.corpora import tfidf
from stillhouse.corpora.tfidf import TfIdf


def some_texts(count: int, seed: int, longest: int = 40) -> list[str]:
    draw = np.random.default_rng(seed)
    words = ["".join(pair) for pair in itertools.product(string.ascii_lowercase[:12], "aeiou")]
    words += ["Über", "naïve", "x", "co-op", "42", "snake_case", "don't"]
    skewed = 1 / np.arange(1, len(words) + 1)
    return [
        " ".join(draw.choice(words, draw.integers(0, longest), p=skewed / skewed.sum())) for _ in range(count)
    ]


def reference(documents: list[str], queries: list[str], ngrams: int) -> npt.NDArray[np.float64]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(ngram_range=(1, ngrams))
    documents_NV = vectorizer.fit_transform(documents)
    return np.asarray((vectorizer.transform(queries) @ documents_NV.T).toarray())


@pytest.mark.parametrize("ngrams", [1, 2])
def test_the_ranking_matches_scikit_learn_with_ties_by_id(ngrams: int) -> None:
    documents, queries = some_texts(300, seed=0), some_texts(60, seed=1, longest=9)
    documents += documents[:40]  # exact ties
    expected = np.round(reference(documents, queries, ngrams), 10)
    scores, ids = TfIdf(documents, ngrams=ngrams).nearest(queries, 50)
    for row in range(len(queries)):
        order = np.lexsort((np.arange(len(documents)), -expected[row]))[:50].tolist()
        assert ids[row].tolist() == order
        np.testing.assert_allclose(scores[row], expected[row, order], atol=1.1e-10)


def test_a_stopped_search_continues_after_its_last_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, queries = some_texts(50, seed=8), some_texts(30, seed=9, longest=9)
    monkeypatch.setattr(tfidf, "BLOCK_CELLS", 250)
    index, keep = TfIdf(documents), tmp_path / "best.npz"
    whole, seen = index.nearest(queries, 7), []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 15:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.nearest(queries, 7, keep=keep, progress=stop)
    again = TfIdf(documents).nearest(queries, 7, keep=keep, progress=lambda *at: seen.append(at))
    assert seen == [(done, 30) for done in range(5, 35, 5)]
    assert all(np.array_equal(one, other) for one, other in zip(whole, again, strict=True))


def test_by_hand() -> None:
    index = TfIdf(["red river", "red red sun", "moon", "Red river!"])
    scores, ids = index.nearest(["the red river", "moon", "nothing known"], 3)
    assert ids.tolist() == [[0, 3, 1], [2, 0, 1], [0, 1, 2]]
    assert scores[0, 0] == scores[0, 1] == pytest.approx(1) and scores[1].tolist() == [1, 0, 0]
    assert scores[2].tolist() == [0, 0, 0]
    idf_red, idf_sun = np.log(5 / 4) + 1, np.log(5 / 2) + 1
    idf_river = np.log(5 / 3) + 1
    query = np.array([idf_red, idf_river]) / np.hypot(idf_red, idf_river)
    assert scores[0, 2] == pytest.approx(query[0] * 2 * idf_red / np.hypot(2 * idf_red, idf_sun))


def test_permuted_words_tie_exactly() -> None:
    words = [f"w{i:02}" for i in range(40)]
    documents = [" ".join(words[i:] + words[:i]) for i in range(20)]
    documents += [" ".join(w.replace("w", "v") for w in words)]
    _, ids = TfIdf(documents).nearest([" ".join(reversed(words))], 20)
    assert ids.tolist() == [list(range(20))]


def test_blocks_of_queries_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    documents, queries = some_texts(50, seed=2), some_texts(23, seed=3)
    index = TfIdf(documents)
    whole = index.nearest(queries, 7)
    monkeypatch.setattr(tfidf, "BLOCK_CELLS", 200)
    blocks = index.nearest(queries, 7)
    alone = index.nearest(queries[5:6], 7)
    for at in range(2):
        assert np.array_equal(whole[at], blocks[at])
        assert np.array_equal(whole[at][5:6], alone[at])


def test_all_documents_and_no_queries() -> None:
    index = TfIdf(["one two", "two three"])
    assert len(index) == 2
    assert index.nearest(["three"], 2)[1].tolist() == [[1, 0]]
    assert index.nearest([], 2)[1].shape == (0, 2)


def test_bad_documents_and_depths_are_refused() -> None:
    with pytest.raises(BadInput, match="a word"):
        TfIdf(["", "a !"])
    with pytest.raises(BadInput, match="a word"):
        TfIdf([])
    with pytest.raises(BadInput, match="ngrams"):
        TfIdf(["two words"], ngrams=0)
    for k in (0, 2):
        with pytest.raises(BadInput, match="documents=1"):
            TfIdf(["two words"]).nearest(["two"], k)


def test_the_words_of_text_without_blanks_are_pairs_of_characters() -> None:
    documents = ["今天天气很好", "我们去公园散步", "Iron rusts in the 公园"]
    index = TfIdf(documents)
    assert index.nearest(["去公园", "天气", "iron"], 1)[1].tolist() == [[1], [0], [2]]
    assert np.allclose(index.nearest(["京都"], 3)[0], 0)
