"""An objective for students in their teacher's space: a regression, and further terms with weights.

The regression and the cosine compare each text with the teacher's vector of that text: they are local means,
and DDP's mean of the gradients is that of the whole batch. The other two terms couple the texts of a batch
and are computed over the gathered batch, see `objectives.information_bottleneck`. A term with weight 0 is
not computed.

B  batch (here: the gathered batch)    D  dimension of the student and of the teacher
"""

from collections.abc import Mapping
from typing import ClassVar

from stillhouse.core.distributed import gather
from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.core.types import Batch, Encoding, Terms
from stillhouse.losses.cosine import CosineDistance
from stillhouse.losses.numerics import why_outside, widen
from stillhouse.losses.regression import MSE
from stillhouse.losses.relational import SimilarityMatrix, SpreadOut
from stillhouse.objectives.objective import Objective


class Alignment(Objective):
    """LEAF (arXiv:2509.12539): ``mse``, and ours: ``relational``, ``cosine``, ``spread``. Column ``text``.

    Nothing is learnt here: a student of another dimension ends in a layer of the teacher's.

    Args:
        student_dim: D.
        teacher_dim: D.
        mse: The regression on the vectors. It is the squared distance, which for vectors of length 1 is twice
            1 − cos, and so has the scale of the other terms.
        normalize: Regress normalised vectors on normalised vectors, as in `objectives.matching.Regression`;
            the other terms always do.
        relational_weight: Weight of the batch's matrix of cosines, fitted to the teacher's; 0 leaves it out.
        cosine_weight: Weight of 1 − cos(s, t), averaged over the texts; 0 leaves it out.
        spread_weight: Weight of the spread-out regulariser on the student's vectors; 0 leaves it out.

    Raises:
        BadInput: A weight is negative, or the dimensions differ and the regression learns no map.
    """

    acts_through: ClassVar[Mapping[str, str]] = {
        "mse": "mse",
        "normalize": "mse",
        "relational_weight": "relational",
        "cosine_weight": "cosine",
        "spread_weight": "spread",
    }

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        mse: Spec[MSE] = spec(MSE, projection=False, dimensions="sum"),
        normalize: bool = False,
        relational_weight: float = 0.0,
        cosine_weight: float = 0.0,
        spread_weight: float = 0.0,
    ) -> None:
        super().__init__()
        require(relational_weight >= 0, "relational_weight >= 0", relational_weight=relational_weight)
        require(cosine_weight >= 0, "cosine_weight >= 0", cosine_weight=cosine_weight)
        require(spread_weight >= 0, "spread_weight >= 0", spread_weight=spread_weight)
        self.mse = mse.build(student_dim=student_dim, teacher_dim=teacher_dim, normalize=normalize)
        self.relational_weight, self.relational = relational_weight, SimilarityMatrix()
        self.cosine_weight, self.half_cosine = cosine_weight, CosineDistance()
        self.spread_weight, self.spread = spread_weight, SpreadOut()

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``mse`` and the terms whose weight is not 0."""
        student_BD, teacher_BD = student["text"].embedding_BD, teacher["text"].embedding_BD
        terms = {"mse": self.mse(student_BD, teacher_BD)}
        if self.cosine_weight:
            terms["cosine"] = self.cosine_weight * 2 * self.half_cosine(student_BD, teacher_BD)
        if not self.relational_weight and not self.spread_weight:
            return terms
        gathered_BD = gather(widen(student_BD))
        if self.relational_weight:
            related = self.relational(gathered_BD, gather(widen(teacher_BD)))
            terms["relational"] = self.relational_weight * related
        if self.spread_weight:
            terms["spread"] = self.spread_weight * self.spread(gathered_BD, gather(batch.rows["text"]))
        return terms

    def why_outside(self) -> str:
        """Return nothing, unless the regression learns a map that is dropped."""
        return why_outside(self.mse.projection)

    def why_coupled(self) -> str:
        """Name the terms with a weight that compare the texts of a batch."""
        weights = {"relational_weight": self.relational_weight, "spread_weight": self.spread_weight}
        named = [name for name, weight in weights.items() if weight]
        return f"{' and '.join(named)} compare the texts of a batch with each other" if named else ""
