"""Outputs of a model for examples, recorded once with their rows, for students that learn from them."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from stillhouse.cluster.leases import make_once
from stillhouse.cluster.ray_data import ModelPool, Part
from stillhouse.core.artifacts import Workspace, write_array
from stillhouse.core.types import IntArray, ValueArray
from stillhouse.corpora.tables import open_rows, open_texts, open_values
from stillhouse.training.models import encoder_in
from stillhouse.training.resumable_parts import in_parts
from stillhouse.training.scorer import StudentScorer
from stillhouse.values.data import Examples, Recorded, Scored

ROWS_AT_ONCE = 16384
"""Rows per part: after a kill the recording continues with the missing parts."""

Predict = Callable[[slice], ValueArray]
"""Maps a range of rows to the output for each."""


def build_recorded(
    workspace: Workspace, examples: Examples, *, device: str = "cpu", pool: ModelPool | None = None
) -> None:
    """Record the outputs of a stage for examples whose origin is `Recorded`; see `record`.

    The student encodes in full precision and without dropout. The outputs are float32.

    Raises:
        BadInput: The rows or the stage are not finished.
    """
    assert isinstance(examples.origin, Recorded), "only recorded examples are recorded"
    opened = partial(_predictor, workspace, examples.origin)
    record(workspace, examples, "logits", opened, rows_at_once=ROWS_AT_ONCE, device=device, pool=pool)


def record(
    workspace: Workspace,
    examples: Examples,
    value: str,
    open_predictor: Callable[[Mapping[str, IntArray], str], Predict],
    *,
    rows_at_once: int,
    device: str = "cpu",
    pool: ModelPool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Record a new value with the rows of examples, unless it exists; other processes wait for it.

    It is written in parts, each atomically, so a killed process loses one part. The folder then also holds
    the columns and values of the rows.

    Args:
        workspace: Holds the rows.
        examples: The examples to build; their origin has ``rows``.
        value: Name of the new value.
        open_predictor: Maps the rows by column, and a device, to a predictor; called only if a part is
            missing, by each process of a pool.
        rows_at_once: Rows per part.
        device: Device of this process.
        pool: The processes that predict; None predicts in this one.
        progress: Called with the number of rows done and the total.
    """

    def make(folder: Path) -> dict[str, Any]:
        source = cast(Recorded | Scored, examples.origin).rows
        rows, values = open_rows(workspace, source), open_values(workspace, source)
        count = len(next(iter(rows.values())))
        opened = partial(_parts_of, open_predictor, rows, rows_at_once)

        def parts(starts: list[int]) -> Iterator[tuple[int, ValueArray]]:
            if pool is not None:
                return pool.parts(opened, starts)
            part = opened(device)
            return ((start, part(start)) for start in starts)

        outputs = in_parts(folder, count, rows_at_once, parts, progress)
        for name, array in {**rows, **values, value: outputs}.items():
            write_array(folder / f"{name}.npy", array)
        return {"rows": count}

    make_once(workspace, examples, make)


def _parts_of(
    open_predictor: Callable[[Mapping[str, IntArray], str], Predict],
    rows: Mapping[str, IntArray],
    rows_at_once: int,
    device: str,
) -> Part:
    predict = open_predictor(rows, device)
    return lambda start: predict(slice(start, start + rows_at_once))


def _predictor(workspace: Workspace, origin: Recorded, rows: Mapping[str, IntArray], device: str) -> Predict:
    scorer = encoder_in(workspace.path(origin.stage), device)
    assert isinstance(scorer, StudentScorer), "the objective of a recorded stage has logits"
    texts = [(open_texts(workspace, origin.rows.columns[name]), rows[name]) for name in scorer.columns]
    return lambda at: scorer.logits(*(table[ids[at]] for table, ids in texts))
