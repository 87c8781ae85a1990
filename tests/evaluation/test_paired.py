"""Interval and p-value for two models on the same items, compared with slow loops and known cases."""

import itertools

import numpy as np
import pytest
from rows import each_row
from scipy import stats

from stillhouse.core.errors import BadInput
from stillhouse.evaluation.items import Items, Part, Statistic, average, means
from stillhouse.evaluation.paired import Paired, compare_figures, compare_items, holm


def mean_of(values: object) -> Items:
    return means({"a": np.asarray(values)})["a"]


def ranked(scores: np.ndarray, gold: np.ndarray, weight: float = 1.0) -> Items:
    return Items((Part(scores, gold, weight),), "spearman", scale=100)


def slow(kind: Statistic, values: np.ndarray, gold: np.ndarray | None) -> float:
    if kind == "mean":
        return float(sum(values) / len(values))
    assert gold is not None
    if kind == "spearman":
        return float(stats.spearmanr(values, gold).statistic)
    hits = sum(v == g == 1 for v, g in zip(values, gold, strict=True))
    wrong = sum((v == 1) != (g == 1) for v, g in zip(values, gold, strict=True))
    return float(2 * hits / (2 * hits + wrong))


def drawn(kind: Statistic, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    draw = np.random.default_rng(3)
    gold = draw.integers(0, 6, count).astype(float)
    if kind == "mean":
        return draw.random(count), draw.random(count) - 0.15, None
    if kind == "spearman":
        return gold + draw.normal(size=count), gold + 2 * draw.normal(size=count), gold
    return (gold + draw.integers(-1, 2, count) > 3) * 1.0, (gold > 2) * 1.0, (gold > 3) * 1.0


@each_row("kind", ["mean", "spearman", "f1"])
def test_interval_and_p_match_slow_loops(kind: Statistic) -> None:
    a, b, gold = drawn(kind, 40)
    found = compare_items(
        Items((Part(a, gold),), kind), Items((Part(b, gold),), kind), resamples=3000, seed=1
    )
    assert found.difference == pytest.approx(slow(kind, a, gold) - slow(kind, b, gold), abs=1e-12)
    draw, samples, chance = np.random.default_rng(7), [], []
    ranks = [stats.rankdata(each) for each in (a, b)] if kind == "spearman" else [a, b]
    for _ in range(1000):
        at = draw.integers(0, len(a), len(a))
        again = None if gold is None else gold[at]
        samples.append(slow(kind, a[at], again) - slow(kind, b[at], again))
        swap = draw.random(len(a)) < 0.5
        mixed = np.where(swap, ranks[1], ranks[0]), np.where(swap, ranks[0], ranks[1])
        chance.append(slow(kind, mixed[0], gold) - slow(kind, mixed[1], gold))
    spread = float(np.std(samples))
    assert np.percentile(samples, [2.5, 97.5]) == pytest.approx([found.low, found.high], abs=0.25 * spread)
    p = np.mean(np.abs(chance) >= abs(found.difference) - 1e-12)
    assert found.p == pytest.approx(p, abs=0.05)


def test_few_items_use_the_exact_permutation_test() -> None:
    a, b = np.array([0.9, 0.4, 0.7, 0.6, 0.2]), np.array([0.5, 0.3, 0.1, 0.7, 0.0])
    found = compare_items(mean_of(a), mean_of(b))
    ways = [abs(np.dot(signs, a - b)) / 5 for signs in itertools.product((1, -1), repeat=5)]
    assert found.p == pytest.approx(np.mean(np.array(ways) >= abs((a - b).mean()) - 1e-12))
    assert found.items == 5 and found.resamples == 10_000


@each_row("kind", ["mean", "spearman", "f1"])
def test_a_model_against_itself(kind: Statistic) -> None:
    a, _, gold = drawn(kind, 60)
    found = compare_items(Items((Part(a, gold),), kind), Items((Part(a, gold),), kind), resamples=500)
    assert (found.difference, found.low, found.high, found.p, found.share) == (0, 0, 0, 1, 1)


def test_a_clear_winner() -> None:
    draw = np.random.default_rng(0)
    gold = draw.random(300)
    found = compare_items(
        ranked(gold + 0.1 * draw.normal(size=300), gold), ranked(gold + 2 * draw.normal(size=300), gold)
    )
    assert found.p is not None and found.p == pytest.approx(1 / 2001)
    assert found.low is not None and found.low > 50 and found.model > 90


def test_rescaling_the_scores_changes_nothing() -> None:
    a, b, gold = drawn("spearman", 50)
    assert gold is not None
    plain = compare_items(ranked(a, gold), ranked(b, gold), seed=4)
    assert compare_items(ranked(a, gold), ranked(np.exp(b / 9) / 100, gold), seed=4) == plain
    assert compare_items(ranked(a, gold), ranked(b, gold), seed=5) != plain


def test_an_average_weights_its_figures_equally() -> None:
    draw = np.random.default_rng(1)
    sets = [(draw.random(count), draw.random(count)) for count in (9, 200)]
    both = [average(mean_of(side) for side in sides) for sides in zip(*sets, strict=True)]
    found = compare_items(*both, resamples=4000)
    assert found.model == pytest.approx(np.mean([a.mean() for a, _ in sets]))
    # The variance of the mean of two means is a quarter of the sum of theirs.
    spread = np.sqrt(sum((a - b).var() / len(a) for a, b in sets)) / 2
    assert found.low is not None and found.high is not None
    assert found.high - found.low == pytest.approx(2 * 1.96 * spread, rel=0.1)
    assert 0 < (found.p or 0) <= 1


def test_different_items_are_refused() -> None:
    gold = np.arange(5.0)
    for other in (ranked(gold[:4], gold[:4]), ranked(gold, gold + 1), mean_of(gold)):
        with pytest.raises(BadInput, match="only be compared on the same items"):
            compare_items(ranked(gold, gold), other)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0] and holm([]) == []


def test_figures_without_items_have_a_difference_only() -> None:
    ours = {"a": {"score": 0.8, "size": 5.0, "head": 1.0}}
    theirs = {"a": {"score": 1.0, "size": 10.0}}
    items = [{"a": {"score": mean_of(values)}} for values in ([0.7, 0.9, 0.8], [1.0, 1.0, 1.0])]
    found = compare_figures(ours, theirs, (items[0], items[1]))["a"]
    assert list(found) == ["score", "size"], "the other has no head"
    assert found["size"] == Paired(5.0, 10.0, -5.0)
    assert found["score"].share == pytest.approx(0.8) and found["score"].p == found["score"].p_holm == 0.25
    assert compare_items(mean_of([-0.1, -0.2]), mean_of([0.5, 0.4])).share is None
