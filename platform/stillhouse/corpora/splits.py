"""Held-out parts of a corpus; the hash of a text decides which part it belongs to."""

import contextlib
import hashlib
from collections.abc import Sequence

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput
from stillhouse.corpora.read_once import note_path, read_once
from stillhouse.corpora.tables import TableWriter, open_texts
from stillhouse.values.data import TextTable

_BUCKETS = 1 << 20
LEAST_TEXTS = 50
_LEAST_HELD_OUT = 20


def held_out_share(rows: int, held_out: int) -> float:
    """Share of the texts that are held out for dev, and for test: no more than a tenth, or 20 texts, each."""
    return min(held_out / rows, max(0.1, min(0.2, _LEAST_HELD_OUT / rows)))


def split_table(
    workspace: Workspace, table: TextTable, *, held_out: int = 1000
) -> tuple[TextTable, TextTable, TextTable]:
    """Split deduplicated texts into train, dev and test (`held_out_share`); the result is cached.

    Raises:
        BadInput: If the table has fewer than 50 texts.
    """

    def read() -> tuple[TextTable, TextTable, TextTable]:
        texts = open_texts(workspace, table)
        if len(texts) < LEAST_TEXTS:
            raise BadInput(
                f"a corpus must have at least {LEAST_TEXTS} texts to be split, but has {len(texts)}. Give "
                "more text."
            )
        edge = int(_BUCKETS * held_out_share(len(texts), held_out))
        with contextlib.ExitStack() as opened:
            train, dev, test = [
                opened.enter_context(TableWriter(workspace, f"{table.label}-{part}", deduplicate=False))
                for part in ("train", "dev", "test")
            ]
            for text in texts:
                digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
                bucket = int.from_bytes(digest) % _BUCKETS
                (dev if bucket < edge else test if bucket < 2 * edge else train).take(text)
            return train.publish(), dev.publish(), test.publish()

    note = note_path(workspace, "split", {"table": table.sha256, "held_out": held_out})
    return read_once(workspace, note, read)


def say_split(what: str, parts: Sequence[int]) -> None:
    """Say how many rows of a kind there are to train on, for dev and for the test."""
    train, dev, test = parts
    say(f"  {sum(parts):,} {what}: {train:,} to train on, {dev:,} for dev, {test:,} for test")
