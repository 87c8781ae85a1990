"""Objectives that tell the teacher's vector of a text from those of other texts.

Every term couples the batch, and is computed over the gathered one: see `objectives.bottleneck`.

B  batch (here: the gathered one)
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stillhouse.core.distributed import gather
from stillhouse.core.errors import require
from stillhouse.core.types import Batch, Encoding, Terms
from stillhouse.losses.contrastive import InfoNCE, SupervisedInfoNCE
from stillhouse.losses.crd import CRD
from stillhouse.losses.memory import MemoryBank
from stillhouse.losses.numerics import aligning_layer, widen
from stillhouse.losses.regression import MSE
from stillhouse.objectives.bottleneck import gathered_labelled

_PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class ContrastiveDistillation(nn.Module):
    """CKD, the distillation of DistilCSE (arXiv:2112.05638), eq. 4–6: ``nce``. Column ``text``.

    Args:
        student_dim: D.
        teacher_dim: E.
        temperature: τ of eq. 4, which the paper does not print.
        bank_size: Teacher vectors of earlier batches kept as negatives (65 536 in the paper); 0 is no bank.
            Must hold the global batch.
        bank_precision: ``float32`` or ``bfloat16``: what the bank is held in and multiplied in.
        projection: Learn M. None follows the paper: only where the dimensions differ.
        projection_bias: M has a bias.
        identity_init: M starts at the identity where the dimensions agree.
        learnable_scale: Train 1/τ too, as the authors' code does, from τ = 1/e.
        mask_duplicates: Equal texts are no negatives of each other.
    """

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        temperature: float = 0.05,
        bank_size: int = 0,
        bank_precision: str = "float32",
        projection: bool | None = None,
        projection_bias: bool = False,
        identity_init: bool = True,
        learnable_scale: bool = False,
        mask_duplicates: bool = True,
    ) -> None:
        super().__init__()
        require(bank_size >= 0, "bank_size >= 0", bank_size=bank_size)
        require(
            bank_precision in _PRECISIONS,
            f"bank_precision in {(*_PRECISIONS,)}",
            bank_precision=bank_precision,
        )
        self.nce = InfoNCE(
            student_dim=student_dim,
            teacher_dim=teacher_dim,
            temperature=temperature,
            similarity="cosine",
            projection=projection,
            identity_init=identity_init,
            bias=projection_bias,
            learnable_scale=learnable_scale,
            mask_duplicates=mask_duplicates,
        )
        dtype = _PRECISIONS[bank_precision]
        self.bank = MemoryBank(bank_size, teacher_dim, dtype) if bank_size else None

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``nce``; while training, the bank then takes in this batch."""
        return {"nce": _beside_bank(self.nce, self.bank, student, teacher, batch)}


class RepresentationContrast(nn.Module):
    """CRD (arXiv:1910.10699): ``crd``. Column ``text``.

    Args:
        student_dim: D.
        teacher_dim: E.
        items: Texts that are trained on.
        temperature: τ of the critic.
        dim: Of the space in which the critic compares.
        estimated: The critic's constant Z is estimated from the first batch; else it is 1.
        bank_size: Teacher vectors of earlier batches kept as negatives; 0 is no bank. Must hold the batch.
    """

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        items: int,
        temperature: float = 0.07,
        dim: int = 128,
        estimated: bool = False,
        bank_size: int = 0,
    ) -> None:
        super().__init__()
        require(bank_size >= 0, "bank_size >= 0", bank_size=bank_size)
        self.crd = CRD(
            student_dim=student_dim,
            teacher_dim=teacher_dim,
            items=items,
            dim=dim,
            temperature=temperature,
            estimated=estimated,
        )
        self.bank = MemoryBank(bank_size, teacher_dim) if bank_size else None

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``crd``; while training, the bank then takes in this batch."""
        return {"crd": _beside_bank(self.crd, self.bank, student, teacher, batch)}


class MetaDistillation(nn.Module):
    """A teacher's head g that learns a contrastive task, and a student that follows it: ``teacher``, ``mse``.

    Columns ``query``, ``passage`` and, where there are any, ``negatives``, each with the teacher's vectors.
    An adaptation of MetaKD (arXiv:2012.01266), see `methods.metakd`.

    Args:
        student_dim: D.
        teacher_dim: E.
        temperature: τ of the head's task.
        beta: β, weight of the student's regression on the head's vectors.
    """

    def __init__(
        self, *, student_dim: int, teacher_dim: int, temperature: float = 0.05, beta: float = 1.0
    ) -> None:
        super().__init__()
        require(beta > 0, "beta > 0", beta=beta)
        self.beta = beta
        self.head = aligning_layer(teacher_dim, teacher_dim, learnt=True, bias=False, identity_init=True)
        self.task = SupervisedInfoNCE(temperature=temperature, share_negatives=True)
        self.mse = MSE(student_dim=student_dim, teacher_dim=teacher_dim)

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``teacher``, the head's own loss, and ``mse``, the student's."""
        headed = {column: self.head(widen(said.embedding_BD)) for column, said in teacher.items()}
        said_ND = torch.cat([student[column].embedding_BD for column in headed])
        target_NE = torch.cat(list(headed.values())).detach()
        task = self.task(*gathered_labelled(headed, batch))
        return {"teacher": task, "mse": self.beta * self.mse(said_ND, target_NE)}


def _beside_bank(
    loss: InfoNCE | CRD,
    bank: MemoryBank | None,
    student: Mapping[str, Encoding],
    teacher: Mapping[str, Encoding],
    batch: Batch,
) -> Tensor:
    """A loss over the gathered batch and the bank; while training, the bank then takes in this batch."""
    student_BD = gather(widen(student["text"].embedding_BD))
    teacher_BE = gather(widen(teacher["text"].embedding_BD))
    rows_B = gather(batch.rows["text"])
    held = () if bank is None else (bank.vectors_ME, bank.rows_M)
    value: Tensor = loss(student_BD, teacher_BE, rows_B, *held)
    if bank is not None and bank.training:
        bank.push(loss.keys(teacher_BE), rows_B)
    return value
