"""Plain English from marked-up technical text: without inline markup, and only complete sentences."""

import re
from functools import lru_cache

from stillhouse.corpora.reading.cleaning import clean, split_sentences

LEAST_WORDS, MOST_WORDS = 4, 60

_UNREADABLE = "\x00"
# A string that a text must contain for the pattern to apply, the pattern, and its replacement.
_MARKUP = [
    # Sentences with mathematics or substitutions are rejected.
    ("`", re.compile(r":math:`[^`]*`"), _UNREADABLE),
    ("$", re.compile(r"\$[^$]*\$"), _UNREADABLE),
    ("|", re.compile(r"\|\w+\|_?"), _UNREADABLE),
    ("]", re.compile(r"\[(?:\d+|#\w*|\w+\d{2,4}\w?)\]_?_?"), ""),
    ("](", re.compile(r"!?\[([^\[\]]+)\]\((?:[^()]|\([^()]*\))*\)"), r"\1"),
    (":`", re.compile(r":(?:\w+:)?[\w+-]+:`[~!.]*([^`<]+?)\s*<[^`>]*>`"), r"\1"),
    (":`~", re.compile(r":(?:\w+:)?[\w+-]+:`~[^`]*?([^`.]+)`"), r"\1"),
    (":`", re.compile(r":(?:\w+:)?[\w+-]+:`[!.]*([^`]+)`"), r"\1"),
    (">`", re.compile(r"`([^`<]+?)\s*<[^`>]*>`__?"), r"\1"),
    ("`", re.compile(r"\[?`(?:`|[~.]*)([^`]*)``?\]?_{0,2}"), r"\1"),
    ("<", re.compile(r"</?(?:b|i|em|strong|code|tt|p|br|a|sup|sub|ul|li)\b[^>]*>"), ""),
    ("*", re.compile(r"(?<![\w*])(\*\*|\*)(?=\S)([^*]+?)(?<=\S)\1(?![\w*])"), r"\2"),
    ("()", re.compile(r"(?<=\w)\(\)"), ""),
    ("_", re.compile(r"(?<=\w)_(?=[\s.,;:)]|$)"), ""),
    (".", re.compile(r"(?<![\w.])\._?(?=[A-Z]|[a-z_]+\.[a-z])"), ""),
    ("-", re.compile(r"--+|\s+-\s+"), " – "),
    ("(", re.compile(r"\(\s*\)"), ""),
    (" ", re.compile(r" +(?=[.,;:!?](?:\s|$))"), ""),
]
_FORBIDDEN = re.compile(
    r"[\x00{}<>\\|#$^~=`*@\[\]⟨…�+;]|__|%[(sd]|::|\.\.\.|->|[a-z0-9]\(|\?\?|!!|(?<!\w)-\w+ |,,|\(,|\.,"
    r"|(?:_[A-Za-z0-9]+){3}|://|www\.|/\w+/"
    r"| (?:of|from|see|and|the|than|as|e\.g|i\.e)\.$"
)
_BOILERPLATE = re.compile(
    r"(?i:todo|fixme|xxx|hack:|copyright|all rights|licen[sc]e|auto-?generated|do not edit|docstring"
    r"|deprecated since|version(?:added|changed)|(?:new|changed|added) in (?:version )?\d|full documentation"
    r"|see (?:the )?(?:documentation|docs|also|above|below)|pylint|noqa|optional, default"
    r"|superclass doc|base class for doc)"
)
_FUNCTION_WORDS = frozenset(
    (
        "a an the this that these those it its they their there he we you your i if when while where which "
        "who what how is are was were be been being has have had do does did can could may might must "
        "should will would not no nor and or but so than then as at by for from in into of on onto out over "
        "per to under up upon with within without all any both each every either few many more most much "
        "only other same some such also between because using used use first about"
    ).split()
)
# A full stop after a capitalised word or a single letter may be mistaken for an abbreviation's.
_MISSED_END = re.compile(
    r"(?<=\w[.!?]) (?=(?:The|This|These|That|If|It|In|For|When|Note|By|A|An|You|To|We|Each|Only|All|Use)\s)"
)
_NAME = re.compile(r"[A-Z0-9_]|\w[./]\w")
_WORD = re.compile(r"[\"'(]*([A-Za-z]+(?:['’-][A-Za-z]+)*)[\"')]*[.,:!?]*")


def plain(text: str) -> str:
    """Remove the inline markup of a paragraph, and join it into one line."""
    for sign, pattern, replacement in _MARKUP:
        if sign in text:
            text = pattern.sub(replacement, text)
    return text if _UNREADABLE in text else clean(text)


def sentences(paragraph: str) -> list[str]:
    """Split a marked-up paragraph into sentences, including unreadable ones."""
    text = plain(paragraph).replace(_UNREADABLE, "⟨⟩")
    return [part for sentence in split_sentences(text, "en") for part in _MISSED_END.split(sentence)]


def readable(sentence: str) -> bool:
    """Return whether this is an English sentence: no code, formula, address, boilerplate or fragment."""
    words = sentence.split(" ")
    if not LEAST_WORDS <= len(words) <= MOST_WORDS or not sentence[0].isupper() or sentence[-1] not in ".!?":
        return False
    if sentence.startswith(("See ", "Refer to ")) or _FORBIDDEN.search(sentence):
        return False
    if sentence.count("(") != sentence.count(")") or sentence.count('"') % 2 or len(max(words, key=len)) > 40:
        return False
    plain_words = [match.group(1) for word in words if (match := _WORD.fullmatch(word))]
    if len(plain_words) < 0.75 * len(words):
        return False
    lower = sum(word.islower() for word in plain_words)
    function = sum(word.lower() in _FUNCTION_WORDS for word in plain_words)
    long_enough = sum(len(word) > 2 for word in plain_words)
    return (
        lower >= 0.5 * len(words)
        and function >= max(1, len(words) // 10)
        and long_enough >= 3
        and not _BOILERPLATE.search(sentence)
    )


@lru_cache(maxsize=4096)
def outline(sentence: str) -> str:
    """Reduce a sentence to what near-duplicates share: lower case, with names and numbers replaced."""
    first, *rest = sentence.rstrip(".!?").split(" ")
    return " ".join([first.lower(), *(word if _is_plain(word) else "#" for word in rest)])


def _is_plain(word: str) -> bool:
    return (word.isalpha() and word.islower()) or not _NAME.search(word)
