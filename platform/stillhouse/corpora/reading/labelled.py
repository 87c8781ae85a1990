"""Labelled text: (query, passage) pairs with or without hard negatives, or NLI pairs with their labels.

It is read into memory, since equal texts get one id: a million triples take about a gigabyte.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput
from stillhouse.core.types import ValueArray
from stillhouse.corpora.published.msmarco import marco_pairs
from stillhouse.corpora.reading.corpus import hub_name, list_files
from stillhouse.corpora.reading.counting import Taking
from stillhouse.corpora.reading.ingest import note_path, read_once
from stillhouse.corpora.reading.sentences import clean
from stillhouse.corpora.tables import write_rows, write_texts
from stillhouse.values.data import Examples

VERSION = 2
_NAMES = {
    "query": ("query", "anchor", "premise", "sentence1", "sent0", "question", "s1", "text"),
    "passage": ("passage", "positive", "hypothesis", "sentence2", "sent1", "answer", "document", "s2"),
    "negatives": ("negatives", "negative", "hard_neg", "hard_negatives", "neg"),
    "label": ("label", "gold_label", "labels"),
}
_NLI = {"entailment": "entailment", "contradiction": "contradiction", "0": "entailment", "2": "contradiction"}
_KINDS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}

Triple = tuple[str, str, tuple[str, ...]]


def read_labelled(
    workspace: Workspace, source: str, *, negatives: int = 0, limit: int | None = None, refresh: bool = False
) -> Examples:
    """Read labelled text as examples, at the first call and again when a file or an option has changed.

    Columns are recognised by their usual names (``query``, ``anchor``, ``premise``, ``sentence1``, …); two or
    three columns with other names are taken in their order. With a label column the rows are NLI pairs: the
    entailments of a premise become passages, and its contradictions their hard negatives.

    Args:
        workspace: Workspace for the tables.
        source: JSON lines, CSV, TSV or Parquet: a file, a folder or a glob; ``hf:name[:config][:split]``; or
            MS MARCO's folder, judgements or triples (`corpora.published.msmarco`).
        negatives: Number of hard negatives per row to take from the source (K); rows with fewer are dropped.
            0 takes none.
        limit: Number of rows to take, see `counting`; None takes all.
        refresh: Ignore the cache and read it again.

    Returns:
        ``query``, ``passage`` and, if the source has them and K > 0, ``negatives``, (N, K), which are rows of
        the passages' table.

    Raises:
        BadInput: If the source cannot be read, its columns are not recognised, or no row is usable.
    """
    marco = None if hub_name(source) else marco_pairs(source)
    if marco is not None:
        files = [found for path in marco.files for found in list_files(str(path))[1]]
    else:
        files = [] if hub_name(source) else list_files(source)[1]
    options = {"negatives": negatives, "limit": limit or 0}
    note = note_path(workspace, "labelled", {"version": VERSION, "source": source, "files": files, **options})

    def read() -> Examples:
        taking = Taking[Any](limit, stream=hub_name(source) is not None)
        if marco is None:
            rows: Iterable[Mapping[str, Any]] = stream_rows(source, [file.path for file in files])
        else:
            rows = marco.rows(taking, negatives=negatives > 0)
        found = _triples(rows, source, negatives)
        triples, dropped = _kept(found, negatives, Taking(0) if marco and marco.texts else taking)
        if not triples:
            raise BadInput(
                f"labelled text must have at least one usable row, but all {dropped} rows of {source} were "
                f"dropped (negatives={negatives}). Check the columns, or lower --negatives."
            )
        say(f"  {source}: {taking.said(len(triples), 'labelled rows')}, {dropped:,} dropped")
        return write_triples(workspace, source, triples, given=bool(triples[0][2]))

    return read_once(workspace, note, read, refresh=refresh)


def roles(columns: Sequence[str], source: str) -> dict[str, list[str]]:
    """Find the columns of the query, the passage, the negatives and the label.

    Raises:
        BadInput: If the names are unknown and there are neither two nor three columns.
    """
    found = {role: [name for name in names if name in columns] for role, names in _NAMES.items()}
    numbered = [name for name in columns if name.startswith(("negative_", "neg_"))]
    found["negatives"] = found["negatives"][:1] or numbered
    if found["query"] and found["passage"]:
        return {**found, "query": found["query"][:1], "passage": found["passage"][:1]}
    if len(columns) not in (2, 3) or found["label"]:
        raise BadInput(
            "labelled text must have the columns query and passage, and optionally negatives or label, but "
            f"{source} has the columns {', '.join(columns)}. Rename them, or give two or three columns in "
            "this order."
        )
    query, passage, *negatives = columns
    return {"query": [query], "passage": [passage], "negatives": negatives, "label": []}


def stream_rows(source: str, files: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Stream the rows of a source with the datasets library."""
    import datasets

    try:
        if (hub := hub_name(source)) is not None:
            name, config, split = hub
            yield from datasets.load_dataset(name, config, split=split, streaming=True)
            return
        for file in files:
            suffix = next((end for end in _KINDS if file.lower().removesuffix(".gz").endswith(end)), "")
            if not suffix:
                raise BadInput(
                    f"labelled text must be one of {', '.join(_KINDS)}, but got {file}. Convert it."
                )
            options = {"sep": "\t"} if suffix == ".tsv" else {}
            yield from datasets.load_dataset(
                _KINDS[suffix], data_files=file, split="train", streaming=True, **options
            )
    except BadInput:
        raise
    except Exception as error:  # The library raises errors of many kinds; the user can fix the source.
        raise BadInput(f"{source} must be readable as labelled text, but got: {error}") from error


def _triples(rows: Iterable[Mapping[str, Any]], source: str, negatives: int) -> Iterator[Triple | None]:
    """Yield a triple for every usable row, and None for any other."""
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None:
        raise BadInput(f"labelled text must not be empty, but {source} is.")
    named = roles(list(first), source)
    everything = chain([first], iterator)
    yield from _nli(everything, named) if named["label"] else _plain(everything, named, negatives)


def _plain(
    rows: Iterable[Mapping[str, Any]], named: Mapping[str, Sequence[str]], negatives: int
) -> Iterator[Triple | None]:
    for row in rows:
        given = [row[name] for name in named["negatives"]] if negatives else []
        flat = chain.from_iterable(value if isinstance(value, list) else [value] for value in given)
        hard = tuple(text for text in map(_text, flat) if text)
        query, passage = _text(row[named["query"][0]]), _text(row[named["passage"][0]])
        enough = not given or len(hard) >= negatives
        yield (query, passage, hard[:negatives]) if query and passage and enough else None


def _nli(rows: Iterable[Mapping[str, Any]], named: Mapping[str, Sequence[str]]) -> Iterator[Triple | None]:
    """Pair each entailment of a premise with its contradictions in turn; premises need both."""
    query, passage, label = (named[role][0] for role in ("query", "passage", "label"))
    by_premise: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        kind, premise, text = _NLI.get(str(row[label])), _text(row[query]), _text(row[passage])
        if kind and premise and text:
            by_premise[premise][kind].append(text)
    for premise, kinds in by_premise.items():
        wrong = kinds["contradiction"]
        for index, right in enumerate(kinds["entailment"]):
            yield (premise, right, (wrong[index % len(wrong)],)) if wrong else None


def _kept(found: Iterable[Triple | None], negatives: int, taking: Taking[Any]) -> tuple[list[Triple], int]:
    """Return the distinct triples that are taken, and the number of rows dropped."""
    used = (triple if triple is None or negatives else (*triple[:2], ()) for triple in found)
    kept: dict[Triple, None] = {}
    dropped = 0
    for triple in taking.of(used, lambda triple: None if triple is None else repr(triple).encode()):
        if triple is None:
            dropped += 1
        else:
            kept.setdefault(triple)
    return list(kept), dropped


def _text(value: Any) -> str:
    return clean(value) if isinstance(value, str) else ""


def write_triples(
    workspace: Workspace,
    source: str,
    triples: Sequence[Triple],
    *,
    given: bool,
    label: str = "labelled",
    values: Mapping[str, ValueArray] | None = None,
) -> Examples:
    """Write triples as examples; equal texts get one id.

    Args:
        workspace: Workspace for the tables.
        source: Where they come from, for the tables' manifests.
        triples: Query, passage, and hard negatives, of which all triples have equally many.
        given: Whether there are hard negatives.
        label: Readable name of the examples.
        values: Labels or scores of the triples.
    """
    queries = {text: row for row, text in enumerate(dict.fromkeys(query for query, _, _ in triples))}
    texts = chain.from_iterable((passage, *hard) for _, passage, hard in triples)
    passages = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    origin = {label: source}
    tables = {
        name: write_texts(workspace, f"{label}-{name}", known, deduplicate=False, origin=origin)
        for name, known in (("queries", queries), ("passages", passages))
    }
    columns = {"query": tables["queries"], "passage": tables["passages"]}
    rows = {
        "query": np.array([queries[query] for query, _, _ in triples]),
        "passage": np.array([passages[passage] for _, passage, _ in triples]),
    }
    if given:
        columns["negatives"] = tables["passages"]
        rows["negatives"] = np.array([[passages[text] for text in hard] for _, _, hard in triples])
    return write_rows(workspace, columns, rows, label, values=values)
