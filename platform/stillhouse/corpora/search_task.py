"""A user's own search collection as tables: the judgements that steer (dev) and those that test.

A split is named by its file of judgements: a split of the folder's form (``dev`` for ``qrels/dev.tsv``), a
file of judgements in the folder, or another folder. Where both splits name the same judgements, and where
there is only one file of them, the queries are divided by a hash.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import IntArray
from stillhouse.corpora.published.judged import (
    JudgedCollection,
    JudgedQueries,
    Layout,
    layout_of,
    open_split,
    read_judged,
)
from stillhouse.corpora.read_once import note_path, read_once
from stillhouse.corpora.reading.cleaning import clean, dedup_key
from stillhouse.corpora.tables import Judgements, open_texts, write_collection, write_texts
from stillhouse.values.data import Collection, TextTable

VERSION = 3


@dataclass(frozen=True)
class SearchTask:
    """Both splits of a collection (test is opened at the end), and the texts that must not be trained on."""

    dev: Collection
    test: Collection
    held_out: TextTable
    summary: str
    notes: tuple[str, ...] = ()

    def say(self) -> None:
        """Print the summary and the notes."""
        say(f"  {self.summary}")
        for note in self.notes:
            say(f"  note: {note}")


@dataclass(frozen=True)
class TaskFiles:
    """Files of the splits of a collection, as the fields of the same names of `SearchCollection` say."""

    path: str
    dev: str = "dev"
    test: str = "test"
    test_share: float = 0.5
    seed: int = 0
    drop_own_ids: bool = False


@dataclass(frozen=True)
class _Split:
    """One split's files, and the queries that belong to it; None means all."""

    layout: Layout
    judgements: Path
    topics: Path
    queries: frozenset[str] | None = None


def check_task(files: TaskFiles) -> None:
    """Refuse splits that do not exist, are empty or share queries. Passages are not read.

    Raises:
        BadInput: The message names the file, and its line where it has one.
    """
    _splits(files)


def read_task(workspace: Workspace, files: TaskFiles, *, refresh: bool = False) -> SearchTask:
    """Read a collection into tables, at the first call and again when a file or an option has changed.

    Raises:
        BadInput: If a file is missing or malformed, a judgement names an unknown id, or dev and test share a
            query.
    """
    splits, divided = _splits(files)
    signature = {
        "version": VERSION,
        "files": [
            [str(path), path.stat().st_size, path.stat().st_mtime_ns]
            for part in splits
            for path in (part.layout.documents, part.topics, part.judgements)
        ],
        "queries": [None if s.queries is None else sorted(s.queries) for s in splits],
        **({"drop_own_ids": True} if files.drop_own_ids else {}),
    }
    name = Path(files.path).expanduser().resolve().name
    label = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40] or "collection"
    note = note_path(workspace, f"collection-{label}", signature)
    task = SearchTask(
        **read_once(
            workspace,
            note,
            lambda: vars(_write(workspace, label, splits, divided, drop_own_ids=files.drop_own_ids)),
            refresh=refresh,
        )
    )
    task.say()
    return task


def _splits(files: TaskFiles) -> tuple[tuple[_Split, _Split], bool]:
    """Both splits, and whether one file of judgements was divided."""
    folder = Path(files.path).expanduser()
    require(folder.is_dir(), "collection.path must be a folder", path=files.path)
    dev, test = (_located(folder, name, role) for name, role in ((files.dev, "dev"), (files.test, "test")))
    divided = dev.judgements == test.judgements
    judged = [read_judged(part.layout, part.judgements, part.topics) for part in (dev, test)]
    if divided:
        chosen = _divided(judged[0].queries, files)
        dev, test = (_Split(dev.layout, dev.judgements, dev.topics, part) for part in chosen)
    else:
        _refuse_shared_queries(judged, dev.judgements, test.judgements)
    return (dev, test), divided


def _located(folder: Path, name: str, role: str) -> _Split:
    """Find a split by its name, its file or its folder."""
    layout = layout_of(folder)
    if layout is not None:
        found = _of_layout(layout, name, role)
        if found is not None:
            return found
    for other in (folder / name, Path(name).expanduser()):
        inner = layout_of(other) if other.is_dir() else None
        found = _of_layout(inner, role, role) if inner is not None else None
        if found is not None:
            return found
    if layout is None:
        raise BadInput(
            f"a collection must be a folder with passages, queries and judgements, but {folder} has no known "
            "form. Lay it out as BEIR does: corpus.jsonl, queries.jsonl, qrels/dev.tsv and qrels/test.tsv."
        )
    known = ", ".join(_existing(layout)) or "none"
    raise BadInput(
        f"a collection must have a {role} split, but {folder} has no judgements {name!r}; it has: {known}. "
        f"Name one with collection.{role}; the same name for dev and test divides its queries."
    )


def _of_layout(layout: Layout, name: str, role: str) -> _Split | None:
    existing = _existing(layout)
    split = next((each for each in (name, f"{name}.small") if each in existing), None)
    if split is None and name == role and len(existing) == 1:
        split = next(iter(existing))
    if split is not None:
        return _Split(layout, *existing[split])
    given = layout.folder / name
    topics = {topics for _, topics in layout.splits.values()} or {layout.folder / "queries.jsonl"}
    return _Split(layout, given, topics.pop()) if given.is_file() and len(topics) == 1 else None


def _existing(layout: Layout) -> dict[str, tuple[Path, Path]]:
    return {name: files for name, files in layout.splits.items() if files[0].is_file()}


def _divided(queries: Mapping[str, str], files: TaskFiles) -> tuple[frozenset[str], frozenset[str]]:
    """Divide queries by a hash; those of equal text stay together."""
    keys = {query: dedup_key(text) for query, text in queries.items()}
    order = sorted(set(keys.values()), key=lambda key: blake2b(f"{files.seed}:{key.hex()}".encode()).digest())
    tested = round(files.test_share * len(order))
    if not 0 < tested < len(order):
        raise BadInput(
            f"dev and test must have at least one query each, but the {len(order)} queries of {files.path} "
            f"cannot be divided with collection.test_share={files.test_share:g}."
        )
    test = set(order[:tested])
    chosen = frozenset(query for query, key in keys.items() if key in test)
    return frozenset(queries) - chosen, chosen


def _refuse_shared_queries(judged: Sequence[JudgedQueries], dev: Path, test: Path) -> None:
    keys = {dedup_key(text): query for query, text in judged[0].queries.items()}
    shared = [text for text in judged[1].queries.values() if dedup_key(text) in keys]
    if shared:
        raise BadInput(
            f"dev and test must not share queries, but {len(shared)} of {test} are also in {dev}, such as "
            f"{shared[0][:80]!r}. Take them out of one, or give both the same name to divide its queries."
        )


def _write(
    workspace: Workspace, label: str, splits: tuple[_Split, _Split], divided: bool, *, drop_own_ids: bool
) -> SearchTask:
    dev, *other = (
        open_split(part.layout, part.judgements, part.topics, drop_own_ids=drop_own_ids)
        for part in splits[: 1 if divided else 2]
    )
    opened = (dev, other[0] if other else dev)
    passages, judged_texts = _write_passages(workspace, label, splits, opened)
    made: list[Collection] = []
    queries: list[str] = []
    counts: list[int] = []
    for name, part, collection in zip(("dev", "test"), splits, opened, strict=True):
        table, rows, names_N = passages[part.layout.documents]
        mine = collection.queries if part.queries is None else part.queries
        asked = {query: text for query, text in collection.queries.items() if query in mine}
        queries += asked.values()
        judgements = judgements_of(collection, asked, rows, names_N)
        if not len(judgements.qrels_N3) or judgements.qrels_N3[judgements.qrels_N3[:, 2] > 0, 1].max() < 0:
            raise BadInput(
                f"a query must have a relevant passage with a text, but none of {part.judgements} has one."
            )
        written = write_texts(workspace, f"{label}-{name}-queries", asked.values(), deduplicate=False)
        made.append(write_collection(workspace, f"{label}-{name}", written, table, judgements))
        counts.append(len(asked))
    held_out = write_texts(workspace, f"{label}-measured", map(clean, [*queries, *judged_texts]))
    sizes = [f"{len(open_texts(workspace, table)):,}" for table, *_ in passages.values()]
    how = ", divided by query" if divided else ""
    searched = f"{' and '.join(sizes)} passages"
    summary = f"{label}: {counts[0]:,} dev and {counts[1]:,} test queries{how}, {searched}"
    notes = tuple(dict.fromkeys(note for collection in opened for note in collection.notes))
    return SearchTask(made[0], made[1], held_out, summary, notes)


def _write_passages(
    workspace: Workspace,
    label: str,
    splits: tuple[_Split, _Split],
    opened: tuple[JudgedCollection, JudgedCollection],
) -> tuple[dict[Path, tuple[TextTable, dict[str, int], IntArray]], list[str]]:
    """Write each file of passages once.

    Returns:
        By file, the table, the rows of the judged ids and the order of all ids; and the judged texts.
    """
    judged: dict[Path, set[str]] = {}
    for part, collection in zip(splits, opened, strict=True):
        judged.setdefault(part.layout.documents, set()).update(*collection.qrels.values())
    written: dict[Path, tuple[TextTable, dict[str, int], IntArray]] = {}
    judged_texts: list[str] = []
    for part, collection in zip(splits, opened, strict=True):
        documents = part.layout.documents
        if documents not in written:
            rows: dict[str, int] = {}
            texts = _followed(collection, judged[documents], rows, judged_texts)
            table = write_texts(workspace, f"{label}-passages", texts, deduplicate=False)
            written[documents] = (table, rows, order_of_ids(collection))
    return written, judged_texts


def _followed(
    collection: JudgedCollection, judged: set[str], rows: dict[str, int], bodies: list[str]
) -> Iterator[str]:
    """The passages in their order, noting the rows and the texts of the judged ones."""
    for row, entry in enumerate(collection.stream()):
        if entry.id in judged:
            rows[entry.id] = row
            bodies += [text for text in (entry.text, entry.body) if text]
        yield entry.text


def order_of_ids(collection: JudgedCollection) -> IntArray:
    """For each passage, the place of its id among all in ascending order."""
    order = pc.sort_indices(pa.array((entry.id for entry in collection.stream()), pa.large_string()))
    places_N: IntArray = np.empty(len(order), np.int64)
    places_N[order] = np.arange(len(order))
    return places_N


def judgements_of(
    collection: JudgedCollection, asked: Mapping[str, str], rows: Mapping[str, int], names_N: IntArray
) -> Judgements:
    """The judgements by row. A judged passage without a text counts as one that is not found."""
    found: list[tuple[int, int, int]] = []
    absent: dict[str, int] = {}
    own: list[tuple[int, int]] = []
    for place, query in enumerate(asked):
        for passage, gain in collection.qrels[query].items():
            row = rows.get(passage)
            found.append((place, absent.setdefault(passage, -2 - len(absent)) if row is None else row, gain))
        own += [(place, collection.own[query])] if query in collection.own else []
    qrels_N3, own_N2 = np.array(found, np.int64).reshape(-1, 3), np.array(own, np.int64).reshape(-1, 2)
    return Judgements(qrels_N3, own_N2, names_N)
