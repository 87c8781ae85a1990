"""Rows of a task as examples: labelled ones, and varied ones that a teacher speaks of."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stillhouse.core.artifacts import Workspace, locked, read_json, write_json
from stillhouse.core.console import say
from stillhouse.corpora.augmentation import augment
from stillhouse.corpora.published.glue import Row
from stillhouse.corpora.reading.corpus import list_files
from stillhouse.corpora.reading.ingest import note_path, noted, recalled
from stillhouse.corpora.tables import open_rows, open_texts, open_values, write_rows, write_texts
from stillhouse.corpora.wordnet import read_wordnet
from stillhouse.plan.data import Examples

VERSION = 1


def write_task_rows(
    workspace: Workspace, rows: Sequence[Row], label: str, origin: Mapping[str, Any]
) -> Examples:
    """Rows as examples: columns ``text`` and, for pairs, ``other``, over one table; value ``label``."""
    sides = {"text": [row.first for row in rows]}
    if rows and rows[0].second is not None:
        sides["other"] = [row.second or "" for row in rows]
    known = {
        text: at for at, text in enumerate(dict.fromkeys(text for side in sides.values() for text in side))
    }
    table = write_texts(workspace, label, known, deduplicate=False, origin=origin)
    return write_rows(
        workspace,
        dict.fromkeys(sides, table),
        {column: np.array([known[text] for text in side]) for column, side in sides.items()},
        label,
        values={"label": np.array([row.label for row in rows])},
    )


def augmented_rows(
    workspace: Workspace, examples: Examples, wordnet: str, *, copies: int, most: int
) -> Examples:
    """The rows of a task and varied ones, which have no label: the transfer set of Tang et al. (TS).

    Args:
        workspace: Where both stand.
        examples: What `write_task_rows` wrote, or a share of it.
        wordnet: Folder with the YAML files of Open English WordNet, whose parts of speech are the tags.
        copies: Tries a row.
        most: Rows in all after which it ends; 0 is all.

    Raises:
        BadInput: The folder is not WordNet's.
    """
    signature = {
        "version": VERSION,
        "rows": examples.fingerprint,
        "wordnet": list_files(f"{wordnet}/*.yaml*")[1],
        "copies": copies,
        "most": most,
    }
    note = note_path(workspace, f"{examples.label}-augmented", signature)
    with locked(note.with_suffix(".lock")):
        known = recalled(workspace, read_json(note)) if note.exists() else None
        if known is not None:
            return known
        rows = _rows_of(workspace, examples)
        varied: list[Row] = []
        if most == 0 or most > len(rows):
            tagger = read_wordnet(wordnet).tag
            varied = list(augment(rows, tagger, copies=copies, limit=max(0, most - len(rows))))
        origin = {"augmented": examples.fingerprint}
        made = write_task_rows(workspace, [*rows, *varied], f"{examples.label}-augmented", origin)
        write_json(note, noted(made))
        say(f"  {made.label}: {len(rows):,} rows and {len(varied):,} varied ones")
        return made


def _rows_of(workspace: Workspace, examples: Examples) -> list[Row]:
    ids, label_N = open_rows(workspace, examples), open_values(workspace, examples)["label"]
    sides = {name: open_texts(workspace, table)[ids[name]] for name, table in examples.columns.items()}
    others: Sequence[str | None] = sides["other"] if "other" in sides else [None] * len(label_N)
    return [
        Row(first, second, int(label))
        for first, second, label in zip(sides["text"], others, label_N, strict=True)
    ]
