"""Reading parallel corpora: sentences and their translations.

A corpus is two files that are aligned line by line (Moses), one file of tab-separated columns, or a data set
``hf:name[:config][:split]``; files are plain or gzipped.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stillhouse.core.errors import BadInput, require
from stillhouse.corpora.reading.corpus import hub_name, list_files
from stillhouse.corpora.reading.formats import check_encoding, decoded, open_text
from stillhouse.corpora.reading.sentences import clean
from stillhouse.corpora.writing import Rejected

USUAL_COLUMNS = (("english", "non_english"), ("source", "target"))

Pair = tuple[str, str]
_Raw = tuple[str | Rejected, str | Rejected]


@dataclass(frozen=True)
class Parallel:
    """One parallel corpus.

    Attributes:
        source: The file with the source sentences; or the file or ``hf:`` data set with both sides.
        target: The file with the translations, aligned line by line; empty where ``source`` has both sides.
        language: Of the translations.
        columns: Names of the two columns. A tab-separated file then has a header; without it the first two
            columns are taken. Of a data set, None takes english and non_english, or source and target; a
            column ``translation`` is looked into by language.
        limit: Stop after so many pairs are kept; None reads all.
        encoding: Of text files.
    """

    source: str
    target: str = ""
    language: str = ""
    columns: tuple[str, str] | None = None
    limit: int | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        """Check what can be checked without reading."""
        require(self.limit is None or self.limit > 0, "limit > 0", limit=self.limit)
        named = not (self.target and self.columns)
        require(named, "columns belong to a corpus in one file", target=self.target, columns=self.columns)
        check_encoding(self.encoding)


def moses_pair(folder: str, source: str, target: str, stem: str = "", limit: int | None = None) -> Parallel:
    """Find two aligned files by their languages, such as ``train.en.gz`` and ``train.de.gz``.

    Args:
        folder: Where they lie: there, or in ``{source}-{target}`` or ``{target}-{source}`` below it, as the
            Tatoeba test sets have them.
        source: Suffix of the one file.
        target: Suffix of the other, and the language of the pairs.
        stem: What stands before the suffix; may be left out where only one pair is there.
        limit: See `Parallel`.

    Raises:
        BadInput: There is no such pair, or several.
    """
    places = [Path(folder) / name for name in (".", f"{source}-{target}", f"{target}-{source}")]
    sources = {found: path for place in places for found, path in _by_stem(place, source)}
    targets = {found: path for place in places for found, path in _by_stem(place, target)}
    pairs = sorted(key for key in set(sources) & set(targets) if not stem or key[1] == stem)
    require(
        len(pairs) == 1,
        f"one pair of files *.{source} and *.{target} is there",
        folder=folder,
        found=[name for _, name in pairs],
        remedy="Give the name before the suffix (stem)." if pairs else "Check the folder and the languages.",
    )
    return Parallel(str(sources[pairs[0]]), str(targets[pairs[0]]), language=target, limit=limit)


def read_parallel(corpus: Parallel) -> Iterator[Pair | Rejected]:
    """The cleaned pairs of a corpus in order, and the rows of which one side is missing or no text.

    Raises:
        BadInput: A file is missing or unreadable, the two have another number of lines, or a column is not
            there.
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


def _raw_pairs(corpus: Parallel) -> Iterator[_Raw]:
    if (hub := hub_name(corpus.source)) is not None:
        return _hub(corpus, *hub)
    return _moses(corpus) if corpus.target else _columns(corpus)


def _moses(corpus: Parallel) -> Iterator[_Raw]:
    read = {corpus.source: 0, corpus.target: 0}
    both = itertools.zip_longest(_lines(corpus, corpus.source), _lines(corpus, corpus.target))
    for source, target in both:
        read[corpus.source] += source is not None
        read[corpus.target] += target is not None
        if source is not None and target is not None:
            yield source, target
    aligned = len(set(read.values())) == 1
    require(aligned, "aligned files have equally many lines", **{k: f"{n} lines" for k, n in read.items()})


def _columns(corpus: Parallel) -> Iterator[_Raw]:
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


def _hub(corpus: Parallel, name: str, config: str | None, split: str) -> Iterator[_Raw]:
    import datasets

    try:
        rows = datasets.load_dataset(name, config, split=split, streaming=True)
        columns = list(rows.column_names or next(iter(rows)))
    except Exception as error:  # The hub's client raises all kinds; what the user can mend is the name.
        raise BadInput(f"{corpus.source} must be a data set that can be loaded, but got: {error}") from error
    usual = next((pair for pair in USUAL_COLUMNS if set(pair) <= set(columns)), None)
    wanted = corpus.columns or usual
    if wanted is None:
        raise BadInput(
            f"{corpus.source} must have two columns that are named in `columns`. Its columns: {columns}."
        )
    nested = "translation" in columns and not set(wanted) <= set(columns)
    for row in rows:
        cells = (row["translation"] or {}) if nested else row
        if cells:
            _place(list(cells), wanted[0], corpus.source)
            _place(list(cells), wanted[1], corpus.source)
        yield _cell(cells.get(wanted[0])), _cell(cells.get(wanted[1]))


def _cell(value: object) -> str | Rejected:
    if value is None:
        return ""
    return value if isinstance(value, str) else Rejected(repr(value), "not text")


def _place(columns: Sequence[str], name: str, source: str) -> int:
    require(name in columns, f"{source} has the column", column=name, remedy=f"It has: {', '.join(columns)}.")
    return list(columns).index(name)


def _lines(corpus: Parallel, path: str) -> Iterator[str | Rejected]:
    """Lines of a file. Only a line feed ends one: another separator inside a text must not shift the rest."""
    system, files = list_files(path)
    require(len(files) == 1, "a side of a parallel corpus is one file", corpus=path, files=len(files))
    try:
        with open_text(system, files[0].path, corpus.encoding) as stream:
            stream.reconfigure(newline="\n")
            for line in stream:
                yield decoded(line.removesuffix("\n").removesuffix("\r"), corpus.encoding)
    except (OSError, EOFError, UnicodeError) as error:
        raise BadInput(f"{path} must be {corpus.encoding} text, but reading it gave: {error}.") from error


def _by_stem(place: Path, suffix: str) -> Iterator[tuple[tuple[str, str], Path]]:
    for ending in (f".{suffix}", f".{suffix}.gz"):
        for path in sorted(place.glob(f"*{ending}")) if place.is_dir() else []:
            yield (str(place), path.name.removesuffix(ending)), path
