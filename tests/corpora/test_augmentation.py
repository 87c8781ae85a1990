"""Augmentation: each rule in isolation, how often it applies, and determinism under a seed."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from stillhouse.core.errors import BadInput
from stillhouse.corpora import text_variation
from stillhouse.corpora.published.glue import Row
from stillhouse.corpora.text_variation import MASK, augment, with_synonyms
from stillhouse.corpora.wordnet import Synset, WordNet
from stillhouse.losses.heads import UNLABELLED

NOUNS, VERBS = {"cat", "dog", "house"}, {"sees", "likes"}
SINGLE = [
    Row("The cat sees the dog.", None, 1),
    Row("a dog likes the house , and it 's big", None, 0),
    Row("The dog sees it.", None, 1),
]
PAIRS = [Row(row.first, "The house likes the cat!", row.label) for row in SINGLE]
NOTHING = {"MASKED": 0.0, "REPLACED": 0.0, "NGRAM": 0.0}


def tagger(words: Sequence[str]) -> list[str | None]:
    return ["n" if word in NOUNS else "v" if word in VERBS else None for word in words]


Only = Callable[..., None]


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Only:
    """Set the probabilities of some rules, and turn the others off."""

    def turned_off_but(**some: float) -> None:
        for name, probability in {**NOTHING, **some}.items():
            monkeypatch.setattr(text_variation, name, probability)

    return turned_off_but


def test_masking_alone(only: Only) -> None:
    only(MASKED=0.3)
    found = list(augment(SINGLE, tagger, copies=30))
    for row in found:
        assert row.second is None and row.label == UNLABELLED
        words = row.first.split()
        origins = [
            o
            for o in ("The cat sees the dog .", "a dog likes the house , and it 's big", "The dog sees it .")
        ]
        assert any(
            len(o.split()) == len(words)
            and all(w in (MASK, v) for w, v in zip(words, o.split(), strict=True))
            for o in origins
        )
        assert MASK in words


def test_a_replacement_has_the_tag_of_the_word(only: Only) -> None:
    only(REPLACED=1.0)
    found = list(augment(SINGLE[:1], tagger, copies=60))
    assert found
    for row in found:
        the, noun, verb, again, other, mark = row.first.split()
        assert (the, again, mark) == ("The", "the", ".")
        assert {noun, other} <= NOUNS and verb in VERBS


def test_replacements_are_drawn_by_frequency(only: Only) -> None:
    only(REPLACED=1.0)
    rows = [Row(f"{'cat ' * 6}{'dog ' * 3}house {at}", None, 0) for at in range(300)]
    drawn: Counter[str] = Counter()
    for row in augment(rows, tagger, copies=1):
        drawn.update(row.first.split()[:10])
    total = sum(drawn.values())
    for word, share in (("cat", 0.6), ("dog", 0.3), ("house", 0.1)):
        assert abs(drawn[word] / total - share) < 4 * math.sqrt(share * (1 - share) / total)


def test_an_ngram_is_part_of_the_text(only: Only) -> None:
    only(NGRAM=1.0)
    found = list(augment(SINGLE[1:2], tagger, copies=200))
    lengths = {len(row.first.split()) for row in found}
    assert lengths == {1, 2, 3, 4, 5}
    for row in found:
        assert f" {row.first} " in " a dog likes the house , and it 's big "


def test_probabilities_are_those_of_the_paper() -> None:
    """A tenth of the untagged words are masked; a quarter of the texts are n-grams."""
    rows = [Row(" ".join(f"w{at}x{place}" for place in range(40)), None, 0) for at in range(400)]
    found = list(augment(rows, tagger, copies=1))
    short = [row for row in found if len(row.first.split()) < 40]
    assert abs(len(short) / len(rows) - 0.25) < 4 * math.sqrt(0.25 * 0.75 / len(rows))
    words = [word for row in found if len(row.first.split()) == 40 for word in row.first.split()]
    assert abs(words.count(MASK) / len(words) - 0.1) < 0.02


def test_each_side_of_a_pair_is_augmented_in_turn(only: Only) -> None:
    only(MASKED=1.0)
    found = list(augment(PAIRS[:1], tagger, copies=3))
    all_masked = " ".join([MASK] * 6)
    assert found == [
        Row(all_masked, "The house likes the cat!", UNLABELLED),
        Row("The cat sees the dog.", all_masked, UNLABELLED),
        Row(all_masked, all_masked, UNLABELLED),
    ]


def test_copies_are_unique_and_differ_from_the_original(only: Only) -> None:
    found = [row.first for row in augment(SINGLE, tagger, copies=50)]
    assert len(found) == len(set(found)) and len(found) > 20
    only()
    assert list(augment(SINGLE, tagger, copies=5)) == []


def test_the_seed_decides() -> None:
    one, two, other = (list(augment(PAIRS, tagger, copies=6, seed=seed)) for seed in (1, 1, 2))
    assert one == two != other
    assert list(augment(PAIRS, tagger, copies=6, seed=1, limit=4)) == one[:4]


def test_values_out_of_range_are_refused() -> None:
    for copies, limit in ((0, 0), (1, -1)):
        with pytest.raises(BadInput):
            list(augment(SINGLE, tagger, copies=copies, limit=limit))
    for probability in (0.0, 1.1):
        with pytest.raises(BadInput):
            list(with_synonyms(["a"], WordNet([]), probability=probability))


def test_synonyms_replace_whole_words_only() -> None:
    wordnet = WordNet([Synset("n", ("dog", "domestic dog")), Synset("n", ("in", "indium"))])
    texts = ["A  dog, in  the-house.", "Dog?", "nothing here"]
    always = list(with_synonyms(texts, wordnet, probability=1.0))
    assert always == ["A  domestic dog, in  the-house.", "Domestic dog?", "nothing here"]
    some = list(with_synonyms(["dog"] * 400, wordnet, probability=0.3, seed=1))
    assert abs(some.count("domestic dog") / 400 - 0.3) < 0.1
    assert some == list(with_synonyms(["dog"] * 400, wordnet, probability=0.3, seed=1))
    assert some != list(with_synonyms(["dog"] * 400, wordnet, probability=0.3, seed=2))
