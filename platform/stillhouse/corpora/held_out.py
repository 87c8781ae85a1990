"""Training text without the texts that a search collection measures with."""

from collections.abc import Iterable
from itertools import compress
from pathlib import Path

import numpy as np

from stillhouse.core.artifacts import Workspace, locked, read_json
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput
from stillhouse.core.notes import has_note, write_note
from stillhouse.corpora.reading.ingest import describe_examples, note_path, restore_examples
from stillhouse.corpora.reading.sentences import clean, dedup_key, split_sentences
from stillhouse.corpora.tables import open_rows, open_texts, write_rows, write_texts
from stillhouse.values.data import Examples, TextTable

VERSION = 1
LEAST_TEXTS = 50


def write_held_out(
    workspace: Workspace, label: str, queries: Iterable[str], passages: Iterable[str]
) -> TextTable:
    """Write the texts that may not be trained on: queries, passages, and each sentence of the passages.

    Args:
        workspace: Workspace for the table.
        label: Readable name of the table.
        queries: Queries of all splits.
        passages: Passages of all splits that are judged.
    """

    def texts() -> Iterable[str]:
        yield from (clean(query) for query in queries)
        for passage in passages:
            yield clean(passage)
            yield from split_sentences(passage)

    return write_texts(workspace, label, texts())


def without_texts(workspace: Workspace, table: TextTable, held_out: TextTable) -> tuple[TextTable, int]:
    """Leave texts out of a table; it is the same table if none of them is in it.

    Two texts are equal if they differ in case, white space and closing punctuation only (see `dedup_key`).

    Returns:
        The table without them, and how many were left out.

    Raises:
        BadInput: If fewer than 50 texts would remain.
    """
    label = f"{table.label}-kept"
    note = _note(workspace, label, table, held_out)
    with locked(note.with_suffix(".lock")):
        if has_note(note):
            known = read_json(note)
            kept = TextTable(known["table"], label) if known["left_out"] else table
            if workspace.finished(kept):
                return kept, int(known["left_out"])
        keys, texts = _keys(workspace, held_out), open_texts(workspace, table)
        rest = sum(dedup_key(text) not in keys for text in texts)
        left_out = len(texts) - rest
        if left_out and rest < LEAST_TEXTS:
            raise BadInput(
                f"a corpus must have at least {LEAST_TEXTS} texts that are no query and no judged passage of "
                f"the collection, but {left_out:,} of its {len(texts):,} are. Give more text."
            )
        kept = table
        if left_out:
            others = (text for text in texts if dedup_key(text) not in keys)
            kept = write_texts(
                workspace, label, others, deduplicate=False, origin={"without": held_out.sha256}
            )
        write_note(note, {"table": kept.sha256, "left_out": left_out})
    say(f"  {left_out:,} of {len(texts):,} texts are left out: they are queries or judged passages")
    return kept, left_out


def without_rows(workspace: Workspace, examples: Examples, held_out: TextTable) -> tuple[Examples, int]:
    """Leave out the rows of examples that name one of these texts, and the texts themselves.

    Returns:
        The examples without them, and how many rows were left out.

    Raises:
        BadInput: If no row remains.
    """
    label = f"{examples.label}-kept"
    note = _note(workspace, label, examples, held_out)
    with locked(note.with_suffix(".lock")):
        if has_note(note):
            known = read_json(note)
            found = restore_examples(workspace, known["examples"]) if known["left_out"] else examples
            if found is not None:
                return found, int(known["left_out"])
        keys = _keys(workspace, held_out)
        tables = dict.fromkeys(examples.columns.values())
        clear = {
            table: np.array([dedup_key(text) not in keys for text in open_texts(workspace, table)])
            for table in tables
        }
        rows = open_rows(workspace, examples)
        flags = [
            clear[examples.columns[name]][ids].reshape(len(ids), -1).all(axis=1) for name, ids in rows.items()
        ]
        kept_N = np.logical_and.reduce(flags)
        left_out = int((~kept_N).sum())
        if left_out and not kept_N.any():
            raise BadInput(
                f"labelled text must have rows that name no query and no judged passage of the collection, "
                f"but all {left_out:,} do. Give other pairs, or another collection."
            )
        kept = examples
        if left_out:
            moved = {table: np.cumsum(clear[table]) - 1 for table in tables}
            smaller = {
                table: write_texts(
                    workspace, table.label, compress(open_texts(workspace, table), flags_N), deduplicate=False
                )
                for table, flags_N in clear.items()
            }
            kept = write_rows(
                workspace,
                {name: smaller[table] for name, table in examples.columns.items()},
                {name: moved[examples.columns[name]][ids[kept_N]] for name, ids in rows.items()},
                label,
            )
        write_note(note, {"examples": describe_examples(kept), "left_out": left_out})
    say(f"  {left_out:,} of {len(kept_N):,} pairs are left out: they have a query or a judged passage")
    return kept, left_out


def _note(workspace: Workspace, label: str, source: TextTable | Examples, held_out: TextTable) -> Path:
    signature = {"version": VERSION, "source": source.fingerprint, "held_out": held_out.sha256}
    return note_path(workspace, label, signature)


def _keys(workspace: Workspace, table: TextTable) -> set[bytes]:
    return {dedup_key(text) for text in open_texts(workspace, table)}
