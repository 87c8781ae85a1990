"""Parallel corpora as examples with the columns ``source`` and ``target``.

Equal sentences become one row of their table, so that a teacher embeds a source once even if it is translated
into several languages.
"""

import itertools
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import IntArray
from stillhouse.corpora.reading.corpus import hub_name
from stillhouse.corpora.reading.counting import Taking
from stillhouse.corpora.reading.ingest import corpus_label
from stillhouse.corpora.reading.parallel import ParallelCorpus, read_parallel
from stillhouse.corpora.reading.understood import Reading
from stillhouse.corpora.tables import (
    RUNS,
    Rejected,
    open_examples,
    open_texts,
    restrict,
    write_rows,
    write_texts,
)
from stillhouse.values.data import Examples, TextTable


def write_parallel(
    workspace: Workspace, corpora: Sequence[ParallelCorpus], label: str = "parallel"
) -> Examples:
    """Write corpora, one after the other, as examples without duplicate pairs.

    ``parallel`` in the manifest has for every corpus its place and language, and the number of rows that were
    read, kept, dropped as duplicates, and set aside by reason.

    Args:
        workspace: Workspace for tables and rows.
        corpora: One corpus or more.
        label: Readable name of the examples.

    Raises:
        BadInput: As for `read_parallel`, or if there is no usable pair.
    """
    require(len(corpora) > 0, "parallel corpora >= 1", corpora=len(corpora))
    workspace.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=workspace.root, prefix=".parallel-") as folder:
        sides = {name: _Side(Path(folder) / name) for name in ("source", "target")}
        takings = [_take(corpus, sides) for corpus in corpora]
        ends = np.cumsum([taking.taken for taking, _ in takings])
        reasons = [dict(sorted(reading.aside.items())) for _, reading in takings]
        if not ends[-1]:
            raise BadInput(f"a parallel corpus must have at least one usable pair, but has none: {reasons}.")
        written = {name: side.write(workspace, f"{label}-{name}") for name, side in sides.items()}
    source_N, target_N = (rows_N for _, rows_N in written.values())
    first_N = np.sort(np.unique(source_N * (target_N.max() + 1) + target_N, return_index=True)[1])
    kept = np.bincount(np.searchsorted(ends, first_N, side="right"), minlength=len(ends)).tolist()
    notes = [
        _noted(place, corpora[place], taking, reading, kept[place])
        for place, (taking, reading) in enumerate(takings)
    ]
    tables = {name: table for name, (table, _) in written.items()}
    rows = {name: rows_N[first_N] for name, (_, rows_N) in written.items()}
    return write_rows(workspace, tables, rows, label, {RUNS: notes})


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
    """Split into training, dev and test pairs.

    The hash of a source's text decides whether it may be held out, and dev and test share no sources. The
    training pairs stay in the order of their corpora; the others are ordered by language.

    Args:
        workspace: Holds the examples.
        examples: From `write_parallel`.
        held_out: Pairs per language for dev, and the same number for test; at most a tenth of a language.

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
    """Pick the pairs of some of the corpora that examples were written from.

    Args:
        workspace: Holds the examples.
        examples: From `write_parallel`, or the training pairs of `split_parallel`.
        places: Positions of the corpora, in the order in which they were written.
        label: Readable name of the result.

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
    shards = (texts.shard(index) for index in range(len(texts.shard_starts)))
    hashes = (blake2b(text.encode(), digest_size=8).digest() for shard in shards for text in shard)
    return np.frombuffer(b"".join(hashes), dtype=np.uint64)


class _Side:
    """The texts of one column in the order of the pairs, and their hashes, both in files."""

    def __init__(self, path: Path) -> None:
        self.path, self.hashes = path, path.with_suffix(".hashes")
        self.file = path.open("w", encoding="utf-8", newline="\n")
        self.hash_file = self.hashes.open("wb")

    def add(self, text: str) -> None:
        self.file.write(text + "\n")
        self.hash_file.write(blake2b(text.encode(), digest_size=16).digest())

    def write(self, workspace: Workspace, label: str) -> tuple[TextTable, IntArray]:
        """Write the distinct texts, and return their table and each pair's row in it."""
        self.file.close()
        self.hash_file.close()
        hash_N2 = np.fromfile(self.hashes, np.uint64).reshape(-1, 2)
        order = np.lexsort((hash_N2[:, 1], hash_N2[:, 0]))
        new = np.ones(len(order), bool)
        new[1:] = (hash_N2[order[1:]] != hash_N2[order[:-1]]).any(axis=1)
        # The sort is stable, so the first of equal texts is the one that comes first.
        first_D, of_N = order[new], np.empty(len(order), np.int64)
        of_N[order] = np.cumsum(new) - 1
        row_D = np.empty(len(first_D), np.int64)
        row_D[np.argsort(first_D)] = np.arange(len(first_D))
        kept = np.zeros(len(order), bool)
        kept[first_D] = True
        with self.path.open(encoding="utf-8", newline="\n") as lines:
            texts = itertools.compress((line.removesuffix("\n") for line in lines), kept)
            table = write_texts(workspace, label, texts, deduplicate=False, origin={"parallel": True})
        return table, row_D[of_N]


def _take(corpus: ParallelCorpus, sides: Mapping[str, _Side]) -> tuple[Taking[Any], Reading]:
    """Add the usable pairs of a corpus; return how they were taken, and what it was taken for."""
    reading = Reading(corpus_label(corpus.source), corpus.schema.language)

    def usable() -> Iterator[tuple[str, str]]:
        for pair in read_parallel(corpus, reading):
            if isinstance(pair, Rejected):
                reading.aside[pair.reason] += 1
            else:
                yield pair

    taking = Taking[tuple[str, str]](corpus.limit, stream=hub_name(corpus.source) is not None)
    for pair in taking.of(usable(), lambda pair: "\t".join(pair).encode()):
        for side, text in zip(sides.values(), pair, strict=True):
            side.add(text)
    return taking, reading


def _noted(
    place: int, corpus: ParallelCorpus, taking: Taking[Any], reading: Reading, kept: int
) -> dict[str, Any]:
    """Say what was read of a corpus, and return what is noted of it."""
    understood = reading.understood(kept, taking, taking.taken - kept)
    understood.say()
    aside = dict(sorted(reading.aside.items()))
    return {
        **{"corpus": place, "language": corpus.language, "source": corpus.source, "target": corpus.target},
        **{"rows": kept, "read": understood.read, "duplicates": understood.duplicates, "set_aside": aside},
    }
