"""Objectives that match each text with the teacher's encoding of that text; no text depends on another.

Nothing is gathered: a term is the local mean, and DDP's mean of the gradients is that of the whole batch.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
import torch

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.core.types import Batch, Encoding, FloatArray, LayeredModel, Terms
from stillhouse.losses.cosine import CosineDistance, PairCosineMSE
from stillhouse.losses.numerics import why_outside
from stillhouse.losses.pca import Projection, fit_pca
from stillhouse.losses.pkd import MATCHES, PKD, layer_pairs
from stillhouse.losses.regression import MSE
from stillhouse.objectives.objective import Objective
from stillhouse.students import pooling


class Regression(Objective):
    """The baseline of every paper here, DistilCSE eq. 2 and 3: ``mse``. Column ``text``.

    Args:
        student_dim: D.
        teacher_dim: E.
        mse: The regression.
        normalize: Regress normalised vectors on normalised vectors; otherwise neither side is normalised, and
            a student of unit vectors reaches the teacher's only if they are unit vectors too.
    """

    def __init__(
        self, *, student_dim: int, teacher_dim: int, mse: Spec[MSE] = spec(MSE), normalize: bool = False
    ) -> None:
        super().__init__()
        self.mse = mse.build(student_dim=student_dim, teacher_dim=teacher_dim, normalize=normalize)

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``mse``."""
        return {"mse": self.mse(student["text"].embedding_BD, teacher["text"].embedding_BD)}

    def why_outside(self) -> str:
        """Say that the learnt projection, if there is one, is dropped."""
        return why_outside(self.mse.projection)

    def why_coupled(self) -> str:
        """Return nothing: a term is a mean over texts."""
        return ""


class CosineApproximation(Objective):
    """SRA eq. 1: ``cosine``, half the cosine distance to the teacher's vector (D = E). Column ``text``."""

    def __init__(self) -> None:
        super().__init__()
        self.distance = CosineDistance()

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``cosine``."""
        return {"cosine": self.distance(student["text"].embedding_BD, teacher["text"].embedding_BD)}

    def why_outside(self) -> str:
        """Return nothing: the directions are those of the teacher's vectors."""
        return ""

    def why_coupled(self) -> str:
        """Return nothing: a term is a mean over texts."""
        return ""


class PairCosines(Objective):
    """BiLSTM_KD in SRA's Table 5: ``cosine`` of a pair, fitted to the teacher's. Columns ``text, other``."""

    def __init__(self) -> None:
        super().__init__()
        self.mse = PairCosineMSE()

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``cosine``."""
        sides = [model[column].embedding_BD for model in (student, teacher) for column in ("text", "other")]
        return {"cosine": self.mse(*sides)}


class ProjectedRegression(Objective):
    """HPD (arXiv:2203.07687): ``mse`` to the teacher's vector after PCA. Column ``text``.

    The projection is fitted by `fit_teacher` before the first step and kept with the weights.

    Args:
        student_dim: d', the dimension after the projection.
        teacher_dim: E.
        centred: Project the teacher's vectors minus their mean, as PCA does; otherwise the vectors as they
            are, as the published code does. The principal components are those around the mean in both
            cases.

    Raises:
        BadInput: The student's dimension exceeds the teacher's.
    """

    version: ClassVar[int] = 2

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
        """Fit the projection to the first 40 000 vectors of the store."""
        blocks = (np.asarray(block, dtype=np.float32) for block in vectors["text"])
        mean_E, components_DE = fit_pca(blocks, len(self.target.components_DE))
        if self.centred:
            self.target.mean_E.copy_(torch.from_numpy(mean_E))
        self.target.components_DE.copy_(torch.from_numpy(components_DE))

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``mse``."""
        return {"mse": self.mse(student["text"].embedding_BD, self.target(teacher["text"].embedding_BD))}

    def why_outside(self) -> str:
        """Say that the student learns the projected vectors."""
        return "it learns the principal components of its teacher's vectors (PCA), not the vectors"

    def why_coupled(self) -> str:
        """Return nothing: a term is a mean over texts."""
        return ""


class PatientRegression(Objective):
    """PKD (arXiv:1908.09355): ``mse`` of the vectors and ``layers`` = β · eq. 7. Column ``text``.

    The teacher is live, since its hidden states are read. `fit_layers` matches the layers; where those of
    student and teacher differ in size, it adds the projections of `losses.pkd.PKD`.

    Args:
        student_dim: D.
        teacher_dim: E.
        mse: The regression on the vectors. It is summed over the dimensions, as the term of the layers is;
            otherwise β would weigh that term against a mean of E values.
        normalize: Regress normalised vectors on normalised vectors, as in `Regression`; the states of the
            layers always are.
        beta: Weight β of the layers; 0 leaves them out.
        match: ``skip`` or ``last``, see `losses.pkd.layer_pairs`.
        final: Match the student's last layer too.

    Raises:
        BadInput: β is negative, or the rule for matching is unknown.
    """

    acts_through: ClassVar[Mapping[str, str]] = {
        "mse": "mse",
        **dict.fromkeys(("beta", "match", "final"), "layers"),
    }

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        mse: Spec[MSE] = spec(MSE, dimensions="sum"),
        normalize: bool = False,
        beta: float = 0.1,
        match: str = "skip",
        final: bool = False,
    ) -> None:
        super().__init__()
        require(beta >= 0, "beta >= 0", beta=beta)
        require(match in MATCHES, f"match in {MATCHES}", match=match)
        self.beta, self.match, self.final = beta, match, final
        self.mse = mse.build(student_dim=student_dim, teacher_dim=teacher_dim, normalize=normalize)
        self.pairs: tuple[tuple[int, int], ...] = ()

    def fit_layers(self, student: LayeredModel, teacher: LayeredModel) -> None:
        """Match the layers.

        Raises:
            BadInput: The teacher has fewer layers than the student, or there is no layer to match.
        """
        if self.beta == 0:
            return
        self.pairs = layer_pairs(student.depth, teacher.depth, match=self.match, final=self.final)
        self.patient = PKD(
            layers=len(self.pairs), student_size=student.hidden_size, teacher_size=teacher.hidden_size
        )

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``mse`` and, unless β is 0, ``layers``."""
        student_text, teacher_text = student["text"], teacher["text"]
        terms = {"mse": self.mse(student_text.embedding_BD, teacher_text.embedding_BD)}
        if self.beta == 0:
            return terms
        assert self.pairs, "the layers are matched before the first step"
        states = (
            [pooling.mean_of(student_text, layer) for layer, _ in self.pairs],
            [pooling.mean_of(teacher_text, layer) for _, layer in self.pairs],
        )
        return {**terms, "layers": self.beta * self.patient(*states)}

    def why_outside(self) -> str:
        """Say that the learnt projection, if there is one, is dropped."""
        return why_outside(self.mse.projection)
