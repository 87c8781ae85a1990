"""IBKD's objectives: losses joined into the weighted terms of a stage.

Every term that couples a batch is computed over the gathered batch: embeddings, pooled X, teacher's vectors
and row ids of all ranks are concatenated, with gradient, before the loss. Every rank then has the same value,
and DDP's mean of the parameters' gradients is that of one process. A term of weight 0 is not computed.

B  batch (here: the gathered one)    X  what enters the student, S  what leaves it
"""

from collections.abc import Mapping

from torch import Tensor, nn

from stillhouse.core.distributed import gather
from stillhouse.core.types import Batch, Encoding, Terms
from stillhouse.losses.contrastive import InfoNCE, SupervisedInfoNCE
from stillhouse.losses.numerics import widen
from stillhouse.objectives.hsic_term import Bottleneck


class InformationBottleneck(nn.Module):
    """IBKD's distillation, eq. 8: ``nce`` = InfoNCE(S, T) and ``hsic`` = β₁ · HSIC(X, S). Column ``text``.

    Args:
        student_dim: D.
        teacher_dim: E.
        temperature: τ of eq. 5.
        beta: β₁.
        similarity: ``bilinear`` (sᵀWt) or ``cosine`` (of the projected student, as the authors' code has it).
        normalize_similarity: L2-normalise s and t before W.
        projection: Learn W; without it the dimensions agree.
        identity_init: W starts at the identity where the dimensions agree.
        projection_bias: W has a bias.
        learnable_scale: Train 1/τ too.
        mask_duplicates: Equal texts of a batch are no negatives of each other.
        input_layer: X, see `Bottleneck`; so are the rest.
        gamma: γ of eq. 7.
        kernel: ``rbf``, ``imq`` or ``linear``.
        bandwidth: ``fixed`` or ``median``.
        estimator: ``biased_l2`` or ``biased``.
        normalize: L2-normalise X and S before the kernels.
        detach_inputs: No gradient into X.
    """

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        temperature: float = 0.1,
        beta: float = 1.0,
        similarity: str = "bilinear",
        normalize_similarity: bool = True,
        projection: bool = True,
        identity_init: bool = True,
        projection_bias: bool = False,
        learnable_scale: bool = False,
        mask_duplicates: bool = True,
        input_layer: str = "embedding",
        gamma: float = 0.5,
        kernel: str = "rbf",
        bandwidth: str = "fixed",
        estimator: str = "biased_l2",
        normalize: bool = True,
        detach_inputs: bool = False,
    ) -> None:
        super().__init__()
        self.nce = InfoNCE(
            student_dim=student_dim,
            teacher_dim=teacher_dim,
            temperature=temperature,
            similarity=similarity,
            normalize=normalize_similarity,
            projection=projection,
            identity_init=identity_init,
            bias=projection_bias,
            learnable_scale=learnable_scale,
            mask_duplicates=mask_duplicates,
        )
        self.bottleneck = Bottleneck(
            beta=beta,
            input_layer=input_layer,
            gamma=gamma,
            kernel=kernel,
            bandwidth=bandwidth,
            estimator=estimator,
            normalize=normalize,
            detach_inputs=detach_inputs,
        )

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``nce`` and, unless β₁ is 0, ``hsic``."""
        student_BD = gather(widen(student["text"].embedding_BD))
        teacher_BE = gather(widen(teacher["text"].embedding_BD))
        nce = self.nce(student_BD, teacher_BE, gather(batch.rows["text"]))
        return {"nce": nce, **self.bottleneck(student["text"], student_BD)}

    def diagnostics(self, student: Mapping[str, Encoding]) -> dict[str, float]:
        """Figures to log beside the terms: the kernels' means off the diagonal."""
        return self.bottleneck.kernel_means(student["text"])


class SupervisedBottleneck(nn.Module):
    """IBKD's fine-tuning, eq. 9: ``nce`` = InfoNCE_sup and ``hsic`` = β₂ · HSIC(X, S).

    Columns ``query``, ``passage`` and, where there are any, ``negatives`` (K a query). Passages and negatives
    are rows of one table, so that equal ids are equal texts.

    X and S of the HSIC are the *queries* alone. Eq. 6 is estimated from independent draws (x_i, s_i), and
    eq. 9 has one anchor x_i an instance. A passage and the mined negatives are chosen by their likeness to
    the query, so among them both kernels show the structure of the sampling, whatever S keeps of X.

    Args:
        temperature: τ of eq. 10.
        beta: β₂.
        similarity: ``cosine`` or ``dot``.
        share_negatives: An anchor also sees the negatives of the others; eq. 10 takes its own.
        learnable_scale: Train 1/τ too.
        mask_duplicates: A passage of the same query is no negative.
        input_layer: X, see `Bottleneck`; so are the rest.
        gamma: γ of eq. 7.
        kernel: ``rbf``, ``imq`` or ``linear``.
        bandwidth: ``fixed`` or ``median``.
        estimator: ``biased_l2`` or ``biased``.
        normalize: L2-normalise X and S before the kernels.
        detach_inputs: No gradient into X.
    """

    def __init__(
        self,
        *,
        temperature: float = 0.05,
        beta: float = 0.5,
        similarity: str = "cosine",
        share_negatives: bool = False,
        learnable_scale: bool = False,
        mask_duplicates: bool = True,
        input_layer: str = "embedding",
        gamma: float = 0.5,
        kernel: str = "rbf",
        bandwidth: str = "fixed",
        estimator: str = "biased_l2",
        normalize: bool = True,
        detach_inputs: bool = False,
    ) -> None:
        super().__init__()
        self.nce = SupervisedInfoNCE(
            temperature=temperature,
            similarity=similarity,
            share_negatives=share_negatives,
            learnable_scale=learnable_scale,
            mask_duplicates=mask_duplicates,
        )
        self.bottleneck = Bottleneck(
            beta=beta,
            input_layer=input_layer,
            gamma=gamma,
            kernel=kernel,
            bandwidth=bandwidth,
            estimator=estimator,
            normalize=normalize,
            detach_inputs=detach_inputs,
        )

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``nce`` and, unless β₂ is 0, ``hsic``; no teacher is asked."""
        labelled = gathered_labelled({name: said.embedding_BD for name, said in student.items()}, batch)
        return {"nce": self.nce(*labelled), **self.bottleneck(student["query"], labelled[0])}

    def diagnostics(self, student: Mapping[str, Encoding]) -> dict[str, float]:
        """Figures to log beside the terms: the kernels' means off the diagonal."""
        return self.bottleneck.kernel_means(student["query"])


def gathered_labelled(
    vectors: Mapping[str, Tensor], batch: Batch
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, Tensor | None]:
    """What `SupervisedInfoNCE` takes, of all ranks: queries, passages, K negatives each, and their row ids.

    Args:
        vectors: Column to local vectors; ``negatives``, where there are any, flattened row by row.
        batch: The local rows.
    """
    query_BD, passage_BD = (gather(widen(vectors[column])) for column in ("query", "passage"))
    negatives_BKD = negative_rows_BK = None
    if "negatives" in vectors:
        rows_BK = batch.rows["negatives"]
        negatives_BKD = gather(widen(vectors["negatives"]).view(*rows_BK.shape, -1))
        negative_rows_BK = gather(rows_BK)
    query_rows_B, passage_rows_B = gather(batch.rows["query"]), gather(batch.rows["passage"])
    return query_BD, passage_BD, negatives_BKD, query_rows_B, passage_rows_B, negative_rows_BK
