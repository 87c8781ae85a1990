"""Objectives that match each text with what the teacher says of that text; no text depends on another.

Nothing is gathered: a term is the local mean, and DDP's mean of the gradients is that of the whole batch.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import nn

from stillhouse.core.errors import require
from stillhouse.core.types import Batch, Encoding, FloatArray, Terms
from stillhouse.losses.cosine import CosineDistance, PairCosineMSE
from stillhouse.losses.pca import Projection, fit_pca
from stillhouse.losses.pkd import PKD, layer_pairs
from stillhouse.losses.regression import MSE
from stillhouse.students import pooling


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


class CosineApproximation(nn.Module):
    """SRA eq. 1: ``cosine``, half the distance to the teacher's vector, of one dimension. Column ``text``."""

    def __init__(self) -> None:
        super().__init__()
        self.distance = CosineDistance()

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``cosine``."""
        return {"cosine": self.distance(student["text"].embedding_BD, teacher["text"].embedding_BD)}


class PairCosines(nn.Module):
    """BiLSTM_KD of SRA's Table 5: ``cosine``, to the teacher's of the pair. Columns ``text``, ``other``."""

    def __init__(self) -> None:
        super().__init__()
        self.mse = PairCosineMSE()

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``cosine``."""
        sides = [said[column].embedding_BD for said in (student, teacher) for column in ("text", "other")]
        return {"cosine": self.mse(*sides)}


class ProjectedRegression(nn.Module):
    """HPD (arXiv:2203.07687): ``mse`` to the teacher's vector after PCA. Column ``text``.

    The projection is fitted by `fit_teacher` before the first step, and kept with the weights.

    Args:
        student_dim: d', the dimension after the projection.
        teacher_dim: E.
        centred: Fit with the mean subtracted; the published code does not.
    """

    def __init__(self, *, student_dim: int, teacher_dim: int, centred: bool = True) -> None:
        super().__init__()
        require(
            student_dim <= teacher_dim,
            "dimension of the student <= dimension of the teacher",
            student_dim=student_dim,
            teacher_dim=teacher_dim,
        )
        self.centred = centred
        self.target = Projection(
            np.zeros(teacher_dim, np.float32), np.eye(student_dim, teacher_dim, dtype=np.float32)
        )
        self.mse = MSE(student_dim=student_dim, teacher_dim=student_dim)

    def fit_teacher(self, vectors: Mapping[str, Iterable[FloatArray]]) -> None:
        """Fit the projection on the first 40 000 vectors of the store, which come block by block."""
        blocks = (np.asarray(block, dtype=np.float32) for block in vectors["text"])
        mean_E, components_DE = fit_pca(blocks, len(self.target.components_DE), centred=self.centred)
        self.target.mean_E.copy_(torch.from_numpy(mean_E))
        self.target.components_DE.copy_(torch.from_numpy(components_DE))

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``mse``."""
        return {"mse": self.mse(student["text"].embedding_BD, self.target(teacher["text"].embedding_BD))}


class PatientRegression(nn.Module):
    """PKD (arXiv:1908.09355): ``mse`` of the vectors and ``layers`` = β · eq. 7. Column ``text``.

    The teacher runs along and gives its hidden states.

    Args:
        student_dim: D.
        teacher_dim: E.
        beta: β; 0 leaves the layers out.
        match: ``skip`` or ``last``, see `losses.pkd.layer_pairs`.
        final: Match the student's last layer too.
    """

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        beta: float = 0.1,
        match: str = "skip",
        final: bool = False,
    ) -> None:
        super().__init__()
        require(beta >= 0, "beta >= 0", beta=beta)
        require(match in ("skip", "last"), "match in (skip, last)", match=match)
        self.beta, self.match, self.final = beta, match, final
        # Summed over the dimensions, as the layers' term is: else β would weigh against a mean of E values.
        self.mse = MSE(student_dim=student_dim, teacher_dim=teacher_dim, dimensions="sum")
        self.patient = PKD()

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``mse`` and, unless β is 0, ``layers``."""
        mine, theirs = student["text"], teacher["text"]
        terms = {"mse": self.mse(mine.embedding_BD, theirs.embedding_BD)}
        if self.beta == 0:
            return terms
        pairs = layer_pairs(
            len(mine.hidden) - 1,
            len(theirs.hidden) - 1,
            student_size=pooling.mean_of(mine, 0).shape[-1],
            teacher_size=pooling.mean_of(theirs, 0).shape[-1],
            match=self.match,
            final=self.final,
        )
        states = (
            [pooling.mean_of(mine, s) for s, _ in pairs],
            [pooling.mean_of(theirs, t) for _, t in pairs],
        )
        return {**terms, "layers": self.beta * self.patient(*states)}
