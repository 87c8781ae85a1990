"""Reading parallel corpora: sentences and their translations.

A corpus is two files aligned line by line (Moses), one file with columns, or a data set
``hf:name[:config][:split]``. Text files of other suffixes than `rows.TABLES` have tab-separated columns.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.errors import BadInput, require
from stillhouse.corpora.reading.corpus import hub_name, list_files
from stillhouse.corpora.reading.formats import check_encoding
from stillhouse.corpora.reading.languages import NAMES, recognised
from stillhouse.corpora.reading.rows import (
    Row,
    Table,
    decoded,
    distinct,
    hub_table,
    is_unicode,
    missing,
    open_table,
    open_text,
    readable,
    table_kind,
)
from stillhouse.corpora.reading.schema import UNUSED, Schema
from stillhouse.corpora.reading.sentences import clean
from stillhouse.corpora.reading.understood import Reading
from stillhouse.corpora.tables import Rejected

PARALLEL = Schema(owner="parallel")
_USUAL = (("english", "non_english"), ("source", "target"))
_HEADER = {*NAMES, *(name.lower() for name in NAMES.values())} | set(
    "id text sentence source target src tgt lang language translation non eng deu fra spa ita".split()
)
"""Words of the cells of a header."""
_LOOKED_AT = 100

Pair = tuple[str, str]


@dataclass(frozen=True)
class ParallelCorpus:
    """One parallel corpus.

    Attributes:
        source: File with the source sentences; or the file or ``hf:`` data set with both sides.
        target: File with the translations, aligned line by line; empty if ``source`` has both sides.
        language: Language of the translations.
        limit: Number of pairs to take, see `counting`; None takes all.
        encoding: Encoding of text files.
        schema: Columns of ``source`` and ``target``, and whether there is a header. Without it english and
            non_english, source and target, or the names of languages are recognised, otherwise the two
            columns of text; a nested column ``translation`` is read by language.
    """

    source: str
    target: str = ""
    language: str = ""
    limit: int | None = None
    encoding: str = "utf-8"
    schema: Schema = PARALLEL

    def __post_init__(self) -> None:
        """Check what can be checked without reading files."""
        require(self.limit is None or self.limit > 0, "limit > 0", limit=self.limit)
        if self.target and self.schema.columns:
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
    both = str(sources[pairs[0]]), str(targets[pairs[0]])
    return ParallelCorpus(*both, language=target, limit=limit)


def read_parallel(corpus: ParallelCorpus, reading: Reading | None = None) -> Iterator[Pair | Rejected]:
    """Read the pairs of a corpus in order, cleaned; rows with a missing or undecodable side are rejected.

    Args:
        corpus: The corpus.
        reading: Learns what it is taken for.

    Raises:
        BadInput: If a file is missing or unreadable, the files differ in length, or a column does not exist.
    """
    reading = reading or Reading(corpus.source)
    pairs = _moses(corpus, reading) if corpus.target else _columns(corpus, reading)
    first = list(itertools.islice(pairs, _LOOKED_AT))
    _check_languages(corpus, [pair for pair in first if not isinstance(pair, Rejected)], reading)
    yield from itertools.chain(first, pairs)


def _check_languages(corpus: ParallelCorpus, pairs: Sequence[Pair], reading: Reading) -> None:
    """Note the languages of both sides, and refuse sides that are the wrong way round."""
    source, target = (recognised(pair[side] for pair in pairs) for side in (0, 1))
    if pairs:
        reading.examples |= dict(zip(("source", "target"), pairs[0], strict=True))
    reading.language = "-".join(filter(None, (source, corpus.language or target)))
    if source and corpus.language == source and target not in ("", source):
        raise BadInput(
            f"the translations of {corpus.source} must be in {NAMES[source]}, but its sources are, and the "
            f"translations seem to be in {NAMES[target]}. Say which column is which, such as --set "
            'parallel.columns="source: 2, target: 1".'
        )


def _checked(source: Any, target: Any) -> Pair | Rejected:
    sides = ["" if missing(side) else side for side in (source, target)]
    bad = next((side for side in sides if not isinstance(side, str)), None)
    if bad is not None:
        return bad if isinstance(bad, Rejected) else Rejected(repr(bad), "not text")
    if not all(map(is_unicode, sides)):
        return Rejected("\t".join(sides), "not valid Unicode")
    cleaned = [clean(side) for side in sides]
    return (cleaned[0], cleaned[1]) if all(cleaned) else Rejected("\t".join(sides), "empty")


def _moses(corpus: ParallelCorpus, reading: Reading) -> Iterator[Pair | Rejected]:
    read = {corpus.source: 0, corpus.target: 0}
    reading.opened("two files, aligned line by line", {"source": corpus.source, "target": corpus.target})
    both = itertools.zip_longest(_lines(corpus, corpus.source), _lines(corpus, corpus.target))
    for source, target in both:
        read[corpus.source] += source is not None
        read[corpus.target] += target is not None
        if source is not None and target is not None:
            yield _checked(source, target)
    if len(set(read.values())) != 1:
        counts = " and ".join(f"{path} has {count} lines" for path, count in read.items())
        raise BadInput(f"aligned files must have equally many lines, but {counts}.")


def _columns(corpus: ParallelCorpus, reading: Reading) -> Iterator[Pair | Rejected]:
    table = _table(corpus)
    rows = (row for _, row in corpus.schema.rows(table))
    first = list(itertools.islice(rows, _LOOKED_AT))
    whole = [row for row in first if not isinstance(row, Rejected)]
    nested = any(isinstance(row.get("translation"), Mapping) for row in whole)
    if nested:
        whole = [row["translation"] for row in whole if row["translation"]]
    columns = list(whole[0]) if nested and whole else table.columns
    source, target = _sides(corpus, columns, whole)
    reading.opened(
        table.form,
        {"source": source, "target": target},
        [name for name in columns if name not in (source, target)],
        table.notes,
    )
    for row in itertools.chain(first, rows):
        if isinstance(row, Rejected):
            yield row
            continue
        cells = (row["translation"] or {}) if nested else row
        if not nested and not {source, target} <= set(cells) and table.form.startswith("columns"):
            yield Rejected(
                "\t".join(cells.values()),
                f"fewer than {1 + max(map(columns.index, (source, target)))} columns",
            )
        else:
            yield _checked(cells.get(source), cells.get(target))


def _sides(corpus: ParallelCorpus, columns: Sequence[str], rows: Sequence[Row]) -> Pair:
    """The columns of the sources and the translations: stated, of usual names, or the only ones of text."""
    stated = corpus.schema.stated(columns, corpus.source)
    unused = stated.get(UNUSED, [])
    text = [name for name in columns if name not in unused and _is_text([row.get(name) for row in rows])]
    usual = (*_USUAL, ("en", corpus.language))
    found = next((pair for pair in usual if set(pair) <= set(columns)), None)
    if found is None and (len(text) == 2 or (len(text) > 2 and "1" in columns)):
        found = text[0], text[1]
    sides = [next(iter(stated.get(role, [])), "") for role in ("source", "target")]
    if found is not None and not all(sides):
        rest = [name for name in found if name not in sides]
        sides = [side or rest.pop(0) for side in sides]
    if not all(sides):
        raise BadInput(
            f"{corpus.source} must have two columns of sentences, but it is not clear which. Its columns: "
            f'{", ".join(columns)}. Say it: --set parallel.columns="source: NAME, target: NAME".'
        )
    return sides[0], sides[1]


def _is_text(values: Sequence[Any]) -> bool:
    """Whether a column has texts, and not numbers alone."""
    given = [value for value in values if not missing(value)]
    return all(isinstance(value, str) for value in given) and (
        not given or not all(value.strip().isdigit() for value in given)
    )


def _table(corpus: ParallelCorpus) -> Table:
    """The rows of a corpus in one file or on the hub."""
    if (hub := hub_name(corpus.source)) is not None:
        return hub_table(corpus.source, *hub)
    kind, schema = table_kind(corpus.source), corpus.schema
    if kind not in ("", "TSV"):
        system, files = _one_file(corpus.source)
        return open_table(system, files[0].path, kind, corpus.encoding, schema.delimiter, schema.header)
    lines = _lines(corpus, corpus.source)
    first = list(itertools.islice(lines, _LOOKED_AT))
    mark = "\t" if schema.delimiter in ("", "tab") else schema.delimiter
    cells = [line.split(mark) for line in first if not isinstance(line, Rejected)]
    names = cells[0] if cells and _has_header(cells[0], schema) else []
    width = max(map(len, cells), default=0)
    columns = distinct(names) or [str(place + 1) for place in range(width)]

    def rows(_: str | None = None) -> Iterator[tuple[str, Row | Rejected]]:
        for number, line in enumerate(itertools.chain(first[bool(names) :], lines), start=1 + bool(names)):
            if isinstance(line, Rejected):
                yield f"line {number}", line
            else:
                yield f"line {number}", dict(zip(columns, line.split(mark), strict=False))

    form = f"columns with {'a' if names else 'no'} header, delimiter {mark!r}"
    return Table(form, columns, rows)


def _has_header(cells: Sequence[str], schema: Schema) -> bool:
    """Whether the first line has names: as it is stated, as names are stated, or as they are recognised."""
    if schema.header:
        return schema.header == "yes"
    if schema.columns:
        return not all(name.isdigit() for names in schema.named().values() for name in names)
    words = [re.findall(r"[^\W\d_]+", cell.lower()) for cell in cells]
    return len(cells) > 1 and all(found and _HEADER.issuperset(found) for found in words)


def _one_file(path: str) -> tuple[Any, Sequence[Any]]:
    system, files = list_files(path)
    if len(files) != 1:
        raise BadInput(f"a side of a parallel corpus must be one file, but {path} is {len(files)} files.")
    return system, files


def _lines(corpus: ParallelCorpus, path: str) -> Iterator[str | Rejected]:
    """Read lines. Only a line feed ends a line: other separators inside a text must not shift the rest."""
    system, files = _one_file(path)
    with readable(path, f"{corpus.encoding} text"):
        try:
            with open_text(system, files[0].path, corpus.encoding) as stream:
                stream.reconfigure(newline="\n")
                for line in stream:
                    yield decoded(line.removesuffix("\n").removesuffix("\r"), corpus.encoding)
        except UnicodeError as error:
            raise BadInput(f"{path} must be {corpus.encoding} text, but is not: {error}.") from error


def _by_stem(place: Path, suffix: str) -> Iterator[tuple[tuple[str, str], Path]]:
    for ending in (f".{suffix}", f".{suffix}.gz"):
        for path in sorted(place.glob(f"*{ending}")) if place.is_dir() else []:
            yield (str(place), path.name.removesuffix(ending)), path
