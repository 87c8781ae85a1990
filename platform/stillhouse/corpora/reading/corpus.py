"""Reading a corpus in any supported format as a stream of cleaned texts and rejected rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from stillhouse.core.errors import BadInput, require
from stillhouse.core.tokenizing import cached_tokenizer
from stillhouse.corpora.reading.cleaning import clean, cut, dedup_key, passages, split_sentences
from stillhouse.corpora.reading.languages import NAMES, WITHOUT_BLANKS, recognised
from stillhouse.corpora.reading.rows import Rejected, Row, check_encoding, is_unicode, missing
from stillhouse.corpora.reading.schema import USUAL_TEXT, Schema, text_column
from stillhouse.corpora.reading.sources import CORPUS, Reading
from stillhouse.values.data import Model

_LOOKED_AT = 200
"""Texts by which the language is recognised."""
Check = Callable[[str, str], "str | Rejected"]
"""Returns a cleaned text, given with its language, or rejects it."""
_CHARACTERS = 20_000
"""Longer texts are quarantined."""
DROP, CUT, PACK = "drop", "cut", "pack"
LONGER = (DROP, CUT, PACK)
"""What may happen to texts with more words than ``max_words``."""
TEXTS = Schema(owner="sentences")
_AROUND = 8
"""Tokens that a model may put around a text, more than any known to us."""


@dataclass(frozen=True)
class TokenLimit:
    """The part of a text that a model reads: so many tokens, with those of the prompt and special ones."""

    tokenizer: Model
    max_length: int
    prompt: str = ""

    def __call__(self, text: str) -> bool:
        """Return whether the model reads the whole text."""
        whole = self.prompt + text
        if whole.isascii() and len(whole) + _AROUND <= self.max_length:
            return True  # A token has at least one character.
        tokenizer = cached_tokenizer(Path(self.tokenizer.path), self.max_length)
        return int(tokenizer.whole_lengths([whole])[0]) <= self.max_length


@dataclass(frozen=True)
class ReadOptions:
    """Options of reading a corpus; part of the identity of the result.

    Attributes:
        column: Field with the text, in formats with fields; None takes ``text``, ``sentence``, or the only
            field.
        split_sentences: Split every text into sentences; None does so for WikiExtractor files only.
        min_words: Texts with fewer words are quarantined.
        max_words: Texts with more words are quarantined, unless ``longer`` says otherwise. Limits in words
            are refused for text of a language without blanks between words.
        deduplicate: Keep only the first of equal texts.
        limit: Number of usable texts to take, see `counting`; None takes everything.
        encoding: Encoding of text files.
        longer: What happens to texts with more than ``max_words`` words or more tokens than a model reads:
            ``drop`` quarantines the former, ``cut`` keeps the beginning that fits, ``pack`` makes passages of
            consecutive sentences, each as long as fits.
        tokens: What the model reads; None lets words alone count.
        schema: The columns, rows, delimiter, header and language.
    """

    column: str | None = None
    split_sentences: bool | None = None
    min_words: int = 1
    max_words: int = 4_000
    deduplicate: bool = True
    limit: int | None = None
    encoding: str = "utf-8"
    longer: str = field(default=DROP, metadata={"identity": "unless_default"})
    tokens: TokenLimit | None = field(default=None, metadata={"identity": "unless_default"})
    schema: Schema = field(default=TEXTS, metadata={"identity": "unless_default"})

    def __post_init__(self) -> None:
        """Check the ranges."""
        words = (self.min_words, self.max_words)
        require(0 < words[0] <= words[1], "0 < min_words <= max_words", got=words)
        require(self.limit is None or self.limit > 0, "limit > 0", limit=self.limit)
        check_encoding(self.encoding)
        require(self.longer in LONGER, f"longer in {LONGER}", longer=self.longer)
        require(
            not (self.split_sentences and self.longer == PACK),
            "texts must be split into sentences or packed into passages, not both",
            split=self.split_sentences,
            longer=self.longer,
        )


def read_texts(
    source: str,
    options: ReadOptions,
    check: Check = lambda text, _: text,
    reading: "Reading[str] | None" = None,
) -> Iterator[str | Rejected]:
    """Read cleaned texts within the limits, and rejected rows: files by name, and rows in order unless drawn.

    The check rejects texts before they are packed or cut, see `Barrier.checking`.

    Raises:
        BadInput: If the source is missing, empty, unreadable or in another encoding, or lacks the column.
    """
    reading = reading or reading_of(source, options)
    yield from reading.taking.of(_all_texts(options, check, reading), dedup_key)


def reading_of(source: str, options: ReadOptions) -> Reading[str]:
    """A source as the options say, before any of it is read."""
    return Reading(source, CORPUS, options.schema, options.limit, distinct=options.deduplicate)


def _all_texts(options: ReadOptions, check: Check, reading: Reading[str]) -> Iterator[str | Rejected]:
    raw_texts = _raw_texts(options, reading)
    first = list(islice(raw_texts, _LOOKED_AT))
    language = options.schema.language or recognised(raw for raw, _ in first if isinstance(raw, str))
    reading.language = language
    words = (options.min_words, options.max_words) != (1, ReadOptions.max_words)
    require(
        not words or language not in WITHOUT_BLANKS,
        f"a limit in words must be of text with blanks between its words, and {reading.source} is in "
        f"{NAMES.get(language)}, without them",
        remedy="Leave out min_words and max_words: longer=pack and longer=cut count tokens as well.",
        min_words=options.min_words,
        max_words=options.max_words,
    )
    for raw, running_text in chain(first, raw_texts):
        reading.rows += 1
        texts = [raw] if isinstance(raw, Rejected) else _texts_of(raw, running_text, options, language, check)
        for text in texts:
            bad = text if isinstance(text, Rejected) else _outside(text, options)
            if bad is None:
                reading.examples.setdefault("text", str(text))
            yield bad or text


def _raw_texts(options: ReadOptions, reading: Reading[str]) -> Iterator[tuple[str | Rejected, bool]]:
    """Read texts as they are in the source, with whether they are running text."""
    for table in reading.tables(options.encoding):
        column, guessed = text_column(table, options.schema, options.column or "")
        unused = [name for name in table.columns if name != column]
        reading.opened(table, {"text": column}, unused)
        for number, row in options.schema.rows(table, column):
            if guessed and not isinstance(row, Rejected) and not row.keys().isdisjoint(USUAL_TEXT):
                raise BadInput(
                    f"{table.where(number)} has the columns {', '.join(row)}, but those before it have "
                    f"{column} alone. Say which one holds the text (column)."
                )
            yield _text_in(row, column, options.encoding), table.kind == "wiki"


def _text_in(row: Row | Rejected, column: str, encoding: str) -> str | Rejected:
    """The text of a row, or the reason why it has none."""
    if isinstance(row, Rejected):
        return row
    value = row.get(column)
    if isinstance(value, str) and value:
        return value if is_unicode(value) else Rejected(value, f"not {encoding}")
    reason = f"no {column}" if missing(value) else f"{column} is not text"
    return Rejected(str(dict(row)) if missing(value) else repr(value), reason)


def _texts_of(
    raw: str, running_text: bool, options: ReadOptions, language: str, check: Check
) -> Iterator[str | Rejected]:
    """Split a text, check what it says, and cut or pack it, as the options say."""

    def fits(text: str) -> bool:
        few = text.count(" ") < options.max_words
        return few and (options.tokens is None or options.tokens(text))

    pack = options.longer == PACK
    split = running_text if options.split_sentences is None else options.split_sentences
    for text in (split_sentences(raw, language) or [""]) if split and not pack else [clean(raw)]:
        checked = check(text, language)
        if pack and isinstance(checked, str):
            yield from passages(checked, fits, language) or [""]
        elif options.longer == CUT and isinstance(checked, str):
            yield cut(checked, fits)
        else:
            yield checked


def _outside(text: str, options: ReadOptions) -> Rejected | None:
    if not text:
        return Rejected(text, "empty")
    if len(text) > _CHARACTERS:
        return Rejected(text, f"more than {_CHARACTERS} characters")
    words = text.count(" ") + 1
    if words < options.min_words:
        return Rejected(text, f"fewer than {options.min_words} words")
    return Rejected(text, f"more than {options.max_words} words") if words > options.max_words else None
