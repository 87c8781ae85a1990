"""Reading a corpus in any supported format as a stream of cleaned texts and rejected rows.

Sources: text (one text per line), JSON lines, CSV, TSV, Parquet and WikiExtractor's ``<doc>`` files, plain or
gzipped; a folder or a glob of them; MS MARCO's folder, whose passages and training queries are the texts; the
same under ``s3://`` and ``gs://``, with options such as ``?region=eu-west-1``; ``hf:name[:config][:split]``.
"""

import fnmatch
import glob
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from stillhouse.core.errors import BadInput, require
from stillhouse.core.redaction import remember
from stillhouse.core.tokenizing import cached_tokenizer
from stillhouse.corpora.published.msmarco import text_files
from stillhouse.corpora.reading.counting import Taking
from stillhouse.corpora.reading.languages import NAMES, WITHOUT_BLANKS, recognised
from stillhouse.corpora.reading.rows import (
    TABLES,
    Row,
    Table,
    check_encoding,
    hub_table,
    is_unicode,
    missing,
    open_table,
    sniffed_kind,
    table_kind,
    without_packing,
)
from stillhouse.corpora.reading.schema import USUAL_TEXT, Schema, text_column
from stillhouse.corpora.reading.sentences import clean, cut, dedup_key, passages, split_sentences
from stillhouse.corpora.reading.understood import Reading
from stillhouse.corpora.tables import Rejected
from stillhouse.values.data import Model

_LOOKED_AT = 200
"""Texts by which the language is recognised."""
_REMOTE = ("s3://", "gs://", "file://")
_HUB = "hf:"
_OPTIONS = re.compile(r"\?[a-z_]+=[^?&*\[\]]*(&[a-z_]+=[^?&*\[\]]*)*$")
"""The options of a file system at the end of an address."""
CORPUS = "corpus"
_TEXT_KINDS = (CORPUS, "file of labelled text", "file of scores", "file of pairs")
_ABOUT = ("dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json")
_WIKI = re.compile(r"wiki_\d+")
Check = Callable[[str, str], "str | Rejected"]
"""Returns a cleaned text, given with its language, or rejects it."""
DROP, CUT, PACK = "drop", "cut", "pack"
LONGER = (DROP, CUT, PACK)
"""What may happen to texts with more words than ``max_words``."""


TEXTS = Schema(owner="sentences")


@dataclass(frozen=True)
class TokenLimit:
    """What a model reads of a text.

    Attributes:
        tokenizer: The model.
        max_length: Tokens per text, prompt and special tokens among them.
        prompt: What stands before every text.
    """

    tokenizer: Model
    max_length: int
    prompt: str = ""

    def __call__(self, text: str) -> bool:
        """Whether the model reads the whole text."""
        tokenizer = cached_tokenizer(Path(self.tokenizer.path), self.max_length)
        return int(tokenizer.whole_lengths([self.prompt + text])[0]) <= self.max_length


@dataclass(frozen=True)
class ReadOptions:
    """How a corpus is read; part of the identity of the result.

    Attributes:
        column: Field with the text, in formats with fields; None takes ``text``, ``sentence``, or the only
            field.
        split_sentences: Split every text into sentences; None does so for WikiExtractor files only.
        min_characters: Shorter texts are quarantined.
        max_characters: Longer texts are quarantined.
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
    min_characters: int = 1
    max_characters: int = 20_000
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
        characters, words = (self.min_characters, self.max_characters), (self.min_words, self.max_words)
        require(0 < characters[0] <= characters[1], "0 < min_characters <= max_characters", got=characters)
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


@dataclass(frozen=True)
class SourceFile:
    """A file of a corpus, with what is needed to read it and to detect changes.

    Attributes:
        path: Path on its file system.
        size: Size in bytes.
        modified: Time of modification in nanoseconds since 1970; 0 if the file system does not report it.
    """

    path: str
    size: int
    modified: int


def read_texts(
    source: str,
    options: ReadOptions,
    taking: Taking[str | Rejected] | None = None,
    check: Check = lambda text, _: text,
    reading: Reading | None = None,
) -> Iterator[str | Rejected]:
    """Read the texts of a corpus: files sorted by name, rows in the order of the file unless some are drawn.

    Args:
        source: A file, folder, glob, ``s3://…``, ``gs://…`` or ``hf:name[:config][:split]``.
        options: How to read it.
        taking: Counts the rows; None takes what the options say.
        check: Rejects texts before they are packed or cut; see `Barrier.checking`.
        reading: Learns what the source is taken for.

    Yields:
        Cleaned texts within the limits, and `Rejected` rows.

    Raises:
        BadInput: If the source is missing, empty, unreadable or in another encoding, or lacks the column.
    """
    texts = _all_texts(source, options, check, reading or Reading(source))
    yield from (taking or taking_of(source, options)).of(texts, _key)


def taking_of(source: str, options: ReadOptions) -> Taking[str | Rejected]:
    """How many texts of a source the options take, before any is read."""
    return Taking(options.limit, stream=hub_name(source) is not None, distinct=options.deduplicate)


def _all_texts(source: str, options: ReadOptions, check: Check, reading: Reading) -> Iterator[str | Rejected]:
    raw_texts = _raw_texts(source, options, reading)
    first = list(islice(raw_texts, _LOOKED_AT))
    language = options.schema.language or recognised(raw for raw, _ in first if isinstance(raw, str))
    reading.language = language
    words = (options.min_words, options.max_words) != (1, ReadOptions.max_words)
    require(
        not words or language not in WITHOUT_BLANKS,
        f"a limit in words must be of text with blanks between its words, but {source} is in "
        f"{NAMES.get(language)}",
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


def _key(text: str | Rejected) -> bytes | None:
    return None if isinstance(text, Rejected) else dedup_key(text)


def list_files(source: str, kind: str = "corpus") -> tuple[Any, list[SourceFile]]:
    """List the files of a source by name, and return them with their file system.

    Files and folders whose names start with ``.`` or ``_`` are skipped, and so are the files of a folder of
    text that have no known suffix (`skipped_files`).

    Args:
        source: A file, folder or glob, local or under ``s3://`` or ``gs://``.
        kind: What the source is, for messages.

    Raises:
        BadInput: If there are no files, or they cannot be listed.
    """
    system, kept, skipped = _listed(source, kind)
    if not kept and skipped:
        names = ", ".join(skipped[:5])
        raise BadInput(
            f"a {kind} must have at least one file of a known form, but {source} has only {names}."
        )
    if not kept:
        raise BadInput(f"a {kind} must have at least one file, but {source} has none. Check the folder.")
    if all(file.size == 0 for file in kept):
        raise BadInput(f"a {kind} must have at least one nonempty file, but those of {source} are all empty.")
    return system, kept


def skipped_files(source: str, kind: str = "corpus") -> list[str]:
    """The files of a folder that `list_files` leaves out, by name."""
    return [] if hub_name(source) else _listed(source, kind)[2]


def _listed(source: str, kind: str) -> tuple[Any, list[SourceFile], list[str]]:
    """The file system of a source, its files, and the names of those that are skipped."""
    from pyarrow import fs

    remember(source)
    try:
        system, files = (_remote_files if source.startswith(_REMOTE) else _local_files)(source, kind)
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        raise BadInput(f"{source} must be readable, but listing it failed: {error}.") from error
    root = split_options(source)[0].rstrip("/")
    folder = (not glob.has_magic(root) and len(files) != 1) or Path(root).is_dir()
    kept, skipped = [], []
    for file in sorted(files, key=lambda file: str(file.path)):
        if file.type != fs.FileType.File:
            continue
        below = (
            str(file.path).rpartition(f"/{Path(root).name}/")[2].split("/") if folder else [file.base_name]
        )
        if any(name.startswith((".", "_")) for name in below):
            continue
        if folder and kind in _TEXT_KINDS and not _has_known_form(file.base_name):
            skipped.append("/".join(below))
        else:
            kept.append(SourceFile(file.path, int(file.size), int(file.mtime_ns or 0)))
    return system, kept, skipped


def _has_known_form(name: str) -> bool:
    """Whether a file in a folder is text to read; others lie beside it in a clone of a data set."""
    known = table_kind(name) or without_packing(name).endswith((".txt", ".text"))
    return bool(known or _WIKI.fullmatch(without_packing(name))) and name not in _ABOUT


def hub_name(source: str) -> tuple[str, str | None, str] | None:
    """Parse name, configuration and split of an ``hf:`` source; None for any other source.

    Raises:
        BadInput: If the name is missing, or there are too many parts.
    """
    if not source.startswith(_HUB):
        return None
    name, *more = source.removeprefix(_HUB).split(":")
    if not name or len(more) > 2:
        raise BadInput(
            f"a corpus on the hub must be given as hf:name[:config][:split], but got {source!r}. Write "
            "hf:name::split if there is no config."
        )
    config, split = [*more, "", ""][:2]
    return name, config or None, split or "train"


def source_tables(source: str, kind: str, schema: Schema, encoding: str = "utf-8") -> Iterator[Table]:
    """Open the files of a source, one after the other.

    Args:
        source: See `read_texts`.
        kind: What the source is, for messages; a corpus may be text without columns.
        schema: Delimiter and header, where they are stated.
        encoding: Encoding of text files.

    Raises:
        BadInput: There is no file, or one of another form.
    """
    if (hub := hub_name(source)) is not None:
        yield hub_table(source, *hub)
        return
    system, files = list_files(source, kind)
    for file in files:
        form = table_kind(file.path)
        if kind != CORPUS and not form:
            raise BadInput(f"a {kind} must be one of {', '.join(TABLES)}, but got {file.path}. Convert it.")
        if file.size:
            form = sniffed_kind(system, file.path, encoding) if kind == CORPUS else form
            yield open_table(system, file.path, form, encoding, schema.delimiter, schema.header)


def _raw_texts(source: str, options: ReadOptions, reading: Reading) -> Iterator[tuple[str | Rejected, bool]]:
    """Read texts as they are in the source, with whether they are running text."""
    for table in source_tables(source, CORPUS, options.schema, options.encoding):
        column, guessed = text_column(table, options.schema, options.column or "")
        unused = [name for name in table.columns if name != column]
        reading.opened(table.form, {"text": column}, unused, table.notes)
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
    if len(text) < options.min_characters:
        return Rejected(text, f"fewer than {options.min_characters} characters")
    if len(text) > options.max_characters:
        return Rejected(text, f"more than {options.max_characters} characters")
    words = text.count(" ") + 1
    if words < options.min_words:
        return Rejected(text, f"fewer than {options.min_words} words")
    return Rejected(text, f"more than {options.max_words} words") if words > options.max_words else None


def _local_files(source: str, kind: str) -> tuple[Any, list[Any]]:
    from pyarrow import fs

    system = fs.LocalFileSystem()
    path = Path(source).expanduser().absolute()
    if path.is_dir():
        marco = text_files(path)
        if marco:
            return system, [system.get_file_info(str(file)) for file in marco]
        return system, list(system.get_file_info(fs.FileSelector(str(path), recursive=True)))
    if path.exists():
        return system, [system.get_file_info(str(path))]
    matches = glob.glob(str(path), recursive=True)
    if not matches:
        raise BadInput(
            f"the {kind} {source!r} does not exist. Give a file, a folder, a glob, s3://…, gs://…"
            f"{' or hf:name' if kind == 'corpus' else ''}."
        )
    return system, list(system.get_file_info(sorted(set(matches))))


def _remote_files(source: str, kind: str) -> tuple[Any, list[Any]]:
    from pyarrow import fs

    address, options = split_options(source)
    folder, parts = _before_wildcards(address)
    system, path = fs.FileSystem.from_uri(folder + options)
    info = system.get_file_info(path)
    absent = BadInput(f"the {kind} {source!r} does not exist. Check the address.")
    if info.type == fs.FileType.NotFound or (parts and info.type == fs.FileType.File):
        raise absent
    if info.type == fs.FileType.File:
        return system, [info]
    files = system.get_file_info(fs.FileSelector(path, recursive=len(parts) != 1 or parts == ["**"]))
    if not parts:
        return system, files
    start = len(path.rstrip("/")) + 1
    matching = [file for file in files if path_matches(file.path[start:].split("/"), parts)]
    if not matching:
        raise absent
    return system, matching


def split_options(source: str) -> tuple[str, str]:
    """Split off the options of a file system, such as ``?region=eu-west-1&scheme=http``.

    A ``?`` is otherwise a wildcard, as in ``part-?.txt``: options begin at a ``?`` after which nothing but
    ``name=value``, joined by ``&`` and without wildcards, follows.

    Returns:
        The address, and the options with their ``?``; the second is empty if there are none.
    """
    found = _OPTIONS.search(source)
    return (source[: found.start()], found[0]) if found else (source, "")


def path_matches(names: list[str], parts: list[str]) -> bool:
    """Whether a path matches a glob, both in parts; the rules are those of `glob.glob`.

    No wildcard matches a ``/``, ``**`` matches any number of folders, and names that start with a ``.`` are
    matched only by parts that do.
    """
    if not parts:
        return not names
    if not names:
        return all(part == "**" for part in parts)
    if names[0].startswith(".") and not parts[0].startswith("."):
        return parts[0] == "**" and path_matches(names, parts[1:])
    if parts[0] == "**":
        return path_matches(names, parts[1:]) or path_matches(names[1:], parts)
    return fnmatch.fnmatchcase(names[0], parts[0]) and path_matches(names[1:], parts[1:])


def _before_wildcards(address: str) -> tuple[str, list[str]]:
    """The folder of an address before its first wildcard, and the parts of the glob below it."""
    scheme, _, rest = address.partition("://")
    parts = rest.split("/")
    first = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return f"{scheme}://{'/'.join(parts[:first])}", parts[first:]
