"""Synthetic queries of a corpus without any: a held-out sentence, to find the rest of its paragraph.

It is the inverse cloze task (Lee et al., Latent Retrieval for Weakly Supervised Open Domain Question
Answering, ACL 2019, arXiv:1906.00300), with the sentence always taken out of its passage. Such a query
resembles its passage more than a user's question does, so its figures are named ``synthetic`` everywhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.types import IntArray
from stillhouse.corpora.read_once import note_path, read_once
from stillhouse.corpora.reading.cleaning import clean, dedup_key, split_sentences, word_count
from stillhouse.corpora.reading.corpus import ReadOptions
from stillhouse.corpora.reading.ingest import ingest
from stillhouse.corpora.search_task import SearchTask
from stillhouse.corpora.tables import Texts, open_texts, write_collection, write_texts
from stillhouse.values.data import Collection, TextTable

VERSION = 2
PARAGRAPH = 5
"""Most sentences of a paragraph, the query among them."""
LEAST_QUERIES = 10
_WORDS = (6, 40)
_LEAST_PASSAGE = 8


@dataclass(frozen=True)
class Sizes:
    """Queries and passages of both splits, at most; a split takes a tenth of the texts as queries at most."""

    dev_queries: int
    dev_passages: int
    test_queries: int
    test_passages: int


@dataclass(frozen=True)
class Cloze:
    """A query, the passage that it was taken out of, and the whole text that both come from."""

    query: str
    passage: str
    text: str


def synthetic_task(
    workspace: Workspace,
    source: str,
    options: ReadOptions,
    *,
    unit: str,
    sizes: Sizes,
    seed: int = 0,
    refresh: bool = False,
) -> SearchTask:
    """Make queries from a corpus; the texts that they come from are held out.

    Each row of the corpus is one text, of one or several paragraphs; it is not split into sentences. The unit
    ``paragraph`` takes up to five consecutive sentences of a text as a passage, ``document`` all.

    Raises:
        BadInput: If too few texts have several sentences.
    """
    documents = ingest(workspace, source, replace(options, split_sentences=False), refresh=refresh)
    signature = {
        "version": VERSION,
        "texts": documents.sha256,
        "unit": unit,
        "sizes": vars(sizes),
        "seed": seed,
        **({"language": options.schema.language} if options.schema.language else {}),
    }
    note = note_path(workspace, "collection-synthetic", signature)
    language = options.schema.language

    def read() -> dict[str, Any]:
        return vars(_made(workspace, source, documents, unit, sizes, seed, language))

    task = SearchTask(**read_once(workspace, note, read))
    task.say()
    return task


def _made(
    workspace: Workspace,
    source: str,
    documents: TextTable,
    unit: str,
    sizes: Sizes,
    seed: int,
    language: str,
) -> SearchTask:
    """Choose the queries of both splits, and write them."""
    texts = open_texts(workspace, documents)
    places = np.frombuffer(b"".join(_place(seed, text) for text in texts), ">u8")
    order = np.argsort(places, kind="stable")
    most = len(order) // 10
    wanted = {
        "dev": (sizes.dev_queries, sizes.dev_passages),
        "test": (sizes.test_queries, sizes.test_passages),
    }
    made: list[Collection] = []
    held_out: list[Cloze] = []
    for parity, (split, (queries, passages)) in enumerate(wanted.items()):
        ordered = _in_order(texts, order[parity::2])
        chosen, others = _chosen(ordered, min(queries, most), passages, unit, seed, language)
        if len(chosen) < LEAST_QUERIES:
            raise BadInput(
                f"synthetic queries must come from at least {LEAST_QUERIES} texts per split that have "
                f"several sentences, but of the {len(order):,} texts of {source} only {len(chosen)} "
                f"serve for {split}. Give longer or more texts, or queries of your own (collection.path)."
            )
        made.append(_written(workspace, split, chosen, others, seed))
        held_out += chosen
    measured = [text for each in held_out for text in (each.query, each.passage, each.text)]
    kept_out = write_texts(workspace, "synthetic-measured", map(clean, measured))
    counts = [len(open_texts(workspace, table)) for part in made for table in (part.queries, part.passages)]
    summary = (
        f"synthetic queries (a held-out sentence, to find the rest of its {unit}): {counts[0]:,} dev and "
        f"{counts[2]:,} test queries, {counts[1]:,} and {counts[3]:,} passages"
    )
    return SearchTask(made[0], made[1], kept_out, summary)


def _in_order(texts: Texts, rows: IntArray) -> Iterator[str]:
    """Read the texts of some rows, in their order, twice as many at once each time: few may be asked for."""
    first, count = 0, 1024
    while first < len(rows):
        yield from texts[rows[first : first + count]]
        first, count = first + count, 2 * count


def _chosen(
    order: Iterator[str], queries: int, passages: int, unit: str, seed: int, language: str
) -> tuple[list[Cloze], list[str]]:
    """Take queries from the first texts that serve, and passages from the others."""
    found: list[Cloze] = []
    others: list[str] = []
    for text in order:
        if len(found) == queries and len(found) + len(others) >= passages:
            break
        cloze = _cloze(text, unit, seed, language) if len(found) < queries else None
        if cloze is not None:
            found.append(cloze)
        elif len(others) < passages:
            sentences = split_sentences(text, language)
            paragraph = _paragraph(_place(seed, text)[0] % len(sentences), len(sentences), unit)
            others.append(" ".join(sentences[each] for each in paragraph))
    everything = "\n".join([*(each.passage for each in found), *others]).casefold()
    # A query that a passage contains has more than one answer.
    found = [each for each in found if each.query.casefold() not in everything]
    return found, others[: max(0, passages - len(found))]


def _cloze(text: str, unit: str, seed: int, language: str) -> Cloze | None:
    """Take one sentence out of a text; None where no sentence serves."""
    sentences = split_sentences(text, language)
    keys = [dedup_key(sentence) for sentence in sentences]
    able = [
        at
        for at, sentence in enumerate(sentences)
        if _WORDS[0] <= word_count(sentence) <= _WORDS[1]
        and keys.count(keys[at]) == 1
        and word_count(_passage(sentences, at, unit)) >= _LEAST_PASSAGE
    ]
    if not able:
        return None
    at = able[int.from_bytes(_place(seed, text)) % len(able)]
    return Cloze(sentences[at], _passage(sentences, at, unit), text)


def _passage(sentences: Sequence[str], at: int, unit: str) -> str:
    """The paragraph of a sentence without it."""
    return " ".join(sentences[each] for each in _paragraph(at, len(sentences), unit) if each != at)


def _paragraph(at: int, count: int, unit: str) -> range:
    """The places of the sentences of a paragraph, given one of them and the number in the text."""
    first, most = (0, count) if unit == "document" else (at // PARAGRAPH * PARAGRAPH, PARAGRAPH)
    return range(first, min(count, first + most))


def _written(
    workspace: Workspace, split: str, chosen: Sequence[Cloze], others: Sequence[str], seed: int
) -> Collection:
    """Write a split; the passages stand in an order that says nothing of the queries."""
    shown = [*((each.passage, at) for at, each in enumerate(chosen)), *((text, -1) for text in others)]
    shown.sort(key=lambda pair: _place(seed, pair[0]))
    qrels_N3 = np.array([[at, row, 1] for row, (_, at) in enumerate(shown) if at >= 0])
    origin = {"synthetic": True, "seed": seed}
    texts = {"queries": [each.query for each in chosen], "passages": [text for text, _ in shown]}
    queries, passages = (
        write_texts(workspace, f"synthetic-{split}-{name}", each, deduplicate=False, origin=origin)
        for name, each in texts.items()
    )
    return write_collection(workspace, f"synthetic-{split}", queries, passages, qrels_N3)


def _place(seed: int, text: str) -> bytes:
    return blake2b(f"{seed}:{text}".encode(), digest_size=8).digest()
