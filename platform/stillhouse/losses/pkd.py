"""PKD: patient knowledge distillation, which fits intermediate layers, not the last one alone.

Sun et al., Patient Knowledge Distillation for BERT Model Compression, EMNLP 2019, arXiv:1908.09355, §3.2.

B  batch    H  hidden size of the student    G  hidden size of the teacher
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.losses.numerics import aligning_layer, full_precision, require_pairs, unit, widen

MATCHES = ("skip", "last")


class PKD(nn.Module):
    """``L = 1/B Σ_i Σ_j ‖h^s_ij/‖h^s_ij‖ − h^t_ij/‖h^t_ij‖‖²`` over texts i and matched layers j (eq. 7).

    h is the [CLS] state in the paper, or a pooled state. The paper sums over the texts; the mean makes the
    learning rate independent of the batch size. The weight β belongs to the objective.

    The paper has no projection, since its teacher and student have one hidden size. Where the sizes differ,
    P_j h^s_ij takes the place of h^s_ij: a linear layer without bias for every matched layer j, which starts
    at a random orthogonal matrix and is trained with the student.

    Args:
        layers: Number of matched layers.
        student_size: H.
        teacher_size: G.

    Raises:
        BadInput: There are no layers.
    """

    def __init__(self, *, layers: int, student_size: int, teacher_size: int) -> None:
        super().__init__()
        require(layers >= 1, "number of matched layers >= 1", layers=layers)
        self.student_size, self.teacher_size = student_size, teacher_size
        self.projections = nn.ModuleList(
            aligning_layer(
                student_size,
                teacher_size,
                learnt=student_size != teacher_size,
                bias=False,
                identity_init=False,
            )
            for _ in range(layers)
        )

    def forward(self, student_BH: Sequence[Tensor], teacher_BG: Sequence[Tensor]) -> Tensor:
        """Sum the means over the batch over the layers.

        Args:
            student_BH: One state per text, for every matched layer.
            teacher_BG: The teacher's states, in the same order (see `layer_pairs`).

        Raises:
            BadInput: The numbers of layers differ, or the shapes do not fit.
        """
        require(
            len(student_BH) == len(teacher_BG) == len(self.projections),
            "number of matched layers of the teacher = number of the student's",
            layers=len(self.projections),
            student=len(student_BH),
            teacher=len(teacher_BG),
        )
        losses = []
        for project, student, teacher in zip(self.projections, student_BH, teacher_BG, strict=True):
            require_pairs(student, teacher, first_dim=self.student_size, second_dim=self.teacher_size)
            with full_precision(student):
                difference_BG = unit(project(widen(student))) - unit(widen(teacher))
                losses.append(difference_BG.square().sum(dim=1).mean())
        return torch.stack(losses).sum()


def layer_pairs(
    student_layers: int, teacher_layers: int, *, match: str = "skip", final: bool = False
) -> tuple[tuple[int, int], ...]:
    """Match the layers of the student with layers of the teacher.

    Args:
        student_layers: Number of layers of the student, S.
        teacher_layers: Number of layers of the teacher, T.
        match: ``skip``: layer j is fitted to layer j·⌊T/S⌋, every k-th. ``last``: to layer T − S + j.
        final: Match the student's last layer too. The paper leaves it to the output loss.

    Returns:
        Pairs (student's layer, teacher's layer), counted from 1 as in `Encoding.hidden`.

    Raises:
        BadInput: The rule is unknown, the teacher has fewer layers, or there is no layer to match.
    """
    require(match in MATCHES, f"match in {MATCHES}", match=match)
    require(
        1 <= student_layers <= teacher_layers,
        "1 <= layers of the student <= layers of the teacher",
        student_layers=student_layers,
        teacher_layers=teacher_layers,
    )
    matched = range(1, student_layers + final)
    require(
        len(matched) >= 1,
        "number of layers to match >= 1",
        student_layers=student_layers,
        remedy="Match the last layer too (final=True), or give the student more layers.",
    )
    step, first = teacher_layers // student_layers, teacher_layers - student_layers
    return tuple((layer, layer * step if match == "skip" else first + layer) for layer in matched)
