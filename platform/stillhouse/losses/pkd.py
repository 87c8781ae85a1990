"""PKD: a student that follows its teacher's layers patiently, not its last one alone.

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

    h is the [CLS] state in the paper, or a pooled one. The paper sums over the texts; the mean keeps the
    learning rate apart from the batch size. Its weight β stands with the other terms of an objective.
    """

    def forward(self, student_BH: Sequence[Tensor], teacher_BH: Sequence[Tensor]) -> Tensor:
        """The sum over the layers of the mean over the batch.

        Args:
            student_BH: A state a text, of every matched layer.
            teacher_BH: The teacher's, in the same order (see `layer_pairs`).

        Raises:
            BadInput: No layer, another number of them on the two sides, or shapes that do not fit.
        """
        require(
            len(student_BH) == len(teacher_BH) >= 1,
            "as many layers of the teacher as of the student, at least one",
            student=len(student_BH),
            teacher=len(teacher_BH),
        )
        losses = []
        for student, teacher in zip(student_BH, teacher_BH, strict=True):
            require_pairs(student, teacher)
            _require_one_size(student.shape[1], teacher.shape[1])
            with full_precision(student):
                apart_BH = unit(widen(student)) - unit(widen(teacher))
                losses.append(apart_BH.square().sum(dim=1).mean())
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
    """Which layer of the teacher a layer of the student follows.

    Args:
        student_layers: S.
        teacher_layers: T.
        student_size: Hidden size of the student.
        teacher_size: Hidden size of the teacher.
        match: ``skip``: layer j follows layer j·⌊T/S⌋, every k-th. ``last``: layer j follows T − S + j.
        final: Match the student's last layer too. The paper leaves it out: it feeds the output loss.

    Returns:
        (student's layer, teacher's layer), counted from 1 as `Encoding.hidden` counts them.

    Raises:
        BadInput: An unknown match, a teacher with fewer layers or another hidden size, or nothing to match.
    """
    require(match in MATCHES, f"match in {MATCHES}", match=match)
    require(
        1 <= student_layers <= teacher_layers,
        "a teacher has the layers that its student follows",
        student_layers=student_layers,
        teacher_layers=teacher_layers,
    )
    _require_one_size(student_size, teacher_size)
    matched = range(1, student_layers + final)
    require(
        len(matched) >= 1,
        "there is a layer to match before the student's last one",
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
