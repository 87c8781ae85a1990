"""Precision, unit vectors and the learnable parts that several losses share."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillhouse.core.errors import require


def widen(tensor: Tensor) -> Tensor:
    """Return the tensor in float32, or unchanged if it is wider (float64)."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def full_precision(tensor: Tensor) -> torch.autocast:
    """Return a context without autocast: at a temperature of 0.05, a logit in bfloat16 is off by 0.04."""
    return torch.autocast(tensor.device.type, enabled=False)


def unit(vectors_BD: Tensor) -> Tensor:
    """Scale vectors to L2 norm 1; a zero vector stays zero, with a finite gradient."""
    return F.normalize(vectors_BD, dim=-1, eps=1e-6)


def why_outside(layer: nn.Module) -> str:
    """Say why a student that is compared through a layer is not in the teacher's space; empty if it is.

    Args:
        layer: What `aligning_layer` returned.
    """
    if isinstance(layer, nn.Identity):
        return ""
    return "its loss compares through a linear layer, which is dropped after the training"


def aligning_layer(
    student_dim: int, teacher_dim: int, *, learnt: bool, bias: bool, identity_init: bool
) -> nn.Linear | nn.Identity:
    """Build the layer that maps a student's vector to the teacher's space.

    Args:
        student_dim: D.
        teacher_dim: E.
        learnt: A linear layer; otherwise the identity.
        bias: Whether the layer has a bias, which starts at zero.
        identity_init: Start at the identity if the dimensions agree. If they differ, or without the switch,
            the layer starts at a random (semi-)orthogonal matrix, which keeps lengths and angles.

    Raises:
        BadInput: Without a linear layer, the dimensions differ or a bias is set.
    """
    require(
        learnt or student_dim == teacher_dim,
        "student_dim = teacher_dim without a projection",
        student_dim=student_dim,
        teacher_dim=teacher_dim,
    )
    require(learnt or not bias, "bias = False without a projection", projection=learnt, bias=bias)
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
        learnable: Train log(1/τ), starting at ``temperature``; its value is not bounded.

    Raises:
        BadInput: τ ≤ 0.
    """

    def __init__(self, temperature: float, *, learnable: bool = False) -> None:
        super().__init__()
        require(temperature > 0, "temperature > 0", temperature=temperature)
        self.temperature = temperature
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature))) if learnable else None

    def forward(self, similarity: Tensor) -> Tensor:
        """Turn similarities into logits."""
        return similarity / self.temperature if self.log_scale is None else similarity * self.log_scale.exp()


def require_pairs(first_BD: Tensor, second_BE: Tensor, *, first_dim: int = 0, second_dim: int = 0) -> None:
    """Refuse two batches of vectors whose rows cannot belong to the same texts.

    Args:
        first_BD: The first batch.
        second_BE: The second batch.
        first_dim: Required dimension of the first batch; 0 allows any.
        second_dim: Required dimension of the second batch; 0 allows any.

    Raises:
        BadInput: These are not two matrices, or the numbers of rows or the dimensions differ.
    """
    first, second = tuple(first_BD.shape), tuple(second_BE.shape)
    require(
        len(first) == len(second) == 2, "shape of both sides = (batch, dimension)", first=first, second=second
    )
    require(first[0] == second[0], "one vector per text on both sides", first=first, second=second)
    require(first_dim in (0, first[1]), f"dimension of the first side = {first_dim}", first=first)
    require(second_dim in (0, second[1]), f"dimension of the second side = {second_dim}", second=second)


def require_batch(rows: int) -> None:
    """Refuse a batch in which nothing can be compared.

    Raises:
        BadInput: There are fewer than two rows.
    """
    require(
        rows >= 2,
        "batch >= 2 for a loss that compares the texts of a batch",
        batch=rows,
        remedy="Raise the batch size, or use fewer micro-batches per step.",
    )
