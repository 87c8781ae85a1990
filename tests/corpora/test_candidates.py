import numpy as np
import pytest

from stillhouse.core.errors import BadInput
from stillhouse.corpora.candidates import coverage, pick_candidates

RANKED = np.array([[5, 3, 1, 0, 9], [2, 4, 6, 8, 0], [7, 1, 2, 3, 4]])
GOLD = [[3], {8, 0, 2}, (30, 20)]


def test_gold_is_labelled_and_counted() -> None:
    picked = pick_candidates(RANKED, GOLD, 3, force_gold=False)
    assert picked.ids_QC.tolist() == RANKED[:, :3].tolist() and picked.ids_QC.dtype == np.int64
    assert picked.labels_QC.tolist() == [[False, True, False], [True, False, False], [False] * 3]
    assert picked.gold_counts_Q.tolist() == [1, 3, 2]


def test_forced_gold_replaces_the_lowest_ranks_and_no_gold_is_lost() -> None:
    picked = pick_candidates(RANKED, GOLD, 3, force_gold=True)
    assert picked.ids_QC.tolist() == [[5, 3, 1], [2, 0, 8], [7, 20, 30]]
    assert picked.labels_QC.tolist() == [[False, True, False], [True] * 3, [False, True, True]]
    assert RANKED[1].tolist() == [2, 4, 6, 8, 0]


def test_more_gold_than_candidates() -> None:
    picked = pick_candidates(RANKED[:1], [[8, 3, 7, 6]], 2, force_gold=True)
    assert picked.ids_QC.tolist() == [[6, 3]] and picked.labels_QC.all()
    assert picked.gold_counts_Q.tolist() == [4]
    assert pick_candidates(RANKED[:1], [[5, 3, 7]], 2, force_gold=True).ids_QC.tolist() == [[5, 3]]


def test_coverage_by_hand() -> None:
    assert coverage(RANKED, GOLD, (1, 2, 4, 5)) == {1: 0, 2: 1 / 3, 4: 1 / 3, 5: 2 / 3}
    assert coverage(RANKED, [[5], [2], [7, 1]], (1, 2)) == {1: 2 / 3, 2: 1}


def test_mismatched_rankings_are_refused() -> None:
    with pytest.raises(BadInput, match="for every claim"):
        pick_candidates(RANKED, GOLD[:2], 2, force_gold=False)
    for c in (0, 6):
        with pytest.raises(BadInput, match="depth=5"):
            pick_candidates(RANKED, GOLD, c, force_gold=True)
    with pytest.raises(BadInput, match="relevant document"):
        coverage(RANKED, [[3], [], [1]], (1,))
    with pytest.raises(BadInput, match="0 of 0 claims have none"):
        coverage(RANKED[:0], [], (1,))
