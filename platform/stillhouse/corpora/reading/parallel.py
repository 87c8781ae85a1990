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
from stillhouse.corpora.reading.cleaning import clean
from stillhouse.corpora.reading.languages import NAMES, recognised
from stillhouse.corpora.reading.rows import (
    Cells,
    Numbered,
    Rejected,
    Row,
    Table,
    hub_table,
    is_unicode,
    missing,
    open_table,
    read_lines,
    table_kind,
)
from stillhouse.corpora.reading.schema import UNUSED, Schema
from stillhouse.corpora.reading.sources import CORPUS, Reading, SourceFile, hub_name, list_files

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
        schema: Columns of ``source`` and ``target``, and whether there is a header. Without it english and
            non_english, source and target, or the names of languages are recognised, otherwise the two
            columns of text; a nested column ``translation`` is read by language.
    """

    source: str
    target: str = ""
    language: str = ""
    limit: int | None = None
    schema: Schema = PARALLEL

    def __post_init__(self) -> None:
        """Check what can be checked without reading files."""
        require(self.limit is None or self.limit > 0, "limit > 0", limit=self.limit)


def moses_pair(folder: str, source: str, target: str, limit: int | None = None) -> ParallelCorpus:
    """Find two aligned files by their languages, such as ``train.en.gz`` and ``train.de.gz``.

    Args:
        folder: Folder of the files, or of a folder ``{source}-{target}`` or ``{target}-{source}``, as in the
            Tatoeba test sets.
        source: Suffix of the file with the source sentences.
        target: Suffix of the file with the translations, and their language.
        limit: See `ParallelCorpus`.

    Raises:
        BadInput: If there is no such pair, or several.
    """
    places = [Path(folder) / name for name in (".", f"{source}-{target}", f"{target}-{source}")]
    sources = {found: path for place in places for found, path in _by_stem(place, source)}
    targets = {found: path for place in places for found, path in _by_stem(place, target)}
    pairs = sorted(key for key in set(sources) & set(targets))
    if len(pairs) != 1:
        names = ", ".join(name for _, name in pairs) or "none"
        remedy = "Leave one of them there." if pairs else "Check the folder and the languages."
        raise BadInput(
            f"{folder} must have one pair of files *.{source} and *.{target}, but has: {names}. {remedy}"
        )
    both = str(sources[pairs[0]]), str(targets[pairs[0]])
    return ParallelCorpus(*both, language=target, limit=limit)


def read_parallel(corpus: ParallelCorpus, reading: Reading[Pair] | None = None) -> Iterator[Pair | Rejected]:
    """Read the pairs of a corpus in order, cleaned; rows with a missing or undecodable side are rejected.

    Raises:
        BadInput: If a file is missing or unreadable, the files differ in length, or a column does not exist.
    """
    reading = reading or reading_of_pairs(corpus)
    pairs = _pairs(corpus, reading)
    first = list(itertools.islice(pairs, _LOOKED_AT))
    _check_languages(corpus, [pair for pair in first if not isinstance(pair, Rejected)], reading)
    yield from itertools.chain(first, pairs)


def reading_of_pairs(corpus: ParallelCorpus) -> Reading[Pair]:
    """A corpus before any of it is read."""
    return Reading(corpus.source, CORPUS, corpus.schema, corpus.limit)


def _check_languages(corpus: ParallelCorpus, pairs: Sequence[Pair], reading: Reading[Pair]) -> None:
    """Note the languages of both sides, and refuse sides that are the wrong way round."""
    source, target = (recognised(pair[side] for pair in pairs) for side in (0, 1))
    source = corpus.schema.language or source
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
    if others := [side for side in sides if not isinstance(side, str)]:
        return Rejected(repr(others[0]), "not text")
    raw, cleaned = "\t".join(sides), (clean(sides[0]), clean(sides[1]))
    if not is_unicode(raw):
        return Rejected(raw, "not utf-8")
    return cleaned if all(cleaned) else Rejected(raw, "empty")


def _aligned(corpus: ParallelCorpus) -> Table:
    """Two files as a table whose columns are called by them."""
    paths = [corpus.source, corpus.target]

    def rows(_: str | None) -> Numbered:
        read, opened = [0, 0], [_one_file(path) for path in paths]
        lines = (read_lines(system, file.path, "utf-8") for system, file in opened)
        for number, sides in enumerate(itertools.zip_longest(*lines), start=1):
            read = [count + (side is not None) for count, side in zip(read, sides, strict=True)]
            if None not in sides:
                texts = (side.removesuffix("\n").removesuffix("\r") for side in sides)
                yield number, dict(zip(paths, texts, strict=True))
        if read[0] != read[1]:
            counts = " and ".join(
                f"{path} has {count} lines" for path, count in zip(paths, read, strict=True)
            )
            raise BadInput(f"aligned files must have equally many lines, but {counts}.")

    return Table(corpus.source, "two files, aligned line by line", paths, rows)


def _pairs(corpus: ParallelCorpus, reading: Reading[Pair]) -> Iterator[Pair | Rejected]:
    table = _table(corpus)
    rows = (row for _, row in corpus.schema.rows(table))
    first = list(itertools.islice(rows, _LOOKED_AT))
    whole = [row for row in first if not isinstance(row, Rejected)]
    nested = any(isinstance(row.get("translation"), Mapping) for row in whole)
    if nested:
        whole = [row["translation"] for row in whole if row.get("translation")]
    columns = list(whole[0]) if nested and whole else table.columns
    source, target = (corpus.source, corpus.target) if corpus.target else _sides(corpus, columns, whole)
    unused = [name for name in columns if name not in (source, target)]
    reading.opened(table, {"source": source, "target": target}, unused)
    for row in itertools.chain(first, rows):
        if isinstance(row, Rejected):
            yield row
            continue
        cells = (row.get("translation") or {}) if nested else row
        if table.kind == "TSV" and not {source, target} <= cells.keys():
            least = 1 + max(map(columns.index, (source, target)))
            yield Rejected("\t".join(cells.values()), f"fewer than {least} columns")
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
    """Return whether a column has texts, and not numbers alone."""
    given = [value for value in values if not missing(value)]
    return all(isinstance(value, str) for value in given) and (
        not given or not all(value.strip().isdigit() for value in given)
    )


def _table(corpus: ParallelCorpus) -> Table:
    """The rows of a corpus in two files, in one file or on the hub."""
    if corpus.target:
        return _aligned(corpus)
    if (hub := hub_name(corpus.source)) is not None:
        return hub_table(corpus.source, *hub)
    schema, (system, file) = corpus.schema, _one_file(corpus.source)
    kind, cells = table_kind(file.path) or "TSV", Cells(schema.delimiter, schema.header)
    if kind == "TSV":
        first = next(read_lines(system, file.path, "utf-8"), "").rstrip("\r\n")
        delimiter = schema.delimiter.replace("tab", "") or "\t"
        cells = Cells(delimiter, "yes" if _is_header(first.split(delimiter), schema) else "no", ragged=True)
    return open_table(system, file.path, kind, "utf-8", cells)


def _is_header(cells: Sequence[str], schema: Schema) -> bool:
    """Whether the first line has names: as it is stated, as names are stated, or as they are recognised."""
    if schema.header:
        return schema.header == "yes"
    if schema.columns:
        return not all(name.isdigit() for names in schema.named().values() for name in names)
    words = [re.findall(r"[^\W\d_]+", cell.lower()) for cell in cells]
    return len(cells) > 1 and all(found and _HEADER.issuperset(found) for found in words)


def _one_file(path: str) -> tuple[Any, SourceFile]:
    system, files, _ = list_files(path)
    if len(files) != 1:
        raise BadInput(f"a side of a parallel corpus must be one file, but {path} is {len(files)} files.")
    return system, files[0]


def _by_stem(place: Path, suffix: str) -> Iterator[tuple[tuple[str, str], Path]]:
    for ending in (f".{suffix}", f".{suffix}.gz"):
        for path in sorted(place.glob(f"*{ending}")) if place.is_dir() else []:
            yield (str(place), path.name.removesuffix(ending)), path
