"""Stage 4 of the cross-lingual method against a loop in float64: eq. 5, eq. 6 on both sides, the sum."""

import math

import pytest
import torch
from rows import each_row
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.core.types import Batch, Encoding
from stillhouse.losses.regression import MSE
from stillhouse.objectives.parallel_sentences import ParallelContrast, ParallelRegression

PAIRS, DIM = 4, 6
EMPTY = Batch({}, {}, {})


def draw(seed: int) -> Tensor:
    return torch.randn(PAIRS, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


SOURCE, TARGET, TEACHER, OF_TARGET = (draw(seed) for seed in range(4))
STUDENT = {"source": Encoding(SOURCE), "target": Encoding(TARGET)}


def cosine(first: Tensor, second: Tensor) -> float:
    product = sum(a * b for a, b in zip(first.tolist(), second.tolist(), strict=True))
    return float(product / math.sqrt(first.square().sum().item() * second.square().sum().item()))


def squared(student: Tensor, teacher: Tensor) -> float:
    return sum((student[i, d].item() - teacher[i, d].item()) ** 2 for i in range(PAIRS) for d in range(DIM))


@each_row(("dimensions", "divisor"), [("sum", PAIRS), ("mean", PAIRS * DIM)])
@each_row("weight", [1.0, 0.25])
def test_stage_4_is_equation_7(dimensions: str, divisor: int, weight: float) -> None:
    objective = ParallelContrast(
        student_dim=DIM, teacher_dim=DIM, mse=spec(MSE, dimensions=dimensions), weight=weight
    )
    terms = objective(STUDENT, {"source": Encoding(TEACHER)}, EMPTY)
    expected = (squared(SOURCE, TEACHER) + squared(TARGET, TEACHER)) / divisor
    assert terms["mse"].item() == pytest.approx(expected, rel=1e-12)
    contrast = sum(
        (cosine(TEACHER[i], TEACHER[j]) - cosine(SOURCE[i], TARGET[j])) ** 2
        for i in range(PAIRS)
        for j in range(PAIRS)
    )
    assert terms["contrast"].item() == pytest.approx(weight * contrast / PAIRS**2, rel=1e-12)


def test_stage_3_fits_each_side_to_its_own_vector() -> None:
    objective = ParallelRegression(student_dim=DIM, teacher_dim=DIM, mse=spec(MSE, dimensions="sum"))
    teacher = {"source": Encoding(TEACHER), "target": Encoding(OF_TARGET)}
    expected = (squared(SOURCE, TEACHER) + squared(TARGET, OF_TARGET)) / PAIRS
    assert objective(STUDENT, teacher, EMPTY)["mse"].item() == pytest.approx(expected, rel=1e-12)


def test_a_contrast_can_be_left_out_but_has_no_weight_of_zero() -> None:
    alone = ParallelContrast(student_dim=DIM, teacher_dim=DIM, contrast=None)
    assert list(alone(STUDENT, {"source": Encoding(TEACHER)}, EMPTY)) == ["mse"]
    with pytest.raises(BadInput, match="weight of the contrast > 0"):
        ParallelContrast(student_dim=DIM, teacher_dim=DIM, weight=0.0)
