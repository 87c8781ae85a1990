"""Objectives that tell the teacher's vector of a text from those of other texts.

Every term couples the batch and is computed over the gathered batch, see `objectives.information_bottleneck`.

B  batch (here: the gathered batch)
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from stillhouse.core.distributed import gather
from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.core.types import Batch, Encoding, Terms
from stillhouse.losses.contrastive import InfoNCE, SupervisedInfoNCE
from stillhouse.losses.crd import CRD
from stillhouse.losses.memory_bank import MemoryBank
from stillhouse.losses.numerics import aligning_layer, why_outside, widen
from stillhouse.losses.regression import MSE
from stillhouse.objectives.information_bottleneck import gather_labelled
from stillhouse.objectives.objective import Objective


class ContrastiveDistillation(Objective):
    """CKD, the distillation of DistilCSE (arXiv:2112.05638), eq. 4–6: ``nce``. Column ``text``.

    Args:
        student_dim: D.
        teacher_dim: E.
        nce: The contrast, eq. 4 and 6. The paper does not print its temperature.
        bank: Teacher vectors of earlier batches that serve as further negatives (eq. 5; 65 536 in the paper);
            None for none. It must hold the global batch.
    """

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        nce: Spec[InfoNCE] = spec(InfoNCE, similarity="cosine", temperature=0.05),
        bank: Spec[MemoryBank] | None = None,
    ) -> None:
        super().__init__()
        self.nce = nce.build(student_dim=student_dim, teacher_dim=teacher_dim)
        self.bank = None if bank is None else bank.build(teacher_dim=teacher_dim)

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``nce``; in training mode, the batch is then pushed to the bank."""
        return {"nce": _with_bank(self.nce, self.bank, student, teacher, batch)}

    def why_outside(self) -> str:
        """Say that the learnt projection, if there is one, is dropped."""
        return why_outside(self.nce.projection)


class RepresentationContrast(Objective):
    """CRD (arXiv:1910.10699): ``crd``. Column ``text``.

    Args:
        student_dim: D.
        teacher_dim: E.
        crd: The loss, with the number of texts that are trained on.
        bank: Teacher vectors of earlier batches that serve as further negatives; None for none. It must hold
            the global batch.
    """

    def __init__(
        self, *, student_dim: int, teacher_dim: int, crd: Spec[CRD], bank: Spec[MemoryBank] | None = None
    ) -> None:
        super().__init__()
        self.crd = crd.build(student_dim=student_dim, teacher_dim=teacher_dim)
        self.bank = None if bank is None else bank.build(teacher_dim=teacher_dim)

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``crd``; in training mode, the batch is then pushed to the bank."""
        return {"crd": _with_bank(self.crd, self.bank, student, teacher, batch)}

    def why_outside(self) -> str:
        """Say that the student is compared in a space of the loss."""
        return "CRD compares through a head on either side, and both are dropped after the training"


class MetaDistillation(Objective):
    """A teacher head g that learns a contrastive task, and a student that follows it: ``teacher``, ``mse``.

    Columns ``query``, ``passage`` and, if there are hard negatives, ``negatives``, each with teacher vectors.
    Without a task, g stays as it is, and the columns may be any, such as ``text``.
    An adaptation of MetaKD (arXiv:2012.01266), see `methods.metakd`.

    Args:
        student_dim: D.
        teacher_dim: E.
        task: The contrastive task of the head; None for a head that has learnt before.
        mse: The student's regression on the vectors of the head.
        beta: Weight β of the regression.

    Raises:
        BadInput: β is not positive.
    """

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        task: Spec[SupervisedInfoNCE] | None = spec(SupervisedInfoNCE, share_negatives=True),
        mse: Spec[MSE] = spec(MSE),
        beta: float = 1.0,
    ) -> None:
        super().__init__()
        require(beta > 0, "beta > 0", beta=beta)
        self.beta = beta
        self.head = aligning_layer(teacher_dim, teacher_dim, learnt=True, bias=False, identity_init=True)
        self.task = None if task is None else task.build()
        self.head.requires_grad_(task is not None)
        self.mse = mse.build(student_dim=student_dim, teacher_dim=teacher_dim)

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``teacher``, the loss of the head if it learns, and ``mse``, the loss of the student."""
        targets = {column: self.head(widen(encoding.embedding_BD)) for column, encoding in teacher.items()}
        student_ND = torch.cat([student[column].embedding_BD for column in targets])
        target_NE = torch.cat(list(targets.values())).detach()
        follow = {"mse": self.beta * self.mse(student_ND, target_NE)}
        if self.task is None:
            return follow
        return {"teacher": self.task(*gather_labelled(targets, batch)), **follow}

    def why_outside(self) -> str:
        """Say that the student follows the head."""
        return "it follows a head over its teacher's vectors, which learns a task of its own"


def _with_bank(
    loss: InfoNCE | CRD,
    bank: MemoryBank | None,
    student: Mapping[str, Encoding],
    teacher: Mapping[str, Encoding],
    batch: Batch,
) -> Tensor:
    """Compute a loss over the gathered batch and the bank; in training mode, then push the batch."""
    student_BD = gather(widen(student["text"].embedding_BD))
    teacher_BE = gather(widen(teacher["text"].embedding_BD))
    rows_B = gather(batch.rows["text"])
    held = () if bank is None else (bank.vectors_ME, bank.rows_M)
    value: Tensor = loss(student_BD, teacher_BE, rows_B, *held)
    if bank is not None and bank.training:
        bank.push(loss.keys(teacher_BE), rows_B)
    return value
