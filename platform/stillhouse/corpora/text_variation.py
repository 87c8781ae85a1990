"""Text augmentation: the rules of Tang et al. (TS), and synonyms.

TS: Tang et al., 2019, arXiv:1903.12136, also used by SRA (Wu et al., ACL 2020): words are masked or replaced
by a word of the same part of speech, or an n-gram replaces the text.
Synonyms: the WordNet substitution of HPD (Zhao et al., ACL Findings 2022), as in IBKD's training text.

The rules need a tagger, which maps words to tags, such as `WordNet.tag` or a wrapped spaCy pipeline.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from stillhouse.core.errors import require
from stillhouse.corpora.published.glue import Row
from stillhouse.corpora.wordnet import WordNet
from stillhouse.losses.heads import UNLABELLED

Tagger = Callable[[Sequence[str]], Sequence[str | None]]
"""Maps the words of a text to their tags; a word without a tag is never replaced."""

MASKED, REPLACED = 0.1, 0.1
"""Probabilities that a word is masked, and replaced by one with its tag, drawn by frequency; Tang et al."""
NGRAM, LONGEST = 0.25, 5
"""Probability that some neighbouring words replace the text, and how many of them at most; Tang et al."""
MASK = "[MASK]"
_WORD = re.compile(r"\[MASK\]|\d+(?:[.,]\d+)+|(?:[^\W\d]\.){2,}|['’]?\w+(?:['’]\w+)*|[^\w\s]")


def augment(
    rows: Sequence[Row], tagger: Tagger, *, copies: int, limit: int = 0, seed: int = 0
) -> Iterator[Row]:
    """Vary every row ``copies`` times; variants with the same words as an earlier row are dropped.

    For pairs, the first text, the second text and both are varied in turn. The random draws depend only on
    the seed, the row's position and the copy. New rows are `UNLABELLED`, since the teacher labels them.

    At most ``limit`` new rows are made (0: no limit), and every row is copied once before any row is copied
    twice. SRA stops at 800 000 rows for SST-2 and MRPC.

    Raises:
        BadInput: If ``copies < 1`` or ``limit < 0``.
    """
    require(copies >= 1, "copies >= 1", copies=copies)
    require(limit >= 0, "limit >= 0", limit=limit)
    words = _Words((text for row in rows for text in row[:2] if text is not None), tagger)
    seen = {(_respaced(row.first), _respaced(row.second)) for row in rows}
    count = 0
    for copy in range(copies):
        for at, row in enumerate(rows):
            random = np.random.default_rng((seed, copy, at))
            varied = words.varied_row(row, copy, random)
            key = (_respaced(varied.first), _respaced(varied.second))
            if key in seen:
                continue
            seen.add(key)
            yield varied
            count += 1
            if count == limit:
                return


def with_synonyms(
    texts: Iterable[str], wordnet: WordNet, *, probability: float, seed: int = 0
) -> Iterator[str]:
    """Replace words by synonyms of any of their senses; spaces and punctuation are kept.

    IBKD does not report the probability. The draws for a text depend only on the seed and its position.

    Raises:
        BadInput: If ``probability`` is outside (0, 1].
    """
    require(0 < probability <= 1, "0 < probability <= 1", probability=probability)
    for at, text in enumerate(texts):
        random = np.random.default_rng((seed, at))

        def replacement(found: re.Match[str], random: np.random.Generator = random) -> str:
            word = found[0]
            if random.random() >= probability or not (others := wordnet.synonyms(word)):
                return word
            other = others[random.integers(len(others))]
            return other[0].upper() + other[1:] if word[0].isupper() else other

        yield _WORD.sub(replacement, text)


def _respaced(text: str | None) -> str | None:
    """Join the words of a text by single spaces, for comparing variants."""
    return None if text is None else " ".join(_WORD.findall(text))


class _Words:
    """The words of texts by tag, with their frequencies."""

    def __init__(self, texts: Iterable[str], tagger: Tagger) -> None:
        self._tagger = tagger
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for text in texts:
            for word, tag in self._tagged(text):
                if tag is not None:
                    counts[tag][word] += 1
        self._by_tag = {tag: (list(words), np.cumsum(list(words.values()))) for tag, words in counts.items()}

    def varied_row(self, row: Row, copy: int, random: np.random.Generator) -> Row:
        """Vary a text; of a pair, the first side, the second side or both, depending on the copy."""
        first, second = row.first, row.second
        if second is None or copy % 3 != 1:
            first = self.varied(first, random)
        if second is not None and copy % 3 != 0:
            second = self.varied(second, random)
        return Row(first, second, UNLABELLED)

    def varied(self, text: str, random: np.random.Generator) -> str:
        """Apply the rules once; words are joined by spaces."""
        words = []
        for word, tag in self._tagged(text):
            drawn = random.random()
            if drawn < MASKED:
                word = MASK
            elif drawn < MASKED + REPLACED and tag is not None:
                word = self._draw(tag, random)
            words.append(word)
        if random.random() < NGRAM:
            length = int(random.integers(1, LONGEST + 1))
            start = int(random.integers(max(1, len(words) - length + 1)))
            words = words[start : start + length]
        return " ".join(words)

    def _tagged(self, text: str) -> list[tuple[str, str | None]]:
        words = _WORD.findall(text)
        return list(zip(words, self._tagger(words), strict=True))

    def _draw(self, tag: str, random: np.random.Generator) -> str:
        words, ends = self._by_tag[tag]
        return words[int(np.searchsorted(ends, random.integers(ends[-1]), side="right"))]
