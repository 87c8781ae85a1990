"""The examples of each step: a function of the stage and the lengths of its texts, and of nothing else.

A step that is resumed, or divided over ranks, therefore reads what it would have read otherwise.
"""

import numpy as np
import numpy.typing as npt

from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import IntArray
from stillhouse.training.sampler import ExampleOrder, Order, ShardOrder
from stillhouse.training.table import TrainingTable
from stillhouse.training.teacher_space import dim_of
from stillhouse.values.data import AllRows
from stillhouse.values.stage import TEXTS_TOGETHER, Stage

WINDOW = 8192
"""Texts that are cut into batches at once where lengths are not grouped."""
_SHUFFLE = 7


class Batching:
    """The batches of a stage, each of them at random access.

    By default a batch is the next ``batch_size`` examples of the order. With ``length_window``, that many
    consecutive examples are sorted by length and cut into batches, and the batches are shuffled: the texts of
    a batch have similar lengths, and the lengths of the next batch remain random. With ``batch_tokens`` a
    batch has as many texts as fit when all are padded to its longest: a multiple of 8, so that it can be
    divided over ranks. Each example is read as often as by default; only the texts beside it differ.

    Raises:
        BadInput: There are no examples.
    """

    def __init__(self, stage: Stage, table: TrainingTable) -> None:
        self.stage, self.order = stage, _order(stage, table)
        self.steps = stage.steps
        self._cached: tuple[int, list[IntArray]] | None = None
        if not stage.by_length:
            return
        self.table = table
        self.span = _span(stage)
        if stage.batch_tokens:
            windows = range(-(-stage.examples_seen // self.span))
            sizes = [[len(batch) for batch in self._made(window)] for window in windows]
            self._ends = np.cumsum([size for window in sizes for size in window], dtype=np.int64)
            self._firsts = np.cumsum([0, *(len(window) for window in sizes)], dtype=np.int64)
            self.steps = len(self._ends)

    def rows(self, step: int) -> IntArray:
        """The examples of a step, over all ranks."""
        if not self.stage.by_length:
            return self.order.take(step * self.stage.batch_size, self.stage.batch_size)
        window, place = self._window_of(step)
        if self._cached is None or self._cached[0] != window:
            self._cached = (window, self._made(window))
        return self._cached[1][place]

    def ahead(self, step: int) -> IntArray | None:
        """Return what a step and those after it read of the teacher's shards.

        Returns:
            The first and the last example of each shard, (N, 2); None where shards are not read by windows.
        """
        if not isinstance(self.order, ShardOrder):
            return None
        if not self.stage.by_length:
            return self.order.runs(self.examples_after(step), self.stage.batch_size)
        return self.order.runs(self._window_of(step)[0] * self.span, self.span)

    def examples_after(self, step: int) -> int:
        """Number of examples that the first steps read."""
        if not self.stage.batch_tokens:
            return step * self.stage.batch_size
        return int(self._ends[step - 1]) if step else 0

    def _window_of(self, step: int) -> tuple[int, int]:
        """The window of lengths of a step, and its place there."""
        if not self.stage.batch_tokens:
            return divmod(step, self.span // self.stage.batch_size)
        window = int(np.searchsorted(self._firsts, step, side="right")) - 1
        return window, step - int(self._firsts[window])

    def _made(self, window: int) -> list[IntArray]:
        """The batches of a window, in the order in which they are read."""
        first = window * self.span
        rows = self.order.take(first, min(self.span, self.stage.examples_seen - first))
        lengths = self.table.lengths_of(rows)
        if self.stage.length_window:
            sorted_N = np.argsort(lengths, kind="stable")
            rows, lengths = rows[sorted_N], lengths[sorted_N]
        cuts = (
            _cuts(lengths, self.stage.batch_tokens)
            if self.stage.batch_tokens
            else np.arange(0, len(rows), self.stage.batch_size)
        )
        made = np.split(rows, cuts[1:])
        if not self.stage.length_window:
            return made
        order = np.random.default_rng((self.stage.seed, _SHUFFLE, window)).permutation(len(made))
        return [made[place] for place in order]


def _order(stage: Stage, table: TrainingTable) -> ExampleOrder:
    if stage.shard_window and table.stores:
        return ShardOrder(table.shard_starts(), len(table), stage.seed, stage.shard_window)
    return Order(len(table), stage.seed)


def _span(stage: Stage) -> int:
    """Number of examples of a window: whole batches."""
    if stage.batch_tokens:
        return max(1, (stage.length_window or WINDOW) // TEXTS_TOGETHER) * TEXTS_TOGETHER
    return max(1, stage.length_window // stage.batch_size) * stage.batch_size


def _cuts(lengths_N: IntArray, most: int) -> npt.NDArray[np.int64]:
    """Return where batches begin that have at most ``most`` tokens, padding included, in multiples of 8."""
    longest = lengths_N.reshape(-1, TEXTS_TOGETHER).max(axis=1)
    cuts, texts, padded_to = [0], 0, 0
    for unit, length in enumerate(longest):
        padded_to = max(padded_to, int(length))
        if texts and (texts + TEXTS_TOGETHER) * padded_to > most:
            cuts.append(unit * TEXTS_TOGETHER)
            texts, padded_to = 0, int(length)
        texts += TEXTS_TOGETHER
    return np.array(cuts, np.int64)


def check_sharding(plan: Stage) -> None:
    """Refuse windows of shards for a plan whose stages do not read all rows of their texts.

    Raises:
        BadInput: With the stage.
    """
    asked = [stage for stage in plan.chain() if stage.shard_window and stage.stores]
    require(
        bool(asked),
        "windows of shards (budget.shard_window) must have a stage that reads a teacher's vectors",
        stages=[stage.label for stage in plan.chain()],
        remedy="Leave the field out.",
    )
    for stage in asked:
        require(
            isinstance(stage.examples.origin, AllRows),
            "windows of shards (budget.shard_window) must be of all rows of the texts",
            stage=stage.label,
            examples=stage.examples.label,
            remedy="Leave the field out: such examples are few.",
        )


def check_batching(plan: Stage, teacher_dim: int) -> None:
    """Refuse batches by length for a plan with a stage whose loss compares the texts of a batch.

    Raises:
        BadInput: With the stage, and the reason.
    """
    asked = [stage for stage in plan.chain() if stage.by_length]
    labels = [stage.label for stage in plan.chain()]
    require(
        bool(asked),
        "batches by length (budget.batch_tokens, budget.length_window) must have a stage on plain text",
        stages=labels,
        remedy="These keep their batches in any case: leave both fields out.",
    )
    for stage in asked:
        columns = list(stage.examples.columns)
        require(
            len(columns) == 1,
            "batches by length must be of single texts (budget.batch_tokens, budget.length_window)",
            stage=stage.label,
            columns=columns,
        )
        objective = stage.objective.build(student_dim=dim_of(stage.student), teacher_dim=teacher_dim)
        if reason := objective.why_coupled():
            raise BadInput(
                "batches by length (budget.batch_tokens, budget.length_window) must have a loss in which "
                f"each text counts by itself, but the stage {stage.label} has none: {reason}. Among texts of "
                "one length it would be another loss. Leave both fields out, or take mse or leaf."
            )
