import numpy as np
import pytest
import torch
from torch.nn import functional

from stillhouse.plan import Examples, Given, Mined, Model, Store, TextTable
from stillhouse.training import mining
from stillhouse.training.mining import known_positives, nearest

TEXTS = TextTable(sha256="0" * 64)


def rule(negatives: int = 3, first: int = 1, margin: float = 1.0) -> Mined:
    store = Store(TEXTS, Model("1" * 64))
    pairs = Examples({"query": TEXTS, "passage": TEXTS}, Given("2" * 64))
    return Mined(pairs, store, store, negatives=negatives, first=first, margin=margin)


def slow(
    queries: torch.Tensor, passages: torch.Tensor, own: list[int], positives: list[set[int]], how: Mined
) -> list[list[int]]:
    """The rule, word for word."""
    found = []
    for query, mine, known in zip(queries, own, positives, strict=True):
        cosines = (passages @ query).tolist()
        ranked = sorted(set(range(len(passages))) - known, key=lambda passage: -cosines[passage])
        kept = [p for p in ranked[how.first - 1 :] if cosines[p] < how.margin * cosines[mine]]
        found.append(kept[: how.negatives])
    return found


@pytest.mark.parametrize(
    ("negatives", "first", "margin"), [(3, 1, 1.0), (4, 3, 0.9), (2, 5, 0.6), (1, 1, 0.3)]
)
def test_equals_the_rule(monkeypatch: pytest.MonkeyPatch, negatives: int, first: int, margin: float) -> None:
    monkeypatch.setattr(mining, "PASSAGE_TILE", 7)
    random = np.random.default_rng(0)
    passages = functional.normalize(torch.from_numpy(random.normal(size=(40, 5))), dim=-1)
    query = random.integers(0, 12, 30)
    own = random.integers(0, 40, 30)
    shift = functional.normalize(torch.from_numpy(random.normal(size=(12, 5))), dim=-1)
    queries = functional.normalize(shift[query] + passages[own], dim=-1)
    how = rule(negatives, first, margin)
    where, which = known_positives(query, query, own)
    found = nearest(queries, passages, torch.from_numpy(own), (where, which), how).tolist()
    positives = [set(own[query == q].tolist()) for q in query]
    for got, expected in zip(found, slow(queries, passages, own.tolist(), positives, how), strict=True):
        assert [p for p in got if p >= 0] == expected
        assert len(got) == negatives


def test_every_positive_of_a_query_is_known() -> None:
    query, passage = np.array([5, 2, 5, 9, 2, 5]), np.array([0, 1, 2, 3, 4, 5])
    where, which = known_positives(np.array([9, 5, 5]), query, passage)
    assert sorted(zip(where.tolist(), which.tolist(), strict=True)) == [
        (0, 3), (1, 0), (1, 2), (1, 5), (2, 0), (2, 2), (2, 5)
    ]  # fmt: skip
