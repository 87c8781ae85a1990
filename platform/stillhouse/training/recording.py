"""What a model says of examples, recorded once: beside their rows, for students that learn from it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stillhouse.core.artifacts import Workspace, locked, remove_leftovers, write_array, write_manifest
from stillhouse.core.identity import canonical
from stillhouse.core.types import IntArray, ValueArray
from stillhouse.examples.resumable_parts import in_parts, remove_parts
from stillhouse.plan.data import Examples, Recorded

ROWS_AT_ONCE = 16384
"""Rows of a part: after a kill the recording goes on with the parts that are not there."""

Ask = Callable[[slice], ValueArray]
"""From some rows to what is said of each."""


def build_recorded(workspace: Workspace, examples: Examples, *, device: str = "cpu") -> None:
    """Ask the stage of examples whose origin is `Recorded`; see `record`.

    The student encodes in full precision and without dropout. What it says is float32.

    Args:
        workspace: Where the rows and the finished stage are.
        examples: What to build.
        device: Where the stage's student runs.

    Raises:
        BadInput: The rows or the stage are not finished.
    """
    origin = examples.origin
    assert isinstance(origin, Recorded), "only recorded examples are recorded"
    record(
        workspace,
        examples,
        "logits",
        lambda rows: _asked(workspace, origin, rows, device),
        rows_at_once=ROWS_AT_ONCE,
    )


def record(
    workspace: Workspace,
    examples: Examples,
    value: str,
    open_asked: Callable[[Mapping[str, IntArray]], Ask],
    *,
    rows_at_once: int,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Record a new value beside the rows of examples, if nobody has yet; others who want it wait.

    It is written part by part, each whole or not at all, so a killed process loses one part. The folder then
    holds the columns and values of the rows too.

    Args:
        workspace: Where the rows are.
        examples: What to build; its origin has ``rows``.
        value: The new value's name.
        open_asked: From the rows by column to what answers; called when there is something to ask.
        rows_at_once: Rows of a part.
        progress: Told of rows done and in all.
    """
    if workspace.finished(examples):
        return
    folder = workspace.path(examples)
    with locked(folder.with_suffix(".lock")):
        if workspace.finished(examples):
            return
        remove_leftovers(folder)
        rows, values = _known(workspace, examples.origin)
        count = len(next(iter(rows.values())))

        def asked(starts: list[int]) -> Iterator[tuple[int, ValueArray]]:
            ask = open_asked(rows)
            return ((start, ask(slice(start, start + rows_at_once))) for start in starts)

        said = in_parts(folder, count, rows_at_once, asked, progress)
        for name, array in {**rows, **values, value: said}.items():
            write_array(folder / f"{name}.npy", array)
        write_manifest(folder, {"rows": count, "plan": canonical(examples)})
        remove_parts(folder)


def _known(workspace: Workspace, origin: Any) -> tuple[Mapping[str, IntArray], Mapping[str, ValueArray]]:
    from stillhouse.corpora.tables import open_rows, open_values

    return open_rows(workspace, origin.rows), open_values(workspace, origin.rows)


def _asked(workspace: Workspace, origin: Recorded, rows: Mapping[str, IntArray], device: str) -> Ask:
    from stillhouse.corpora.tables import open_texts
    from stillhouse.training.scorer import StudentScorer
    from stillhouse.training.walk import encoder_in

    scorer = encoder_in(workspace.path(origin.stage), device)
    assert isinstance(scorer, StudentScorer), "the objective of a recorded stage has logits"
    texts = [(open_texts(workspace, origin.rows.columns[name]), rows[name]) for name in scorer.columns]
    return lambda at: scorer.logits(*(table[ids[at]] for table, ids in texts))
