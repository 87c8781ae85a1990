"""Published retrieval test collections: passages are streamed, queries and judgements held in memory.

* BEIR: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/{dev,train,test}.tsv`` with a header (Thakur et al.);
* SciFact as a CSV: ``corpus_train.csv``, ``claims_*.csv``, ``qrels/*.tsv``; abstracts are lists of sentences;
* MS MARCO: ``collection.tsv``, ``queries.dev.small.tsv``, ``qrels.dev.small.tsv``, dev only;
* TREC: Cranfield and Vaswani as tagged documents and topics, CACM in SMART's fields.

A passage is title + " " + text. Empty passages cannot be found, so they are left out and counted.
"""

import csv
import json
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stillhouse.core.errors import BadInput
from stillhouse.corpora.published.smart_format import read_sentences, read_smart, read_tagged

PLACES = ("retrieval", "beir", ".")
TAGGED = (
    ("doc-text.trec", "query-text.trec", "qrels"),
    ("cran.all.1400.xml", "cran.qry.xml", "cranqrel.trec.txt"),
)
CACM = ("cacm.all", "query.text", "qrels.text")
MARCO = ("collection.tsv", "queries.dev.small.tsv", "qrels.dev.small.tsv")


class Entry(NamedTuple):
    """A passage or a query, with the line on which it begins."""

    id: str
    text: str
    line: int


@dataclass(frozen=True)
class JudgedCollection:
    """A collection whose judgements were checked against its passages.

    Attributes:
        name: Name of the folder.
        split: ``dev``, ``train`` or ``test``; ``all`` if it has no splits.
        queries: Id to text, for the queries with a relevant passage.
        qrels: Query id to passage id to gain, as in the file.
        stream: Iterates over the passages from the start, without empty ones.
        shared_ids: Whether queries and passages share ids; a query must then not find itself.
        notes: What was left out, one sentence each.
        files: The files that it was read from.
    """

    name: str
    split: str
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    stream: Callable[[], Iterator[Entry]]
    shared_ids: bool
    notes: tuple[str, ...]
    files: tuple[Path, ...]


def find_collections(root: str, *, final: bool) -> list[JudgedCollection]:
    """Find every collection under a data root; of collections with splits dev (or train), or test if final.

    Raises:
        BadInput: If a file is malformed, such as a repeated id or a judgement of an unknown id; the message
            names the line.
    """
    found: dict[str, JudgedCollection] = {}
    for place in (Path(root) / each for each in PLACES):
        for folder in sorted(path for path in [place, *place.glob("*")] if path.is_dir()):
            collection = open_collection(folder, final=final)
            if collection is not None:
                found.setdefault(collection.name, collection)
    return list(found.values())


def open_collection(folder: Path, *, final: bool) -> JudgedCollection | None:
    """Open the collection in a folder; None if there is none, or none of this split."""
    tagged = next((names for names in TAGGED if (folder / names[0]).is_file()), None)
    if (folder / "corpus.jsonl").is_file():
        qrels = _split(folder, final)
        corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
        return _checked(folder, qrels, corpus, queries, _beir) if qrels else None
    if (folder / "corpus_train.csv").is_file():
        qrels = _split(folder, final)
        claims = folder / ("claims_validation.csv" if final else "claims_train.csv")
        return _checked(folder, qrels, folder / "corpus_train.csv", claims, _claims) if qrels else None
    if tagged is not None:
        documents, topics, judgements = (folder / name for name in tagged)
        return _checked(folder, judgements, documents, topics, _tagged)
    if (folder / CACM[0]).is_file():
        documents, topics, judgements = (folder / name for name in CACM)
        return _checked(folder, judgements, documents, topics, _smart)
    if (folder / MARCO[0]).is_file() and not final:
        documents, topics, judgements = (folder / name for name in MARCO)
        return _checked(folder, judgements, documents, topics, _tabbed)
    return None


def _split(folder: Path, final: bool) -> Path | None:
    names = ("test",) if final else ("dev", "train")
    paths = [folder / "qrels" / f"{name}.tsv" for name in names]
    return next((path for path in paths if path.is_file()), None)


def _checked(
    folder: Path, judgements: Path, documents: Path, topics: Path, read: Callable[[Path], Iterator[Entry]]
) -> JudgedCollection:
    """Read queries and judgements, and once the passages, for their ids."""
    for path in (documents, topics, judgements):
        if not path.is_file():
            raise BadInput(f"a retrieval collection must be complete, but {path} is missing.")
    lines = list(_judgements(judgements))
    passages, empty = _known(documents, read, {passage for _, _, passage, _ in lines})
    texts = _queries(topics, read)
    judged = {query for _, query, _, _ in lines}
    notes = []
    if not judged <= set(texts) and judged == {str(at + 1) for at in range(len(judged))}:
        # Cranfield's judgements number the topics in their order; the topics' own numbers have gaps.
        texts = {str(at): text for at, text in enumerate(texts.values(), start=1)}
        notes.append(f"the judgements of {folder.name} number the queries in order")
    qrels: dict[str, dict[str, int]] = {}
    for line, query, passage, gain in lines:
        for kind, known, name in (("query", texts, query), ("passage", passages, passage)):
            if name not in known:
                raise BadInput(
                    f"{judgements}, line {line}: must name an existing {kind}, but {name!r} is not one."
                )
        if passage in qrels.setdefault(query, {}):
            raise BadInput(f"{judgements}, line {line}: {query!r} and {passage!r} must be judged once.")
        qrels[query][passage] = gain
    queries = {query: text for query, text in texts.items() if max(qrels.get(query, {"": 0}).values()) > 0}
    if not queries:
        raise BadInput(f"a collection must have a query with a relevant passage, but {judgements} has none.")
    blank = next((query for query, text in queries.items() if not text), None)
    if blank is not None:
        raise BadInput(f"a judged query must have a text, but the query {blank} of {topics} has none.")
    if len(queries) < len(texts):
        notes.append(
            f"{len(texts) - len(queries)} queries of {folder.name} have no relevant passage: left out"
        )
    if empty:
        at = ", ".join(str(line) for line in empty[:3])
        notes.append(f"{len(empty)} passages of {folder.name} are empty: left out ({documents}, line {at})")
    by_split = judgements.parent.name == "qrels"
    split = "dev" if judgements.name == MARCO[2] else judgements.stem if by_split else "all"
    return JudgedCollection(
        folder.name,
        split,
        queries,
        qrels,
        lambda: (entry for entry in read(documents) if entry.text),
        by_split,
        tuple(notes),
        (documents, topics, judgements),
    )


def _known(
    path: Path, read: Callable[[Path], Iterator[Entry]], judged: set[str]
) -> tuple[set[str], list[int]]:
    """Return the judged passages that exist, and the lines of empty passages.

    Of all other ids only a hash is held, since a collection may have millions.
    """
    found: set[str] = set()
    hashes, empty = array("q"), []
    for entry in read(path):
        hashes.append(hash(entry.id))
        if entry.id in judged:
            found.add(entry.id)
        if not entry.text:
            empty.append(entry.line)
    if len(hashes) == len(empty):
        raise BadInput(f"a collection must have passages, but {path} has none.")
    distinct, counts = np.unique(np.frombuffer(hashes, np.int64), return_counts=True)
    if len(distinct) < len(hashes):
        _refuse_repeated(path, read, set(distinct[counts > 1].tolist()))
    return found, empty


def _refuse_repeated(path: Path, read: Callable[[Path], Iterator[Entry]], suspects: set[int]) -> None:
    """Read again to find the line of a repeated id; two ids may share a hash by chance."""
    seen: set[str] = set()
    for entry in read(path):
        if hash(entry.id) not in suspects:
            continue
        if entry.id in seen:
            raise BadInput(f"{path}, line {entry.line}: an id must be unique, but {entry.id!r} is repeated.")
        seen.add(entry.id)


def _queries(path: Path, read: Callable[[Path], Iterator[Entry]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for entry in read(path):
        # A claim of SciFact has one row per piece of evidence.
        if texts.setdefault(entry.id, entry.text) != entry.text:
            raise BadInput(f"{path}, line {entry.line}: an id must be unique, but {entry.id!r} is repeated.")
    return texts


def _judgements(path: Path) -> Iterator[tuple[int, str, str, int]]:
    """Read line, query, passage, gain: three columns with a header (BEIR), four (TREC), or two (CACM)."""
    beir, smart = path.parent.name == "qrels", path.name == CACM[2]
    for at, line in _lines(path):
        cells = line.split("\t") if beir else line.split()
        if not line.strip() or (beir and at == 1):
            continue
        try:
            if beir:
                query, passage, gain = cells[0], cells[1], int(cells[2])
            elif smart:
                query, passage, gain = str(int(cells[0])), str(int(cells[1])), 1
            else:
                query, passage, gain = cells[0], cells[2], int(cells[3])
        except (ValueError, IndexError):
            raise BadInput(f"{path}, line {at}: must be a judgement, but is {line.strip()!r}.") from None
        yield at, query, passage, gain


def _beir(path: Path) -> Iterator[Entry]:
    for at, line in _lines(path):
        if not line.strip():
            continue
        try:
            row: dict[str, Any] = json.loads(line)
            name, text = str(row["_id"]), str(row["text"])
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path}, line {at}: must be a JSON object with `_id` and `text`.") from None
        yield Entry(name, f"{row.get('title') or ''} {text}".strip(), at)


def _claims(path: Path) -> Iterator[Entry]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        columns = ("id", "claim") if path.name.startswith("claims") else ("doc_id", "title", "abstract")
        for row in rows:
            cells = [row.get(column) for column in columns]
            if any(cell is None for cell in cells):
                raise BadInput(f"{path}, line {rows.line_num}: must have the columns {', '.join(columns)}.")
            name, *texts = (str(cell) for cell in cells)
            texts[1:] = [" ".join(read_sentences(text)) for text in texts[1:]]
            yield Entry(name, " ".join(texts).strip(), rows.line_num)


def _tabbed(path: Path) -> Iterator[Entry]:
    for at, line in _lines(path):
        name, tab, text = line.rstrip("\r\n").partition("\t")
        if not (tab and name.strip()):
            raise BadInput(f"{path}, line {at}: must be an id and a text separated by a tab.")
        yield Entry(name.strip(), text.strip(), at)


def _tagged(path: Path) -> Iterator[Entry]:
    yield from (Entry(*each) for each in read_tagged(path, _lines(path)))


def _smart(path: Path) -> Iterator[Entry]:
    yield from (Entry(*each) for each in read_smart(path, _lines(path)))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as file:
        for at, line in enumerate(file, start=1):
            try:
                yield at, line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise BadInput(
                    f"{path}, line {at}: must be UTF-8, but has {error.reason} at byte {error.start}."
                ) from None
