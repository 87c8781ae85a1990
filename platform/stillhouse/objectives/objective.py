"""The base of objectives: the hooks that the training loop calls, which do nothing by default."""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from torch import nn

from stillhouse.core.types import Batch, Encoding, FloatArray, LayeredModel, Terms, ValueArray


class Objective(nn.Module):
    """The loss that a stage minimises, with all trainable parts outside the student (W, heads, a bank).

    An objective computes its terms in `forward`. It redefines the hooks that it needs; the others do nothing.
    One whose scores or logits are read also satisfies `core.types.ScoringObjective` or `LogitObjective`.

    Attributes:
        acts_through: Path of an argument, such as ``beta`` or ``loss.soft``, to the only term that it and
            whatever is below it change. An argument that is not listed changes the whole loss.
        few_directions: Whether vectors with few directions solve it, so that they are not a collapse.
    """

    acts_through: ClassVar[Mapping[str, str]] = {}
    few_directions: ClassVar[bool] = False

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Compute the weighted terms of the loss, each a scalar; their sum is the loss.

        Args:
            student: The student's encoding of each column.
            teacher: The teacher's encoding of each column that it has read.
            batch: Row ids and further values.
        """
        raise NotImplementedError

    def fit_teacher(self, vectors: Mapping[str, Iterable[FloatArray]]) -> None:
        """Fit to the teacher's stored vectors before the first step.

        Args:
            vectors: Blocks of vectors (n, E) by column, always in the same order.
        """

    def fit_layers(self, student: LayeredModel, teacher: LayeredModel) -> None:
        """Add what is trained between the layers of student and live teacher, before the first step."""

    def remarks(self, values: Mapping[str, ValueArray]) -> Iterator[str]:
        """Yield one line per thing that is unsuitable about the values of the examples.

        Args:
            values: Labels, scores or logits of all examples by name.
        """
        yield from ()

    def diagnostics(self, student: Mapping[str, Encoding]) -> dict[str, float]:
        """Compute figures that are logged and not minimised, from the local encoding of each column."""
        return {}

    def why_coupled(self) -> str:
        """Say why the texts of a batch do not count each by itself; empty if they do.

        Only then may batches be made by the lengths of texts.
        """
        return "its terms compare the texts of a batch with each other, or do not say that they do not"

    def why_outside(self) -> str:
        """Say why the student's vectors are not in the teacher's space; empty if they are.

        There the cosine of a student's vector with a teacher's means what that of two teacher's vectors does.
        """
        return f"its objective {type(self).__name__} does not fit its vectors to its teacher's"
