"""Retrieval test collections as they are published: passages streamed, queries and judgements held.

* BEIR: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/{dev,train,test}.tsv`` with a header (Thakur et al.);
* SciFact as a CSV: ``corpus_train.csv``, ``claims_*.csv``, ``qrels/*.tsv``; abstracts are lists of sentences;
* MS MARCO: ``collection.tsv``, ``queries.dev.small.tsv``, ``qrels.dev.small.tsv``, of dev alone;
* TREC: Cranfield and Vaswani as tagged documents and topics, CACM in the fields of SMART.

A passage is title + " " + text. Passages without a word cannot be found: they are left out and counted.
"""

import csv
import json
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stillhouse.core.errors import BadInput, require
from stillhouse.corpora.published.smart_format import read_sentences, read_smart, read_tagged

PLACES = ("retrieval", "beir", ".")
TAGGED = (
    ("doc-text.trec", "query-text.trec", "qrels"),
    ("cran.all.1400.xml", "cran.qry.xml", "cranqrel.trec.txt"),
)
CACM = ("cacm.all", "query.text", "qrels.text")
MARCO = ("collection.tsv", "queries.dev.small.tsv", "qrels.dev.small.tsv")


class Entry(NamedTuple):
    """A passage or a query, and the line on which it begins."""

    id: str
    text: str
    line: int


@dataclass(frozen=True)
class JudgedCollection:
    """A collection whose judgements were checked against its passages.

    Attributes:
        name: The folder's.
        split: ``dev``, ``train`` or ``test``; ``all`` where it has no splits.
        queries: Id to text, those with a relevant passage.
        qrels: Query id to passage id to gain, as they stand in the file.
        stream: Opens the passages anew, one after the other, those without a word left out.
        shared_ids: Whether queries and passages share their ids, so that a query never finds itself.
        notes: What was left out, a sentence each.
        files: What it was read from.
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
    """Every collection under a data root; of those with splits dev (else train), with ``final`` test.

    Raises:
        BadInput: A malformed file, with its line: an id given twice, a judgement of an unknown id.
    """
    found: dict[str, JudgedCollection] = {}
    for place in (Path(root) / each for each in PLACES):
        for folder in sorted(path for path in [place, *place.glob("*")] if path.is_dir()):
            collection = open_collection(folder, final=final)
            if collection is not None:
                found.setdefault(collection.name, collection)
    return list(found.values())


def open_collection(folder: Path, *, final: bool) -> JudgedCollection | None:
    """The collection in a folder; None where there is none, or none of this split."""
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
    """Read queries and judgements, and the passages once for their ids."""
    for path in (documents, topics, judgements):
        require(path.is_file(), "a retrieval collection is whole", missing=str(path))
    lines = list(_judgements(judgements))
    passages, empty = _known(documents, read, {passage for _, _, passage, _ in lines})
    texts = _queries(topics, read)
    asked = {query for _, query, _, _ in lines}
    notes = []
    if not asked <= set(texts) and asked == {str(at + 1) for at in range(len(asked))}:
        # Cranfield's judgements count the topics in their order; the topics' own numbers have gaps.
        texts = {str(at): text for at, text in enumerate(texts.values(), start=1)}
        notes.append(f"the judgements of {folder.name} count the queries in order")
    qrels: dict[str, dict[str, int]] = {}
    for line, query, passage, gain in lines:
        for kind, known, name in (("query", texts, query), ("passage", passages, passage)):
            if name not in known:
                raise BadInput(
                    f"{judgements}, line {line}: must name a {kind} there is, but {name!r} is none."
                )
        if passage in qrels.setdefault(query, {}):
            raise BadInput(f"{judgements}, line {line}: {query!r} and {passage!r} must be judged once.")
        qrels[query][passage] = gain
    queries = {query: text for query, text in texts.items() if max(qrels.get(query, {"": 0}).values()) > 0}
    require(bool(queries), "a collection has a query with a relevant passage", file=str(judgements))
    blank = next((query for query, text in queries.items() if not text), None)
    require(blank is None, "a judged query has a text", file=str(topics), query=blank)
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
    """Which of the judged passages there are, and the lines of those without a word.

    Of all the other ids only a hash is held: a collection may have millions.
    """
    there: set[str] = set()
    hashes, empty = array("q"), []
    for entry in read(path):
        hashes.append(hash(entry.id))
        if entry.id in judged:
            there.add(entry.id)
        if not entry.text:
            empty.append(entry.line)
    require(len(hashes) > len(empty), "a collection has passages", file=str(path))
    different, counts = np.unique(np.frombuffer(hashes, np.int64), return_counts=True)
    if len(different) < len(hashes):
        _refuse_twice(path, read, set(different[counts > 1].tolist()))
    return there, empty


def _refuse_twice(path: Path, read: Callable[[Path], Iterator[Entry]], suspects: set[int]) -> None:
    """Read again, for the line of an id that comes twice; two ids may have one hash by chance."""
    seen: set[str] = set()
    for entry in read(path):
        if hash(entry.id) not in suspects:
            continue
        if entry.id in seen:
            raise BadInput(f"{path}, line {entry.line}: an id must be given once, but {entry.id!r} is again.")
        seen.add(entry.id)


def _queries(path: Path, read: Callable[[Path], Iterator[Entry]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for entry in read(path):
        # A claim of SciFact has a row for each of its evidences.
        if texts.setdefault(entry.id, entry.text) != entry.text:
            raise BadInput(f"{path}, line {entry.line}: an id must be given once, but {entry.id!r} is again.")
    return texts


def _judgements(path: Path) -> Iterator[tuple[int, str, str, int]]:
    """Line, query, passage, gain: three columns under a header (BEIR), four (TREC), or CACM's two."""
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
            raise BadInput(f"{path}, line {at}: must be an id and a text with a tab between them.")
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
                    f"{path}, line {at}: must be UTF-8, but {error.reason} at byte {error.start}."
                ) from None
