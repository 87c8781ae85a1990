"""PKD: patient knowledge distillation, which fits intermediate layers, not the last one alone.

Sun et al., Patient Knowledge Distillation for BERT Model Compression, EMNLP 2019, arXiv:1908.09355, §3.2.

B  batch    H  hidden size, the same on both sides
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.losses.numerics import full_precision, require_pairs, unit, widen

MATCHES = ("skip", "last")


class PKD(nn.Module):
    """``L = 1/B Σ_i Σ_j ‖h^s_ij/‖h^s_ij‖ − h^t_ij/‖h^t_ij‖‖²`` over texts i and matched layers j (eq. 7).

    h is the [CLS] state in the paper, or a pooled state. The paper sums over the texts; the mean makes the
    learning rate independent of the batch size. The weight β belongs to the objective.
    """

    def forward(self, student_BH: Sequence[Tensor], teacher_BH: Sequence[Tensor]) -> Tensor:
        """Sum the means over the batch over the layers.

        Args:
            student_BH: One state per text, for every matched layer.
            teacher_BH: The teacher's states, in the same order (see `layer_pairs`).

        Raises:
            BadInput: There are no layers, their numbers differ, or the shapes do not fit.
        """
        require(
            len(student_BH) == len(teacher_BH) >= 1,
            "number of matched layers of the teacher = number of the student's >= 1",
            student=len(student_BH),
            teacher=len(teacher_BH),
        )
        losses = []
        for student, teacher in zip(student_BH, teacher_BH, strict=True):
            require_pairs(student, teacher)
            _require_one_size(student.shape[1], teacher.shape[1])
            with full_precision(student):
                difference_BH = unit(widen(student)) - unit(widen(teacher))
                losses.append(difference_BH.square().sum(dim=1).mean())
        return torch.stack(losses).sum()


def layer_pairs(
    student_layers: int,
    teacher_layers: int,
    *,
    student_size: int,
    teacher_size: int,
    match: str = "skip",
    final: bool = False,
) -> tuple[tuple[int, int], ...]:
    """Match the layers of the student with layers of the teacher.

    Args:
        student_layers: Number of layers of the student, S.
        teacher_layers: Number of layers of the teacher, T.
        student_size: Hidden size of the student.
        teacher_size: Hidden size of the teacher.
        match: ``skip``: layer j is fitted to layer j·⌊T/S⌋, every k-th. ``last``: to layer T − S + j.
        final: Match the student's last layer too. The paper leaves it to the output loss.

    Returns:
        Pairs (student's layer, teacher's layer), counted from 1 as in `Encoding.hidden`.

    Raises:
        BadInput: The rule is unknown, the teacher has fewer layers or another hidden size, or there is no
            layer to match.
    """
    require(match in MATCHES, f"match in {MATCHES}", match=match)
    require(
        1 <= student_layers <= teacher_layers,
        "1 <= layers of the student <= layers of the teacher",
        student_layers=student_layers,
        teacher_layers=teacher_layers,
    )
    _require_one_size(student_size, teacher_size)
    matched = range(1, student_layers + final)
    require(
        len(matched) >= 1,
        "number of layers to match >= 1",
        student_layers=student_layers,
        remedy="Match the last layer too (final=True), or give the student more layers.",
    )
    step, first = teacher_layers // student_layers, teacher_layers - student_layers
    return tuple((layer, layer * step if match == "skip" else first + layer) for layer in matched)


def _require_one_size(student_size: int, teacher_size: int) -> None:
    require(
        student_size == teacher_size,
        "hidden size of the student = hidden size of the teacher",
        student_size=student_size,
        teacher_size=teacher_size,
        remedy="PKD has no projection: take a student that keeps the teacher's hidden size.",
    )
