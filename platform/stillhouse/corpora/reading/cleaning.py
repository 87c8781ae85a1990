"""Cleaning texts, splitting them into sentences or passages, and detecting duplicates."""

import hashlib
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence

from stillhouse.corpora.reading.languages import UNSPACED, script_language

Fits = Callable[[str], bool]
"""Whether a text is no longer than it may be."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060\ufeff]+")
_SPACE = re.compile(r"\s+")
# The library mistakes some common words before a full stop ("call.", "row.") for abbreviations.
_MISSED_END = re.compile(
    r"((?<![^\s(\"'])(?!(?:approx|resp|incl|eqs|figs|secs|vol|ref|dept|est)\.)[a-z][a-z-]{2,}[.!?])"
    r" (?=[A-Z][a-z]*,? [a-z])"
)
_INITIAL = re.compile(r"(?m)^(\w\.)\n")
_END = " .!?…。！？।؟"


def clean(text: str) -> str:
    """Normalise to one line of NFC text, without control characters and with single spaces."""
    text = _SPACE.sub(" ", text).strip()
    if text.isascii() and text.isprintable():
        return text
    return _SPACE.sub(" ", _CONTROL.sub("", unicodedata.normalize("NFC", text))).strip()


def split_sentences(text: str, language: str = "") -> list[str]:
    """Split running text into cleaned sentences; line breaks do not end a sentence.

    Without a language it takes the commonest one of the script, and English for Latin letters, so that the
    result depends on the text alone.
    """
    text = clean(text)
    if not text:
        return []
    language = language or script_language(text) or "en"
    parts = _english(text) if language == "en" else _others(text, language)
    return [part for part in parts if part]


def _english(text: str) -> list[str]:
    from nupunkt import sent_tokenize

    parts = "\n".join(str(part).strip() for part in sent_tokenize(text))
    return _MISSED_END.sub(r"\1\n", parts).split("\n")


def _others(text: str, language: str) -> list[str]:
    from sentencex import segment

    parts = "\n".join(str(part).strip() for part in segment(language, text))
    return _INITIAL.sub(r"\1 ", parts).split("\n")


def word_count(text: str) -> int:
    """Number of words of a cleaned text; where a script has no blanks, two characters count as a word."""
    if text.isascii():
        return text.count(" ") + 1
    rest, runs = UNSPACED.subn(" ", text)
    unspaced = len(text) + runs - len(rest)
    return len(rest.split()) + (unspaced + 1) // 2


def cut(text: str, fits: Fits) -> str:
    """Keep the longest beginning of a cleaned text that fits, if possible in whole words."""
    return text[: _end(text, 0, len(text), fits)].rstrip()


def passages(text: str, fits: Fits, language: str = "") -> list[str]:
    """Pack a text into passages of consecutive sentences, each of as many sentences as fit.

    A text that fits is one passage, cleaned and otherwise as it is. A sentence that does not fit is divided,
    if possible between words; its parts are packed like sentences.
    """
    text = clean(text)
    if not text or fits(text):
        return [text] if text else []
    packed: list[tuple[int, int]] = []
    start = 0
    for sentence in split_sentences(text, language):
        start = text.index(sentence, start)
        stop = start + len(sentence)
        while start < stop:
            end = _end(text, start, stop, fits)
            if packed and fits(text[packed[-1][0] : end]):
                packed[-1] = packed[-1][0], end
            else:
                packed.append((start, end))
            start = end + (text[end : end + 1] == " ")
        start = stop
    return [text[first:last] for first, last in packed]


def _end(text: str, start: int, stop: int, fits: Fits) -> int:
    """Return the end of the longest part of a text that begins at ``start`` and fits."""
    if fits(text[start:stop]):
        return stop
    most = 16
    while start + most < stop and fits(text[start : start + most]):
        most *= 2
    stop = min(stop, start + most)
    ends: Sequence[int] = [found.start() + start for found in re.finditer(" ", text[start:stop])]
    if not ends or not fits(text[start : ends[0]]):
        ends = range(start + 1, ends[0] if ends else stop)
    return ends[max(0, bisect_left(ends, True, key=lambda end: not fits(text[start:end])) - 1)]


def dedup_key(text: str) -> bytes:
    """Hash a text to 16 bytes, ignoring case, white space and closing punctuation."""
    normal = _SPACE.sub(" ", text).strip().casefold().rstrip(_END)
    return hashlib.blake2b(normal.encode("utf-8", "surrogatepass"), digest_size=16).digest()
