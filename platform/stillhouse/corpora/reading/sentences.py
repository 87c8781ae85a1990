"""Cleaning a text, cutting it into sentences, and telling equal sentences apart from different ones."""

import hashlib
import re
import unicodedata

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060\ufeff]+")
_SPACE = re.compile(r"\s+")
# The library takes some common words before a full stop ("call.", "row.") for abbreviations.
_MISSED_END = re.compile(
    r"((?<![^\s(\"'])(?!(?:approx|resp|incl|eqs|figs|secs|vol|ref|dept|est)\.)[a-z][a-z-]{2,}[.!?])"
    r" (?=[A-Z][a-z]*,? [a-z])"
)
_END = " .!?…"


def clean(text: str) -> str:
    """One line of NFC text: control and zero-width characters removed, any run of white space one space."""
    text = _SPACE.sub(" ", text).strip()
    if text.isascii() and text.isprintable():
        return text
    return _SPACE.sub(" ", _CONTROL.sub("", unicodedata.normalize("NFC", text))).strip()


def split_sentences(text: str) -> list[str]:
    """The sentences of a running text, in order, each cleaned; line breaks do not end a sentence."""
    from nupunkt import sent_tokenize

    text = clean(text)
    if not text:
        return []
    parts = "\n".join(str(part).strip() for part in sent_tokenize(text))
    return [part for part in _MISSED_END.sub(r"\1\n", parts).split("\n") if part]


def dedup_key(text: str) -> bytes:
    """Sixteen bytes, equal for texts that differ only in case, white space and the closing punctuation."""
    normal = _SPACE.sub(" ", text).strip().casefold().rstrip(_END)
    return hashlib.blake2b(normal.encode("utf-8", "surrogatepass"), digest_size=16).digest()
