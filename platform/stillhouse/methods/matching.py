"""Objectives that match each text with what its own teacher says of it; no text depends on another.

Nothing is gathered: a term is the local mean, and DDP's mean of the gradients is that of the whole batch.
"""

from collections.abc import Mapping

from torch import nn

from stillhouse.losses.regression import MSE
from stillhouse.types import Batch, Encoding, Terms


class Regression(nn.Module):
    """The baseline of every paper here, DistilCSE eq. 2 and 3: ``mse``. Column ``text``.

    Args:
        student_dim: D.
        teacher_dim: E.
        projection: Learn M. None follows the paper: only where the dimensions differ.
        projection_bias: M has a bias.
        identity_init: M starts at the identity where the dimensions agree.
        dimensions: ``mean`` or ``sum`` over the dimensions of a vector.
    """

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        projection: bool | None = None,
        projection_bias: bool = False,
        identity_init: bool = True,
        dimensions: str = "mean",
    ) -> None:
        super().__init__()
        self.mse = MSE(
            student_dim=student_dim,
            teacher_dim=teacher_dim,
            projection=projection,
            bias=projection_bias,
            identity_init=identity_init,
            dimensions=dimensions,
        )

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``mse``."""
        return {"mse": self.mse(student["text"].embedding_BD, teacher["text"].embedding_BD)}
