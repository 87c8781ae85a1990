"""Precision, unit vectors and the learnable pieces that several losses share."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillhouse.core.errors import require


def widen(tensor: Tensor) -> Tensor:
    """The tensor in float32, or as it is where it is wider (float64)."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def full_precision(tensor: Tensor) -> torch.autocast:
    """A context without autocast: at a temperature of 0.05 a logit in bfloat16 is off by 0.04."""
    return torch.autocast(tensor.device.type, enabled=False)


def unit(vectors_BD: Tensor) -> Tensor:
    """Vectors of L2 norm 1; a zero vector stays zero, with a finite gradient."""
    return F.normalize(vectors_BD, dim=-1, eps=1e-6)


def aligning_layer(
    student_dim: int, teacher_dim: int, *, learnt: bool, bias: bool, identity_init: bool
) -> nn.Linear | nn.Identity:
    """What takes a student's vector into the teacher's space.

    Args:
        student_dim: D.
        teacher_dim: E.
        learnt: A linear layer; without it nothing is changed.
        bias: The layer has a bias, zero at first.
        identity_init: Start at the identity where the dimensions agree. Where they differ, and without the
            switch, the start is a random (semi-)orthogonal matrix, which keeps lengths and angles.

    Raises:
        BadInput: Dimensions that differ, or a bias, without a layer.
    """
    require(
        learnt or student_dim == teacher_dim,
        "student_dim = teacher_dim without a projection",
        student_dim=student_dim,
        teacher_dim=teacher_dim,
    )
    require(learnt or not bias, "a bias belongs to a projection", projection=learnt, bias=bias)
    if not learnt:
        return nn.Identity()
    layer = nn.Linear(student_dim, teacher_dim, bias=bias)
    if identity_init and student_dim == teacher_dim:
        nn.init.eye_(layer.weight)
    else:
        nn.init.orthogonal_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class Temperature(nn.Module):
    """Divides similarities by τ.

    Args:
        temperature: τ.
        learnable: Train log(1/τ), starting at ``temperature``. Nothing bounds it.

    Raises:
        BadInput: ``temperature`` is not positive.
    """

    def __init__(self, temperature: float, *, learnable: bool = False) -> None:
        super().__init__()
        require(temperature > 0, "temperature > 0", temperature=temperature)
        self.temperature = temperature
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature))) if learnable else None

    def forward(self, similarity: Tensor) -> Tensor:
        """Similarities to logits."""
        return similarity / self.temperature if self.log_scale is None else similarity * self.log_scale.exp()


def require_pairs(first_BD: Tensor, second_BE: Tensor, *, first_dim: int = 0, second_dim: int = 0) -> None:
    """Refuse two batches of vectors that are not row by row about the same texts.

    Raises:
        BadInput: Not two matrices, another number of rows, or another width than was built for (0 is any).
    """
    first, second = tuple(first_BD.shape), tuple(second_BE.shape)
    require(len(first) == len(second) == 2, "both sides are (batch, dimension)", first=first, second=second)
    require(first[0] == second[0], "both sides have one vector a text", first=first, second=second)
    require(first_dim in (0, first[1]), f"dimension of the first side = {first_dim}", first=first)
    require(second_dim in (0, second[1]), f"dimension of the second side = {second_dim}", second=second)


def require_batch(rows: int) -> None:
    """Refuse a batch in which nothing can be compared.

    Raises:
        BadInput: Fewer than two rows.
    """
    require(
        rows >= 2,
        "batch >= 2 for a loss that compares the texts of a batch",
        batch=rows,
        remedy="Raise the batch size, or accumulate fewer micro-batches.",
    )
