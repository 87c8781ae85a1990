"""Reading parallel corpora: sentences and their translations.

A corpus is two files aligned line by line (Moses), one file with tab-separated columns, or a data set
``hf:name[:config][:split]``; files are plain or gzipped.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stillhouse.core.errors import BadInput, require
from stillhouse.corpora.reading.corpus import hub_name, list_files
from stillhouse.corpora.reading.formats import check_encoding
from stillhouse.corpora.reading.rows import decoded, open_text
from stillhouse.corpora.reading.sentences import clean
from stillhouse.corpora.tables import Rejected

USUAL_COLUMNS = (("english", "non_english"), ("source", "target"))

Pair = tuple[str, str]
_Raw = tuple[str | Rejected, str | Rejected]


@dataclass(frozen=True)
class ParallelCorpus:
    """One parallel corpus.

    Attributes:
        source: File with the source sentences; or the file or ``hf:`` data set with both sides.
        target: File with the translations, aligned line by line; empty if ``source`` has both sides.
        language: Language of the translations.
        columns: Names of the two columns. A tab-separated file then needs a header; with None its first two
            columns are taken. For a data set, None takes english and non_english, or source and target; a
            nested column ``translation`` is read by language.
        limit: Number of pairs to take, see `counting`; None takes all.
        encoding: Encoding of text files.
    """

    source: str
    target: str = ""
    language: str = ""
    columns: tuple[str, str] | None = None
    limit: int | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        """Check what can be checked without reading files."""
        require(self.limit is None or self.limit > 0, "limit > 0", limit=self.limit)
        if self.target and self.columns:
            raise BadInput(
                f"columns are for a corpus in one file, but the target {self.target} is given as well. Omit "
                "one of them."
            )
        check_encoding(self.encoding)


def moses_pair(
    folder: str, source: str, target: str, stem: str = "", limit: int | None = None
) -> ParallelCorpus:
    """Find two aligned files by their languages, such as ``train.en.gz`` and ``train.de.gz``.

    Args:
        folder: Folder of the files, or of a folder ``{source}-{target}`` or ``{target}-{source}``, as in the
            Tatoeba test sets.
        source: Suffix of the file with the source sentences.
        target: Suffix of the file with the translations, and their language.
        stem: File name before the suffix; may be empty if there is only one pair.
        limit: See `ParallelCorpus`.

    Raises:
        BadInput: If there is no such pair, or several.
    """
    places = [Path(folder) / name for name in (".", f"{source}-{target}", f"{target}-{source}")]
    sources = {found: path for place in places for found, path in _by_stem(place, source)}
    targets = {found: path for place in places for found, path in _by_stem(place, target)}
    pairs = sorted(key for key in set(sources) & set(targets) if not stem or key[1] == stem)
    if len(pairs) != 1:
        names = ", ".join(name for _, name in pairs) or "none"
        remedy = "Give the name before the suffix (stem)." if pairs else "Check the folder and the languages."
        raise BadInput(
            f"{folder} must have one pair of files *.{source} and *.{target}, but has: {names}. {remedy}"
        )
    return ParallelCorpus(str(sources[pairs[0]]), str(targets[pairs[0]]), language=target, limit=limit)


def read_parallel(corpus: ParallelCorpus) -> Iterator[Pair | Rejected]:
    """Read the pairs of a corpus in order, cleaned; rows with a missing or undecodable side are rejected.

    Raises:
        BadInput: If a file is missing or unreadable, the files differ in length, or a column does not exist.
    """
    for source, target in _raw_pairs(corpus):
        sides = [side if isinstance(side, Rejected) else clean(side) for side in (source, target)]
        bad = next((side for side in sides if isinstance(side, Rejected)), None)
        if bad is not None:
            yield bad
        elif not all(sides):
            yield Rejected(f"{source}\t{target}", "empty")
        elif any("\ud800" <= character <= "\udfff" for side in sides for character in str(side)):
            yield Rejected(f"{source}\t{target}", "not valid Unicode")
        else:
            yield str(sides[0]), str(sides[1])


def _raw_pairs(corpus: ParallelCorpus) -> Iterator[_Raw]:
    if (hub := hub_name(corpus.source)) is not None:
        return _hub(corpus, *hub)
    return _moses(corpus) if corpus.target else _columns(corpus)


def _moses(corpus: ParallelCorpus) -> Iterator[_Raw]:
    read = {corpus.source: 0, corpus.target: 0}
    both = itertools.zip_longest(_lines(corpus, corpus.source), _lines(corpus, corpus.target))
    for source, target in both:
        read[corpus.source] += source is not None
        read[corpus.target] += target is not None
        if source is not None and target is not None:
            yield source, target
    if len(set(read.values())) != 1:
        counts = " and ".join(f"{path} has {count} lines" for path, count in read.items())
        raise BadInput(f"aligned files must have equally many lines, but {counts}.")


def _columns(corpus: ParallelCorpus) -> Iterator[_Raw]:
    lines, first, second = _lines(corpus, corpus.source), 0, 1
    if corpus.columns is not None:
        header = str(next(lines, "")).split("\t")
        first, second = (_place(header, name, corpus.source) for name in corpus.columns)
    for line in lines:
        if isinstance(line, Rejected):
            yield line, line
            continue
        cells = line.split("\t")
        short = Rejected(line, f"fewer than {max(first, second) + 1} columns")
        yield (cells[first], cells[second]) if max(first, second) < len(cells) else (short, short)


def _hub(corpus: ParallelCorpus, name: str, config: str | None, split: str) -> Iterator[_Raw]:
    import datasets

    try:
        rows = datasets.load_dataset(name, config, split=split, streaming=True)
        columns = list(rows.column_names or next(iter(rows)))
    except Exception as error:  # The hub's client raises errors of many kinds; the user can fix the name.
        raise BadInput(f"{corpus.source} must be a data set that can be loaded, but got: {error}") from error
    usual = next((pair for pair in USUAL_COLUMNS if set(pair) <= set(columns)), None)
    names = corpus.columns or usual
    if names is None:
        raise BadInput(
            f"{corpus.source} must have two columns that are named in `columns`. Its columns: {columns}."
        )
    nested = "translation" in columns and not set(names) <= set(columns)
    for row in rows:
        cells = (row["translation"] or {}) if nested else row
        if cells:
            _place(list(cells), names[0], corpus.source)
            _place(list(cells), names[1], corpus.source)
        yield _cell(cells.get(names[0])), _cell(cells.get(names[1]))


def _cell(value: object) -> str | Rejected:
    if value is None:
        return ""
    return value if isinstance(value, str) else Rejected(repr(value), "not text")


def _place(columns: Sequence[str], name: str, source: str) -> int:
    if name not in columns:
        raise BadInput(f"{source} has no column {name!r}. Its columns: {', '.join(columns)}.")
    return list(columns).index(name)


def _lines(corpus: ParallelCorpus, path: str) -> Iterator[str | Rejected]:
    """Read lines. Only a line feed ends a line: other separators inside a text must not shift the rest."""
    system, files = list_files(path)
    if len(files) != 1:
        raise BadInput(f"a side of a parallel corpus must be one file, but {path} is {len(files)} files.")
    try:
        with open_text(system, files[0].path, corpus.encoding) as stream:
            stream.reconfigure(newline="\n")
            for line in stream:
                yield decoded(line.removesuffix("\n").removesuffix("\r"), corpus.encoding)
    except (OSError, EOFError, UnicodeError) as error:
        raise BadInput(f"{path} must be {corpus.encoding} text, but reading it failed: {error}.") from error


def _by_stem(place: Path, suffix: str) -> Iterator[tuple[tuple[str, str], Path]]:
    for ending in (f".{suffix}", f".{suffix}.gz"):
        for path in sorted(place.glob(f"*{ending}")) if place.is_dir() else []:
            yield (str(place), path.name.removesuffix(ending)), path
