"""Texts of several corpora in given shares, each text once, with an equal part of each corpus held out."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress, say, warn
from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import IntArray
from stillhouse.corpora.barrier import Barrier
from stillhouse.corpora.read_once import note_path, read_once
from stillhouse.corpora.reading.cleaning import dedup_key
from stillhouse.corpora.reading.corpus import Check, ReadOptions, read_texts
from stillhouse.corpora.reading.languages import recognised
from stillhouse.corpora.reading.row_limit import Taking
from stillhouse.corpora.reading.rows import Rejected
from stillhouse.corpora.reading.sources import CORPUS, Reading, corpus_label, hub_name, list_files
from stillhouse.corpora.row_shares import apportion
from stillhouse.corpora.seen_keys import SeenKeys
from stillhouse.corpora.splits import LEAST_TEXTS, held_out_share
from stillhouse.corpora.tables import TableWriter, open_texts, write_texts
from stillhouse.values.data import TextTable

VERSION = 3
_BLOCK = 4096
_SPLITS = ("train", "dev", "test")

Part = tuple[TextTable, int] | None
"""The texts of one source, and their number; None where it has none."""


@dataclass(frozen=True)
class MixSource:
    """One corpus of a mix.

    Attributes:
        corpus: A source as `read_texts` takes it, or a table of texts that have been read.
        share: Its part of the texts, relative to the shares of the others; 0 takes none.
        options: How it is read; a table is taken as it is.
    """

    corpus: str | TextTable
    share: float
    options: ReadOptions = field(default_factory=ReadOptions)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.corpus if isinstance(self.corpus, str) else self.corpus.label

    @property
    def described(self) -> str:
        """The name with how it is read, as one corpus may be several sources of a mix."""
        if not isinstance(self.corpus, str):
            return self.name
        usual, options = ReadOptions(), self.options
        how = ["sentences"] if options.split_sentences else []
        if (options.min_words, options.max_words) != (usual.min_words, usual.max_words):
            how.append(f"{options.min_words} to {options.max_words:,} words")
        if options.longer != usual.longer:
            how.append(f"longer: {options.longer}")
        return f"{self.name} ({', '.join(how)})" if how else self.name

    @property
    def label(self) -> str:
        """A readable name, fit for a file name."""
        return corpus_label(self.corpus) if isinstance(self.corpus, str) else self.corpus.label

    def signature(self) -> dict[str, Any]:
        """Return everything that the texts depend on: the files and the options of reading."""
        if isinstance(self.corpus, TextTable):
            return {"table": self.corpus.sha256}
        return {"source": self.corpus, "files": list_files(self.corpus).files, "options": self.options}

    def texts(self, workspace: Workspace, check: Check, reading: Reading[str]) -> Iterator[str | Rejected]:
        """Read it, and reject what is measured with; of a table that has been read, all texts."""
        if isinstance(self.corpus, TextTable):
            texts = open_texts(workspace, self.corpus)
            return map(check, texts, itertools.repeat(recognised(texts)))
        return read_texts(self.corpus, self.options, check, reading)


@dataclass(frozen=True)
class Mixed:
    """The parts of a mix; each list has one entry per source."""

    train: list[Part]
    dev: list[Part]
    test: list[Part]


def mix_texts(
    workspace: Workspace,
    sources: Sequence[MixSource],
    *,
    count: int,
    held_out: int,
    barrier: Barrier | None = None,
    refresh: bool = False,
) -> Mixed:
    """Read a number of texts from several corpora, and hold some of each out; the result is cached.

    Of ``count`` texts every source gives its share, rounded so that they add up. Texts are counted once they
    have been cleaned, and only if no text before is equal (see `dedup_key`), whichever source that is in. A
    source that ends before its share is reached is reported, and the others give what is missing, in
    proportion to their shares. Which texts are held out depends on their hashes alone.

    Texts for dev and for test, ``held_out`` each, are of every source in proportion (`held_out_share`).

    Raises:
        BadInput: A source has no usable text, or all of them have fewer than 50.
    """
    barrier = barrier or Barrier(workspace)
    # A source without a share is not read: whether it is listed makes no difference.
    signature = {
        "version": VERSION,
        "sources": [
            {**source.signature(), "share": float(source.share)} if source.share else None
            for source in sources
        ],
        "count": count,
        "held_out": held_out,
        "barrier": barrier.signature,
    }
    note = note_path(workspace, "mix", signature)

    def read() -> dict[str, Any]:
        mixing = _Mixing(workspace, sources, barrier, count)
        return {**_divided(workspace, mixing.read(), held_out), "left_out": mixing.left_out}

    made = read_once(workspace, note, read, refresh=refresh)
    barrier.report("texts", made["left_out"])
    return Mixed(**{split: list(made[split]) for split in _SPLITS})


class _Mixing:
    """The sources of a mix while they are read, all of them open at once."""

    def __init__(
        self, workspace: Workspace, sources: Sequence[MixSource], barrier: Barrier, count: int
    ) -> None:
        self.workspace, self.sources, self.count = workspace, sources, count
        self.seen, self.left_out = SeenKeys(workspace.root), Counter[str]()
        # Of what is drawn of a source, as much may be in the sources before it.
        takings = (
            Taking[Any](2 * count, stream=bool(hub_name(source.name)), by_hash=True) for source in sources
        )
        self.readings = [
            Reading[str](source.name, CORPUS, source.options.schema, taking=taking, label=source.described)
            for source, taking in zip(sources, takings, strict=True)
        ]
        check = barrier.checking(self.left_out)
        opened = zip(sources, self.readings, strict=True)
        self.streams = [source.texts(workspace, check, reading) for source, reading in opened]
        self.counts = [0] * len(sources)
        self.ended = [source.share == 0 for source in sources]

    def read(self) -> list[Part]:
        """Read until there are ``count`` texts, or no source has any more."""
        count = self.count
        shares, progress = [source.share for source in self.sources], Progress("reading the mix", "texts")
        asked = apportion(count, shares)
        with contextlib.ExitStack() as opened:
            writers = [
                opened.enter_context(TableWriter(self.workspace, source.label, deduplicate=False))
                for source in self.sources
            ]
            missing = asked
            while any(missing):
                for index, number in enumerate(missing):
                    self._take(index, number, writers[index])
                    progress(sum(self.counts), count)
                going = [0.0 if ended else share for share, ended in zip(shares, self.ended, strict=True)]
                short = count - sum(self.counts)
                missing = apportion(short, going) if any(going) else []
            self._report(asked)
            return [
                (writer.publish({"source": source.name}), number) if number else None
                for source, writer, number in zip(self.sources, writers, self.counts, strict=True)
            ]

    def _take(self, index: int, number: int, writer: TableWriter) -> None:
        """Write the next texts of a source that are new, so many of them."""
        wanted = self.counts[index] + number
        while self.counts[index] < wanted and not self.ended[index]:
            # No more than are wanted: what is read and not written would be missing later.
            block = list(itertools.islice(self.streams[index], min(wanted - self.counts[index], _BLOCK)))
            self.ended[index] = not block
            for text in self._new(block):
                writer.take(text)
            # What cannot be used is set aside by the writer, and does not count.
            self.counts[index] = writer.rows

    def _new(self, block: Sequence[str | Rejected]) -> list[str | Rejected]:
        """Those of some texts that were not seen before, and what a reader has rejected."""
        keys = b"".join(dedup_key(text) for text in block if isinstance(text, str))
        new = iter(self.seen.new(keys))
        return [text for text in block if not isinstance(text, str) or next(new)]

    def _report(self, asked: Sequence[int]) -> None:
        """Refuse a source without a text, and say which ones had fewer texts than their share."""
        for source, number, wanted in zip(self.sources, self.counts, asked, strict=True):
            if wanted and not number:
                raise BadInput(
                    f"every source of a mix must have at least one usable text, but {source.name} has none: "
                    "all of its texts are empty, outside the limits, held out, or in a source before it. "
                    "Check its fields, or give it no share."
                )
            if number < wanted:
                warn(
                    f"note: {source.described} has {number:,} texts, fewer than the {wanted:,} of its "
                    "share; the other sources give the rest as far as they go."
                )
        for source, reading, number in zip(self.sources, self.readings, self.counts, strict=True):
            read = reading.taking.read
            if isinstance(source.corpus, str) and source.share > 0:
                reading.understood(number, rows=read, limit=f"{number:,} of {read:,} texts, its share").say()
        parts = []
        for reading, number in zip(self.readings, self.counts, strict=True):
            left_out = not reading.taking.stream and number < reading.taking.read
            rows = f"{reading.taking.read:,} rows of " if left_out else ""
            parts += [f"\n    {number:,} of {rows}{reading.label}"] if number else []
        total = sum(self.counts)
        require(
            total >= LEAST_TEXTS, f"texts of a mix >= {LEAST_TEXTS}", texts=total, remedy="Give more text."
        )
        say(f"  mix of {total:,} texts:{''.join(parts)}")


def _divided(workspace: Workspace, pools: Sequence[Part], held_out: int) -> dict[str, list[Part]]:
    """Divide the texts of every source into training, dev and test texts, in their order."""
    total = sum(pool[1] for pool in pools if pool is not None)
    fraction = held_out_share(total, held_out)
    parts: dict[str, list[Part]] = {split: [] for split in _SPLITS}
    for pool in pools:
        if pool is None:
            for split in _SPLITS:
                parts[split].append(None)
            continue
        table, rows = pool
        split_N = _splits(open_texts(workspace, table), rows, int(fraction * rows))
        for number, split in enumerate(_SPLITS):
            kept = split_N == number
            if not kept.any():
                parts[split].append(None)
                continue
            texts, origin = itertools.compress(open_texts(workspace, table), kept), {"mix": table.sha256}
            label = f"{table.label}-{split}"
            written = write_texts(workspace, label, texts, deduplicate=False, origin=origin)
            parts[split].append((written, int(kept.sum())))
    if not any(parts["dev"]):
        raise BadInput(
            f"the sources of a mix must give texts to hold out, but {held_out} of {total:,} texts is less "
            "than one per source. Raise sentences.held_out, or take more texts."
        )
    return parts


def _splits(texts: Iterable[str], rows: int, held_out: int) -> IntArray:
    """0, 1 or 2 for every text: those with the lowest hashes are held out for dev, the next for the test."""
    digests = (blake2b(text.encode(), digest_size=8).digest() for text in texts)
    hash_N = np.fromiter((int.from_bytes(digest) for digest in digests), np.uint64, rows)
    order_N = np.argsort(hash_N, kind="stable")
    split_N = np.zeros(rows, np.int64)
    split_N[order_N[:held_out]], split_N[order_N[held_out : 2 * held_out]] = 1, 2
    return split_N


def joined(workspace: Workspace, label: str, tables: Sequence[TextTable]) -> TextTable:
    """Write the texts of several tables into one, table after table."""
    if len(tables) == 1:
        return tables[0]

    def read() -> TextTable:
        texts = (text for table in tables for text in open_texts(workspace, table))
        return write_texts(workspace, label, texts, deduplicate=False, origin={"joined": len(tables)})

    note = note_path(workspace, f"{label}-joined", {"version": VERSION, "tables": [t.sha256 for t in tables]})
    return read_once(workspace, note, read)
