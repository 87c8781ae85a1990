"""Cleaning texts, splitting them into sentences or passages, and detecting duplicates."""

import hashlib
import re
import unicodedata

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060\ufeff]+")
_SPACE = re.compile(r"\s+")
# The library mistakes some common words before a full stop ("call.", "row.") for abbreviations.
_MISSED_END = re.compile(
    r"((?<![^\s(\"'])(?!(?:approx|resp|incl|eqs|figs|secs|vol|ref|dept|est)\.)[a-z][a-z-]{2,}[.!?])"
    r" (?=[A-Z][a-z]*,? [a-z])"
)
_END = " .!?…。！？।؟"


def clean(text: str) -> str:
    """Normalise to one line of NFC text, without control characters and with single spaces."""
    text = _SPACE.sub(" ", text).strip()
    if text.isascii() and text.isprintable():
        return text
    return _SPACE.sub(" ", _CONTROL.sub("", unicodedata.normalize("NFC", text))).strip()


def split_sentences(text: str) -> list[str]:
    """Split running text into cleaned sentences; line breaks do not end a sentence."""
    from nupunkt import sent_tokenize

    text = clean(text)
    if not text:
        return []
    parts = "\n".join(str(part).strip() for part in sent_tokenize(text))
    return [part for part in _MISSED_END.sub(r"\1\n", parts).split("\n") if part]


def cut(text: str, words: int) -> str:
    """Keep the first words of a cleaned text."""
    return text if text.count(" ") < words else " ".join(text.split(" ")[:words])


def passages(text: str, words: int) -> list[str]:
    """Pack a text into passages of consecutive sentences, each of as many sentences as fit.

    A text that fits is one passage, cleaned and otherwise as it is. A sentence that is longer than a passage
    is divided; its parts are packed like sentences.

    Args:
        text: Running text.
        words: Largest number of words of a passage.
    """
    text = clean(text)
    if text.count(" ") < words:
        return [text] if text else []
    packed: list[list[str]] = []
    for sentence in split_sentences(text):
        spoken = sentence.split(" ")
        for first in range(0, len(spoken), words):
            part = spoken[first : first + words]
            if packed and len(packed[-1]) + len(part) <= words:
                packed[-1] += part
            else:
                packed.append(part)
    return [" ".join(passage) for passage in packed]


def dedup_key(text: str) -> bytes:
    """Hash a text to 16 bytes, ignoring case, white space and closing punctuation."""
    normal = _SPACE.sub(" ", text).strip().casefold().rstrip(_END)
    return hashlib.blake2b(normal.encode("utf-8", "surrogatepass"), digest_size=16).digest()
