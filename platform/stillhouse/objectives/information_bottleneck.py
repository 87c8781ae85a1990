"""The objectives of IBKD (arXiv:2311.05472): a contrastive term and a bottleneck term, each with its weight.

Terms that couple a batch are computed over the gathered batch: embeddings, pooled X, teacher vectors and row
ids of all ranks are concatenated, with gradient, before the loss. Every rank then has the same value, and
DDP's mean of the parameter gradients equals the gradient of a single process. A term with weight 0 is not
computed.

B  batch (here: the gathered batch)    X  what enters the student    S  what leaves it
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from stillhouse.core.distributed import gather
from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.core.types import Batch, Encoding, Terms
from stillhouse.losses.contrastive import InfoNCE, SupervisedInfoNCE
from stillhouse.losses.hsic import HSIC
from stillhouse.losses.numerics import why_outside, widen
from stillhouse.objectives.objective import Objective
from stillhouse.students import pooling

INPUT_LAYERS = {"embedding": 0, "penultimate": -2}
"""X by name: index of the hidden states whose mean over the tokens is taken."""
OUTPUTS = ("vector", "state")
TEXTS = ("queries", "all")
_ACTS_THROUGH = {"nce": "nce", **dict.fromkeys(("hsic", "beta", "input_layer", "output"), "hsic")}


class BottleneckTerm(nn.Module):
    """The term β · HSIC(X, S) of eq. 8 and 9: the student's vectors should keep little of their inputs.

    Args:
        hsic: The criterion.
        beta: Weight β; 0 leaves the term out.
        input_layer: X: ``embedding``, the output of the embedding layer averaged over the tokens, or
            ``penultimate``, the same average for the last layer but one.
        output: S: ``vector``, what the student returns, or ``state``, the last layer's output averaged over
            the tokens, which is before any projection and normalisation.

    Raises:
        BadInput: β is negative, the layer or the output is unknown, or `HSIC` refuses an argument.
    """

    def __init__(self, *, hsic: Spec[HSIC], beta: float, input_layer: str, output: str = "vector") -> None:
        super().__init__()
        require(beta >= 0, "beta >= 0", beta=beta)
        require(input_layer in INPUT_LAYERS, f"input_layer in {list(INPUT_LAYERS)}", input_layer=input_layer)
        require(output in OUTPUTS, f"output in {OUTPUTS}", output=output)
        self.beta, self.layer, self.output = beta, INPUT_LAYERS[input_layer], output
        self.hsic = hsic.build()

    def forward(self, encodings: Sequence[Encoding], gathered_BD: Tensor) -> Terms:
        """Return ``{"hsic": β · HSIC}``, or no term if β is 0.

        Args:
            encodings: Encodings of the local texts, by column; one HSIC over the texts of all columns.
            gathered_BD: Their vectors in this order, each column gathered over the ranks.
        """
        if self.beta == 0:
            return {}
        inputs_BH = torch.cat([gather(self._inputs(encoding)) for encoding in encodings])
        if self.output == "state":
            gathered_BD = torch.cat([gather(pooling.mean_of(encoding, -1)) for encoding in encodings])
        return {"hsic": self.beta * self.hsic(inputs_BH, gathered_BD)}

    def kernel_means(self, encodings: Sequence[Encoding]) -> dict[str, float]:
        """Return the off-diagonal means of both kernels over the local texts, without any communication."""
        if self.beta == 0:
            return {}
        inputs_BH = torch.cat([self._inputs(encoding) for encoding in encodings])
        student_BD = torch.cat([self._outputs(encoding) for encoding in encodings])
        inputs, student = self.hsic.kernel_means(inputs_BH, student_BD)
        return {"kernel_mean_inputs": inputs.item(), "kernel_mean_student": student.item()}

    def _inputs(self, encoding: Encoding) -> Tensor:
        assert len(encoding.hidden) >= 2, "the bottleneck reads the student's hidden states"
        return pooling.mean_of(encoding, self.layer)

    def _outputs(self, encoding: Encoding) -> Tensor:
        return encoding.embedding_BD if self.output == "vector" else pooling.mean_of(encoding, -1)


class InformationBottleneck(Objective):
    """IBKD's distillation, eq. 8: ``nce`` = InfoNCE(S, T) and ``hsic`` = β₁ · HSIC(X, S). Column ``text``.

    Args:
        student_dim: D.
        teacher_dim: E.
        nce: InfoNCE(S, T), eq. 5.
        hsic: HSIC(X, S), eq. 6 and 7.
        beta: Weight β₁; 0 leaves the bottleneck out.
        input_layer: X, see `BottleneckTerm`.
        output: S, see `BottleneckTerm`.
    """

    acts_through: ClassVar[Mapping[str, str]] = _ACTS_THROUGH

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        nce: Spec[InfoNCE] = spec(InfoNCE),
        hsic: Spec[HSIC] = spec(HSIC),
        beta: float = 1.0,
        input_layer: str = "embedding",
        output: str = "vector",
    ) -> None:
        super().__init__()
        self.nce = nce.build(student_dim=student_dim, teacher_dim=teacher_dim)
        self.bottleneck = BottleneckTerm(hsic=hsic, beta=beta, input_layer=input_layer, output=output)

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``nce`` and, unless β₁ is 0, ``hsic``."""
        student_BD = gather(widen(student["text"].embedding_BD))
        teacher_BE = gather(widen(teacher["text"].embedding_BD))
        nce = self.nce(student_BD, teacher_BE, gather(batch.rows["text"]))
        return {"nce": nce, **self.bottleneck([student["text"]], student_BD)}

    def diagnostics(self, student: Mapping[str, Encoding]) -> dict[str, float]:
        """Return metrics to log with the terms: the off-diagonal means of the kernels."""
        return self.bottleneck.kernel_means([student["text"]])

    def why_outside(self) -> str:
        """Say that W is dropped unless the student keeps it."""
        return why_outside(self.nce.projection)


class SupervisedBottleneck(Objective):
    """IBKD's fine-tuning, eq. 9: ``nce`` = InfoNCE_sup and ``hsic`` = β₂ · HSIC(X, S).

    Columns ``query``, ``passage`` and, if there are hard negatives, ``negatives`` (K per query). Passages and
    negatives are rows of one table, so that equal ids mean equal texts.

    By default, X and S of the HSIC are the *queries* alone. Eq. 6 is estimated from independent draws (x_i,
    s_i), and eq. 9 has one anchor x_i per instance. A passage and the mined negatives are chosen for their
    similarity to the query, so among them both kernels show the structure of the sampling, whatever S keeps
    of X. The authors' code takes all texts of the batch nevertheless.

    Args:
        nce: InfoNCE_sup, eq. 10.
        hsic: HSIC(X, S), eq. 6 and 7.
        beta: Weight β₂; 0 leaves the bottleneck out.
        input_layer: X, see `BottleneckTerm`.
        output: S, see `BottleneckTerm`.
        texts: Texts of the HSIC: ``queries``, or ``all``: queries, passages and hard negatives.

    Raises:
        BadInput: ``texts`` is unknown, or `BottleneckTerm` refuses an argument.
    """

    acts_through: ClassVar[Mapping[str, str]] = {**_ACTS_THROUGH, "texts": "hsic"}

    def __init__(
        self,
        *,
        nce: Spec[SupervisedInfoNCE] = spec(SupervisedInfoNCE),
        hsic: Spec[HSIC] = spec(HSIC),
        beta: float = 0.5,
        input_layer: str = "embedding",
        output: str = "vector",
        texts: str = "queries",
    ) -> None:
        super().__init__()
        require(texts in TEXTS, f"texts in {TEXTS}", texts=texts)
        self.columns = ("query", "passage", "negatives") if texts == "all" else ("query",)
        self.nce = nce.build()
        self.bottleneck = BottleneckTerm(hsic=hsic, beta=beta, input_layer=input_layer, output=output)

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``nce`` and, unless β₂ is 0, ``hsic``; the teacher is not read."""
        labelled = gather_labelled({name: encoding.embedding_BD for name, encoding in student.items()}, batch)
        vectors = [vectors.flatten(0, -2) for vectors in labelled[:3] if vectors is not None]
        gathered_BD = torch.cat(vectors[: len(self.columns)])
        return {"nce": self.nce(*labelled), **self.bottleneck(self._texts(student), gathered_BD)}

    def diagnostics(self, student: Mapping[str, Encoding]) -> dict[str, float]:
        """Return metrics to log with the terms: the off-diagonal means of the kernels."""
        return self.bottleneck.kernel_means(self._texts(student))

    def _texts(self, student: Mapping[str, Encoding]) -> list[Encoding]:
        """Return the encodings that the HSIC is taken over, in the order of `gather_labelled`."""
        return [student[column] for column in self.columns if column in student]


def gather_labelled(
    vectors: Mapping[str, Tensor], batch: Batch
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, Tensor | None]:
    """Gather the arguments of `SupervisedInfoNCE` over the ranks.

    Args:
        vectors: Local vectors by column; ``negatives``, if present, flattened row by row.
        batch: The local rows.

    Returns:
        Queries, passages, negatives (B, K, dimension) and the row ids of each; None without negatives.
    """
    query_BD, passage_BD = (gather(widen(vectors[column])) for column in ("query", "passage"))
    negatives_BKD = negative_rows_BK = None
    if "negatives" in vectors:
        rows_BK = batch.rows["negatives"]
        negatives_BKD = gather(widen(vectors["negatives"]).view(*rows_BK.shape, -1))
        negative_rows_BK = gather(rows_BK)
    query_rows_B, passage_rows_B = gather(batch.rows["query"]), gather(batch.rows["passage"])
    return query_BD, passage_BD, negatives_BKD, query_rows_B, passage_rows_B, negative_rows_BK
