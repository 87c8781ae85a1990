"""Published retrieval test collections: passages are streamed, queries and judgements held in memory.

* BEIR: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/{dev,train,test}.tsv`` with a header (Thakur et al.);
* SciFact as a CSV: ``corpus_train.csv``, ``claims_*.csv``, ``qrels/*.tsv``; abstracts are lists of sentences;
* MS MARCO: ``collection.tsv``, and per split ``queries.dev.small.tsv`` and ``qrels.dev.small.tsv``;
* TREC: Cranfield and Vaswani as tagged documents and topics, CACM in SMART's fields.

A passage is title + " " + text. Passages and queries without a text, or with one that is no Unicode (half an
emoji), are left out and counted. Judgements are recognised by their cells, with or without a header:
``query passage gain`` (BEIR), ``query 0 passage gain`` (TREC), or CACM's.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from stillhouse.core.errors import BadInput, nearest
from stillhouse.corpora.published.msmarco import id_texts
from stillhouse.corpora.published.smart_format import read_sentences, read_smart, read_tagged
from stillhouse.corpora.reading.cleaning import dedup_key
from stillhouse.corpora.reading.languages import recognised
from stillhouse.corpora.reading.row_limit import in_blocks
from stillhouse.corpora.reading.rows import is_unicode, numbered_lines, published_table
from stillhouse.corpora.reading.understood import Understood
from stillhouse.corpora.seen_keys import SeenKeys

PLACES = ("retrieval", "beir", ".")
TAGGED = (
    ("doc-text.trec", "query-text.trec", "qrels"),
    ("cran.all.1400.xml", "cran.qry.xml", "cranqrel.trec.txt"),
)
CACM = ("cacm.all", "query.text", "qrels.text")
MARCO = "collection.tsv"
MARCO_SPLIT = "dev.small"
_OBJECT = "a JSON object with `_id` and `text`"
_ROLES = ("passage", "query", "judged")
_LOOKED_AT = 200
_AT_ONCE = 16_384
"""Ids that are compared with those before at once."""
GAIN_NAMES = ("score", "relevance", "rel", "gain", "label", "grade", "judgement", "judgment")
"""Names of the last column by which a header of judgements is recognised."""


class Entry(NamedTuple):
    """A passage or query: its id, title and text, first line, and its text alone where it has a title."""

    id: str
    text: str
    line: int
    body: str = ""


@dataclass(frozen=True)
class Layout:
    """The files of a collection's folder.

    Attributes:
        folder: The folder.
        documents: File of the passages.
        splits: Split to its files of judgements and of queries; one file without splits is ``all``.
        read: Reads the entries of ``documents`` and of the queries.
    """

    folder: Path
    documents: Path
    splits: Mapping[str, tuple[Path, Path]]
    read: Callable[[Path], Iterator[Entry]]


@dataclass(frozen=True)
class JudgedCollection:
    """A collection whose judgements were checked against its passages.

    Attributes:
        name: Name of the folder.
        split: Its split, such as ``dev``; ``all`` if it has no splits.
        queries: Id to text, for the queries with a relevant passage.
        qrels: Query id to passage id to gain, as in the file.
        stream: Iterates over the passages from the start, without those that are left out.
        own: Query id to the row in ``stream`` of a passage that is the query itself, which its query does not
            find: it has the same id and, unless the user says that ids are enough, the same text; the pair is
            not judged.
        notes: What was left out, one sentence each.
        files: The files that it was read from.
    """

    name: str
    split: str
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    stream: Callable[[], Iterator[Entry]]
    own: dict[str, int]
    notes: tuple[str, ...]
    files: tuple[Path, ...]

    def understood(self) -> Understood:
        """The collection as it was understood."""
        texts = next(self.stream()).text, next(iter(self.queries.values()))
        files = {role: path.name for role, path in zip(_ROLES, self.files, strict=True)}
        note = f"{len(self.queries):,} {self.split} queries"
        language = recognised(islice(self.queries.values(), _LOOKED_AT))
        return Understood(
            self.name,
            "collection",
            3,
            language,
            note=note,
            roles=files,
            examples=dict(zip(_ROLES, texts, strict=False)),
        )


def find_collections(
    root: str, *, final: bool = False, split: str = "", only: Sequence[str] = (), drop_own_ids: bool = False
) -> tuple[list[JudgedCollection], tuple[str, ...]]:
    """Find the collections under a data root that have the split, or no splits, and notes on the others.

    Args:
        root: The data root.
        final: Whether the test splits are opened, instead of the dev splits.
        split: Another split that is measured, such as ``train``.
        only: Names of folders; no others are read. Without any, all are.
        drop_own_ids: As for `open_split`.

    Raises:
        BadInput: If a file is malformed, such as a repeated id or a judgement of an unknown id (the message
            names the line); if a name is unknown, two folders have one name, or none has the split.
    """
    layouts: dict[str, Layout] = {}
    every = list(_layouts(root))
    for layout in every:
        folder = layout.folder
        if only and folder.name not in only:
            continue
        first = layouts.setdefault(folder.name, layout).folder
        if first.resolve() != folder.resolve():
            raise BadInput(
                f"each collection must have a name of its own, but {first} and {folder} have the same. "
                "Rename one of the folders."
            )
    for name in only:
        if name not in layouts:
            names = sorted({layout.folder.name for layout in every})
            raise BadInput(f"no collection {name!r} under {root}. {nearest(name, names)}")
    wanted = "test" if final else split or "dev"
    chosen = {name: _split_of(layout, wanted, named=bool(split)) for name, layout in layouts.items()}
    lacking = [
        f"{name} has no {wanted} judgements (it has: {', '.join(layouts[name].splits) or 'none'})"
        for name, found in chosen.items()
        if found is None
    ]
    if lacking and (only or len(lacking) == len(layouts)):
        raise BadInput(
            f"a collection must have the split that is measured, but {lacking[0]}. Name one that it has with "
            "--split, such as train; --final opens test."
        )
    notes = tuple(f"{each}: left out" for each in lacking)
    opened = [
        open_split(layouts[name], *layouts[name].splits[found], drop_own_ids=drop_own_ids)
        for name in only or layouts
        if (found := chosen[name]) is not None
    ]
    return opened, notes


def _layouts(root: str) -> Iterator[Layout]:
    """The collections under a data root."""
    for place in (Path(root) / each for each in PLACES):
        folders = (path for path in [place, *place.glob("*")] if path.is_dir())
        yield from filter(None, map(layout_of, sorted(folders)))


def _split_of(layout: Layout, wanted: str, *, named: bool) -> str | None:
    """The name of a split among those of a collection, or its only one unless the user named the split."""
    names = ((MARCO_SPLIT,) if wanted == "dev" else ()) + (wanted,) + (() if named else ("all",))
    return next((name for name in names if name in layout.splits), None)


def layout_of(folder: Path) -> Layout | None:
    """Recognise the form of a collection's folder; None if it has none of the known ones."""
    tagged = next((names for names in TAGGED if (folder / names[0]).is_file()), None)
    by_split = {path.stem: path for path in sorted((folder / "qrels").glob("*.tsv"))}
    if (folder / "corpus.jsonl").is_file():
        queries = folder / "queries.jsonl"
        splits = {name: (path, queries) for name, path in by_split.items()}
        return Layout(folder, folder / "corpus.jsonl", splits, _beir)
    if (folder / "corpus_train.csv").is_file():
        claims = {
            name: "claims_validation.csv" if name == "test" else "claims_train.csv" for name in by_split
        }
        splits = {name: (path, folder / claims[name]) for name, path in by_split.items()}
        return Layout(folder, folder / "corpus_train.csv", splits, _claims)
    for names, read in ((tagged, _tagged), (CACM, _smart)):
        if names is not None and (folder / names[0]).is_file():
            documents, topics, judgements = (folder / name for name in names)
            return Layout(folder, documents, {"all": (judgements, topics)}, read)
    if (folder / MARCO).is_file():
        named = {path.name.removeprefix("qrels.").removesuffix(".tsv") for path in folder.glob("qrels.*.tsv")}
        splits = {
            name: (folder / f"qrels.{name}.tsv", folder / f"queries.{name}.tsv")
            for name in sorted({*named, MARCO_SPLIT})
        }
        return Layout(folder, folder / MARCO, splits, _tabbed)
    return None


def open_split(
    layout: Layout, judgements: Path, topics: Path, *, drop_own_ids: bool = False
) -> JudgedCollection:
    """Open a collection with one file of judgements, which is checked against the passages.

    With ``drop_own_ids`` no query finds a passage with its own id, unless the pair is judged, even where the
    passage has another text.

    Raises:
        BadInput: If a file is missing or malformed, or names an unknown id; the message names the line.
    """
    judged = read_judged(layout, judgements, topics)
    own, notes = _own_passages(layout, judged, judgements, drop_own_ids=drop_own_ids)
    split = next((name for name, files in layout.splits.items() if files[0] == judgements), judgements.stem)
    return JudgedCollection(
        layout.folder.name,
        "dev" if split == MARCO_SPLIT else split,
        judged.queries,
        judged.qrels,
        lambda: (entry for entry in layout.read(layout.documents) if _is_text(entry)),
        own,
        (*judged.notes, *notes),
        (layout.documents, topics, judgements),
    )


@dataclass(frozen=True)
class JudgedQueries:
    """Queries and judgements, not yet checked against the passages.

    Attributes:
        queries: Id to text, for the queries with a text and a relevant passage.
        qrels: Query id to passage id to gain; none of a query without a text.
        passages: The passages that are judged for any query.
        notes: What was left out, one sentence each.
    """

    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    passages: set[str]
    notes: tuple[str, ...]


def read_judged(layout: Layout, judgements: Path, topics: Path) -> JudgedQueries:
    """Read the queries and the judgements of a split.

    Raises:
        BadInput: As for `open_split`, but for unknown passages.
    """
    for path in (layout.documents, topics, judgements):
        if not path.is_file():
            raise BadInput(f"a retrieval collection must be complete, but {path} is missing.")
    texts = _queries(topics, layout.read)
    qrels: dict[str, dict[str, int]] = {}
    first: dict[str, int] = {}
    for line, query, passage, gain in _judgements(layout, judgements):
        if passage in qrels.setdefault(query, {}):
            raise BadInput(f"{judgements}, line {line}: {query!r} and {passage!r} must be judged once.")
        qrels[query][passage] = gain
        first.setdefault(query, line)
    judged, passages = set(qrels), {passage for gains in qrels.values() for passage in gains}
    notes, name = [], layout.folder.name
    if not judged <= set(texts) and judged == {str(at + 1) for at in range(len(judged))}:
        # Cranfield's judgements number the topics in their order; the topics' own numbers have gaps.
        texts = {str(at): text for at, text in enumerate(texts.values(), start=1)}
        notes.append(f"the judgements of {name} number the queries in order")
    for query, line in first.items():
        if query not in texts:
            raise BadInput(
                f"{judgements}, line {line}: must name an existing query, but {query!r} is not one."
            )
    asked = {query: text for query, text in texts.items() if max(qrels.get(query, {"": 0}).values()) > 0}
    queries = {query: text for query, text in asked.items() if text}
    blank = [query for query, text in texts.items() if not text and qrels.pop(query, {})]
    if not queries:
        raise BadInput(
            f"a collection must have a query with a relevant passage and a text, but {judgements} has none."
        )
    if blank:
        notes.append(
            f"{len(blank)} judged queries of {name} have no valid text: left out ({topics}: {blank[0]!r})"
        )
    alone = len(set(texts) - set(asked) - _queries_of_others(layout, judgements, topics))
    if alone:
        notes.append(f"{alone} queries of {name} have no relevant passage: left out")
    return JudgedQueries(queries, qrels, passages, tuple(notes))


def _queries_of_others(layout: Layout, judgements: Path, topics: Path) -> set[str]:
    """The queries with a relevant passage in other splits of the same file of queries."""
    others = {each for each, queries in layout.splits.values() if queries == topics} - {judgements}
    lines = (line for path in others if path.is_file() for line in _judgements(layout, path))
    return {query for _, query, _, gain in lines if gain > 0}


def _own_passages(
    layout: Layout, judged: JudgedQueries, judgements: Path, *, drop_own_ids: bool
) -> tuple[dict[str, int], list[str]]:
    """Read the passages once: those that are a query (see `JudgedCollection.own`), and notes."""
    path, named = layout.documents, judged.passages
    found, unusable, rows = set[str](), list[int](), 0
    own: dict[str, int] = {}
    for entry in _unique(path, layout.read(path)):
        if entry.id in named:
            found.add(entry.id)
        if not _is_text(entry):
            unusable.append(entry.line)
            continue
        if entry.id in judged.queries and entry.id not in judged.qrels[entry.id]:
            if drop_own_ids or _is_same(judged.queries[entry.id], entry):
                own[entry.id] = rows
        rows += 1
    if not rows:
        raise BadInput(f"a collection must have passages, but {path} has none.")
    for line, _, name, _ in _judgements(layout, judgements) if named - found else ():
        if name not in found:
            raise BadInput(
                f"{judgements}, line {line}: must name an existing passage, but {name!r} is not one."
            )
    notes, name = [], layout.folder.name
    if unusable:
        at = ", ".join(str(line) for line in unusable[:3])
        notes.append(f"{len(unusable)} passages of {name} have no valid text: left out ({path}, line {at})")
    if own:
        same = "id" if drop_own_ids else "id and the text"
        notes.append(
            f"{len(own)} passages of {name} have the {same} of a query that they are not judged for: "
            "dropped from what it finds"
        )
    return own, notes


def _is_text(entry: Entry) -> bool:
    """Whether an entry has a text, and neither it nor the id has a lone surrogate, which JSON can spell."""
    return bool(entry.text) and is_unicode(f"{entry.id}{entry.text}")


def _is_same(query: str, passage: Entry) -> bool:
    return dedup_key(query) in (dedup_key(passage.text), dedup_key(passage.body or passage.text))


def _unique(path: Path, entries: Iterator[Entry]) -> Iterator[Entry]:
    """Refuse an id that comes twice; there may be millions, of which hashes are held on disk."""
    seen = SeenKeys(Path(tempfile.gettempdir()))
    for block in in_blocks(entries, _AT_ONCE):
        ids = (entry.id.encode("utf-8", "surrogatepass") for entry in block)
        new_N = seen.new(b"".join(blake2b(each, digest_size=16).digest() for each in ids))
        if not new_N.all():
            raise _repeated(path, block[int(new_N.argmin())])
        yield from block


def _repeated(path: Path, entry: Entry) -> BadInput:
    return BadInput(f"{path}, line {entry.line}: an id must be unique, but {entry.id!r} is repeated.")


def _queries(path: Path, read: Callable[[Path], Iterator[Entry]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for entry in read(path):
        text = entry.text if _is_text(entry) else ""
        # A claim of SciFact has one row per piece of evidence.
        if texts.setdefault(entry.id, text) != text:
            raise _repeated(path, entry)
    return texts


def _judgements(layout: Layout, path: Path) -> Iterator[tuple[int, str, str, int]]:
    """Read line, query, passage and gain; every row has the layout of the first."""
    width = 0
    for at, line in numbered_lines(path):
        if not line.strip():
            continue
        cells = line.rstrip("\r\n").split("\t")
        cells = cells if len(cells) in (3, 4) else ascii_cells(line)
        if not width and len(cells) in (3, 4) and cells[-1].strip().casefold() in GAIN_NAMES:
            width = len(cells)
            continue
        width = width or len(cells)
        try:
            query, passage, gain = _judgement(cells, width, smart=layout.read is _smart)
        except ValueError:
            raise BadInput(
                f"{path}, line {at}: must be a judgement, `query passage gain` or `query 0 passage gain` "
                f"like the rows before, with a whole number as the gain, but is {line.strip()!r}."
            ) from None
        yield at, query, passage, gain


def _judgement(cells: list[str], width: int, *, smart: bool) -> tuple[str, str, int]:
    if len(cells) != width or width not in (3, 4) or not all(cells):
        raise ValueError
    if smart:
        return str(int(cells[0])), str(int(cells[1])), 1
    if width == 4 and cells[1] != "Q0":
        int(cells[1])  # Whole numbers, most often 0: the second of four columns has no meaning.
    return cells[0], cells[width - 2], int(cells[-1].strip().removesuffix(".0"))


def ascii_cells(line: str) -> list[str]:
    """Split at ASCII blanks alone, as trec_eval does: other blanks may be part of an id."""
    return [cell.decode() for cell in line.encode().split()]


def _beir(path: Path) -> Iterator[Entry]:
    for at, row in published_table(path, "JSON").strict_rows(_OBJECT):
        try:
            name, text = _cell(row["_id"]), _cell(row["text"])
            title = _cell(row.get("title"))
            if not name:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path}, line {at}: must be {_OBJECT}.") from None
        yield Entry(name, f"{title} {text}".strip(), at, text.strip() if title.strip() else "")


def _cell(value: object) -> str:
    """The text of a JSON value; null and NaN are missing, and lists and objects are no text."""
    if isinstance(value, (list, dict)):
        raise TypeError
    return "" if value is None or value != value else str(value)


def _claims(path: Path) -> Iterator[Entry]:
    columns = ("id", "claim") if path.name.startswith("claims") else ("doc_id", "title", "abstract")
    for at, row in published_table(path, "CSV", ",").strict_rows():
        if not row.keys() >= set(columns):
            raise BadInput(f"{path}, line {at}: must have the columns {', '.join(columns)}.")
        name, *texts = (row[column] for column in columns)
        try:
            texts[1:] = [" ".join(read_sentences(text)) for text in texts[1:]]
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise BadInput(
                f"{path}, line {at}: must have a list of quoted sentences as its abstract."
            ) from None
        yield Entry(name, " ".join(texts).strip(), at, " ".join(texts[1:]).strip())


def _tabbed(path: Path) -> Iterator[Entry]:
    yield from (Entry(name, text, at) for at, name, text in id_texts(path))


def _tagged(path: Path) -> Iterator[Entry]:
    yield from (Entry(*each) for each in read_tagged(path, numbered_lines(path)))


def _smart(path: Path) -> Iterator[Entry]:
    yield from (Entry(*each) for each in read_smart(path, numbered_lines(path)))
