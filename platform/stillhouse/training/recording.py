"""What a trained stage says of examples, recorded once: a fine-tuned teacher's logits, for its students."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from stillhouse.artifacts import Workspace, locked, remove_leftovers, replacing, write_manifest
from stillhouse.data import Examples, Recorded
from stillhouse.spec import canonical
from stillhouse.types import IntArray, ValueArray

ROWS_AT_ONCE = 16384
"""Rows of a part: after a kill the recording goes on with the first part that is not there."""
PARTS = "parts"


def build_recorded(workspace: Workspace, examples: Examples, *, device: str = "cpu") -> None:
    """Ask the stage of examples whose origin is `Recorded`, if nobody has yet; others who want it wait.

    The student encodes in full precision and without dropout. Beside the new value, float32, the folder holds
    the columns and values of the rows.

    Args:
        workspace: Where the rows and the finished stage are.
        examples: What to build.
        device: Where the stage's student runs.

    Raises:
        BadInput: The rows or the stage are not finished.
    """
    if workspace.finished(examples):
        return
    folder = workspace.path(examples)
    with locked(folder.with_suffix(".lock")):
        if not workspace.finished(examples):
            remove_leftovers(folder)
            _build(workspace, examples, folder, device)


def _build(workspace: Workspace, examples: Examples, folder: Path, device: str) -> None:
    from stillhouse.corpora.tables import open_rows, open_values

    origin = examples.origin
    assert isinstance(origin, Recorded), "only recorded examples are recorded"
    rows, values = open_rows(workspace, origin.rows), open_values(workspace, origin.rows)
    count = len(next(iter(rows.values())))
    starts = range(0, count, ROWS_AT_ONCE)
    parts = {folder / PARTS / f"{start:012}.npy": slice(start, start + ROWS_AT_ONCE) for start in starts}
    _ask(workspace, origin, rows, {part: at for part, at in parts.items() if not part.exists()}, device)
    said = np.concatenate([np.load(part) for part in parts])
    for name, array in {**rows, **values, origin.value: said}.items():
        _save(folder / f"{name}.npy", array)
    write_manifest(folder, {"rows": count, "plan": canonical(examples)})
    shutil.rmtree(folder / PARTS, ignore_errors=True)


def _ask(
    workspace: Workspace,
    origin: Recorded,
    rows: Mapping[str, IntArray],
    parts: Mapping[Path, slice],
    device: str,
) -> None:
    """Write the parts that are missing."""
    from stillhouse.corpora.tables import open_texts
    from stillhouse.training.run import encoder_in
    from stillhouse.training.scorer import StudentScorer

    if not parts:
        return
    scorer = encoder_in(workspace.path(origin.stage), device)
    assert isinstance(scorer, StudentScorer), "a stage that is asked has an objective that answers"
    texts = [(open_texts(workspace, origin.rows.columns[name]), rows[name]) for name in scorer.columns]
    for part, at in parts.items():
        _save(part, scorer.asked(origin.value, *(table[ids[at]] for table, ids in texts)))


def _save(path: Path, array: ValueArray) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, array)
