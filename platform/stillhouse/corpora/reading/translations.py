"""Parallel corpora as examples with the columns ``source`` and ``target``.

Equal sentences become one row of their table, so that a teacher embeds a source once even if it is translated
into several languages.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import IntArray
from stillhouse.corpora.reading.parallel import Pair, ParallelCorpus, read_parallel, reading_of_pairs
from stillhouse.corpora.reading.row_limit import in_blocks
from stillhouse.corpora.reading.sources import Reading
from stillhouse.corpora.tables import (
    RUNS,
    ColumnWriter,
    open_examples,
    open_texts,
    restrict,
    write_rows,
)
from stillhouse.values.data import Examples, TextTable

_AT_ONCE = 16_384
"""Pairs whose texts are numbered at once."""
_ORIGIN = {"parallel": True}


def write_parallel(workspace: Workspace, corpora: Sequence[ParallelCorpus]) -> Examples:
    """Write corpora, one after the other, as examples without duplicate pairs.

    ``parallel`` in the manifest has for every corpus its place and language, and the number of rows that were
    read, kept, dropped as duplicates, and set aside by reason.

    Raises:
        BadInput: As for `read_parallel`, or if there is no usable pair.
    """
    require(len(corpora) > 0, "parallel corpora >= 1", corpora=len(corpora))
    with (
        ColumnWriter(workspace, "parallel-source") as sources,
        ColumnWriter(workspace, "parallel-target") as targets,
    ):
        parts, readings = [np.empty((2, 0), np.int64)], []
        for corpus in corpora:
            reading = reading_of_pairs(corpus)
            taken = reading.taken(read_parallel(corpus, reading), lambda pair: "\t".join(pair).encode())
            for pairs in in_blocks(taken, _AT_ONCE):
                columns = zip((sources, targets), zip(*pairs, strict=True), strict=True)
                parts.append(np.stack([column.rows(texts) for column, texts in columns]))
            readings.append(reading)
        ends = np.cumsum([reading.taking.taken for reading in readings])
        if not ends[-1]:
            reasons = [dict(sorted(reading.aside.items())) for reading in readings]
            raise BadInput(f"a parallel corpus must have at least one usable pair, but has none: {reasons}.")
        tables = {"source": sources.publish(_ORIGIN), "target": targets.publish(_ORIGIN)}
    source_N, target_N = np.concatenate(parts, axis=1)
    first_N = np.sort(np.unique(source_N * (target_N.max() + 1) + target_N, return_index=True)[1])
    kept = np.bincount(np.searchsorted(ends, first_N, side="right"), minlength=len(ends)).tolist()
    notes = [_noted(place, corpora[place], reading, kept[place]) for place, reading in enumerate(readings)]
    rows = {"source": source_N[first_N], "target": target_N[first_N]}
    return write_rows(workspace, tables, rows, "parallel", {RUNS: notes})


def language_spans(workspace: Workspace, examples: Examples) -> list[tuple[str, range]]:
    """List the target languages with their ranges of rows, in order.

    Raises:
        BadInput: If the examples are not finished, or are not a parallel corpus.
    """
    return [(runs[0]["language"], span) for runs, span in _spans(workspace, examples, "language")]


def _spans(workspace: Workspace, examples: Examples, by: str) -> Iterator[tuple[list[dict[str, Any]], range]]:
    """The runs of rows that share a language or the place of a corpus, with their ranges."""
    notes = open_examples(workspace, examples).notes
    if RUNS not in notes:
        raise BadInput(f"the examples {examples.label} must be a parallel corpus, but are not.")
    start = 0
    for _, group in itertools.groupby(notes[RUNS], lambda run: run[by]):
        runs = list(group)
        end = start + sum(run["rows"] for run in runs)
        yield runs, range(start, end)
        start = end


def split_parallel(
    workspace: Workspace, examples: Examples, held_out: int
) -> tuple[Examples, Examples, Examples]:
    """Split what `write_parallel` wrote into training, dev and test pairs.

    The hash of a source's text decides whether it may be held out, and dev and test share no sources. The
    training pairs stay in the order of their corpora; the others are ordered by language.

    Of every language ``held_out`` pairs are for dev and as many for test, each at most a tenth of it.

    Raises:
        BadInput: If a language has too few pairs, or nothing is left to train on.
    """
    rows = open_examples(workspace, examples)
    place_N = _places(workspace, examples.columns["source"])[rows.ids["source"]]
    chosen: dict[str, list[IntArray]] = {"dev": [], "test": []}
    spans = [(language, np.asarray(span)) for language, span in language_spans(workspace, examples)]
    for language in dict.fromkeys(language for language, _ in spans):
        mine = np.concatenate([ids for other, ids in spans if other == language])
        size = min(held_out, len(mine) // 10)
        if size < 2:
            raise BadInput(
                f"at least 2 and at most a tenth of the pairs per language must be held out, but {language} "
                f"has {len(mine)} pairs and held_out={held_out}."
            )
        for parity, split in enumerate(chosen):
            able = mine[place_N[mine] % 2 == parity]
            chosen[split].append(np.sort(able[np.argsort(place_N[able], kind="stable")[:size]]))
    held = {split: np.concatenate(parts) for split, parts in chosen.items()}
    train = np.setdiff1d(np.arange(len(place_N)), np.concatenate(list(held.values())))
    made = [
        _picked(workspace, examples, kept, f"{examples.label}-{name}")
        for name, kept in {"train": train, **held}.items()
    ]
    return made[0], made[1], made[2]


def pairs_of_corpora(
    workspace: Workspace, examples: Examples, places: Collection[int], label: str
) -> Examples:
    """Pick the training pairs of some corpora, by their places in the order in which they were written.

    Raises:
        BadInput: If these corpora have no pair.
    """
    spans = [span for runs, span in _spans(workspace, examples, "corpus") if runs[0]["corpus"] in places]
    require(
        bool(spans),
        "the corpora of a stage must have a pair that is neither held out nor in another corpus",
        corpora=sorted(places),
    )
    return _picked(workspace, examples, np.concatenate([np.asarray(span) for span in spans]), label)


def _picked(workspace: Workspace, examples: Examples, kept: IntArray, label: str) -> Examples:
    rows = restrict(open_examples(workspace, examples), kept)
    return write_rows(workspace, examples.columns, rows.ids, label, rows.notes, rows.values)


def _places(workspace: Workspace, table: TextTable) -> npt.NDArray[np.uint64]:
    """Hash every text to a number."""
    texts = open_texts(workspace, table)
    hashes = (blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(hashes), dtype=np.uint64)


def _noted(place: int, corpus: ParallelCorpus, reading: Reading[Pair], kept: int) -> dict[str, Any]:
    """Say what was read of a corpus, and return what is noted of it."""
    understood = reading.understood(kept, reading.taking.taken - kept)
    understood.say()
    aside = dict(sorted(reading.aside.items()))
    return {
        **{"corpus": place, "language": corpus.language, "source": corpus.source, "target": corpus.target},
        **{"rows": kept, "read": understood.read, "duplicates": understood.duplicates, "set_aside": aside},
    }
