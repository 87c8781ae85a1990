"""Classification heads over one or two vectors, and the losses that fine-tune them.

SRA (Wu et al., ACL 2020, section 3.2), after GLUE's BiLSTM baseline; the loss on logits is that of Tang et
al., 2019, arXiv:1903.12136.

B  batch    C  classes    D  dimension of a text's vector
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.losses.numerics import full_precision, require_pairs, widen

UNLABELLED = -1
"""Label of a row without one: only the teacher's logits are known."""


class ClassificationHead(nn.Module):
    """An MLP with one hidden ReLU layer over h, or over ``[h, h', |h − h'|, h ∘ h']`` for a pair.

    Args:
        student_dim: D.
        classes: C.
        pair: Whether the texts come in pairs.
        hidden: Units of the hidden layer.
        dropout: Dropout of the input and of the hidden layer.

    Raises:
        BadInput: A value is out of range.
    """

    def __init__(
        self, *, student_dim: int, classes: int, pair: bool, hidden: int = 256, dropout: float = 0.0
    ) -> None:
        super().__init__()
        require(classes >= 2, "classes >= 2", classes=classes)
        require(hidden >= 1, "hidden >= 1", hidden=hidden)
        require(0 <= dropout < 1, "0 <= dropout < 1", dropout=dropout)
        self.student_dim, self.classes, self.pair = student_dim, classes, pair
        self.layers = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(student_dim * (4 if pair else 1), hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )

    def forward(self, first_BD: Tensor, second_BD: Tensor | None = None) -> Tensor:
        """Compute the logits, (B, C).

        Args:
            first_BD: The texts, or the first texts of the pairs.
            second_BD: The second texts of the pairs.

        Raises:
            BadInput: The shapes do not fit, or the number of texts per row is not what the head reads.
        """
        texts = 1 if second_BD is None else 2
        require(texts == (2 if self.pair else 1), f"texts per row = {2 if self.pair else 1}", texts=texts)
        other_BD = first_BD if second_BD is None else second_BD
        require_pairs(first_BD, other_BD, first_dim=self.student_dim, second_dim=self.student_dim)
        with full_precision(first_BD):
            features = widen(first_BD) if second_BD is None else compared(first_BD, second_BD)
            logits_BC: Tensor = self.layers(features)
            return logits_BC

    @torch.no_grad()
    def score(self, first_BD: Tensor, second_BD: Tensor | None = None) -> Tensor:
        """Compute the probabilities of the classes, (B, C), without gradient and without dropout.

        Raises:
            BadInput: As `forward`.
        """
        before = self.training
        self.eval()
        try:
            return self(first_BD, second_BD).softmax(dim=-1)  # type: ignore[no-any-return]
        finally:
            self.train(before)


class LabelsAndLogits(nn.Module):
    """``L = α CE(labels, z) + (1 − α) MSE(z, teacher's logits)`` (Tang et al.; SRA + KD).

    Rows that are `UNLABELLED`, such as augmented ones, do not count in the cross-entropy, whose mean is over
    the others. α = 1 needs no teacher, α = 0 no labels.

    Args:
        alpha: Weight α of the labels; SRA does not print it.
        classes: Whether squared differences are averaged (``mean``) or summed (``sum``) over the classes.

    Raises:
        BadInput: α is outside [0, 1], or the reduction is unknown.
    """

    def __init__(self, *, alpha: float, classes: str = "mean") -> None:
        super().__init__()
        require(0 <= alpha <= 1, "0 <= alpha <= 1", alpha=alpha)
        require(classes in ("mean", "sum"), "classes in (mean, sum)", classes=classes)
        self.alpha, self.classes = alpha, classes

    def forward(
        self, logits_BC: Tensor, labels_B: Tensor | None = None, teacher_BC: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Compute the weighted terms ``labels`` and ``logits``; a term with weight 0 is left out.

        Raises:
            BadInput: Labels or teacher's logits are required but missing, or do not fit.
        """
        terms: dict[str, Tensor] = {}
        with full_precision(logits_BC):
            if self.alpha > 0:
                require(labels_B is not None, "alpha = 0 without labels", alpha=self.alpha)
                assert labels_B is not None
                terms["labels"] = self.alpha * cross_entropy(logits_BC, labels_B)
            if self.alpha < 1:
                require(teacher_BC is not None, "alpha = 1 without the teacher's logits", alpha=self.alpha)
                assert teacher_BC is not None
                terms["logits"] = (1 - self.alpha) * self._distance(logits_BC, teacher_BC)
        return terms

    def _distance(self, logits_BC: Tensor, teacher_BC: Tensor) -> Tensor:
        classes = logits_BC.shape[-1]
        require_pairs(logits_BC, teacher_BC, second_dim=classes)
        distance = F.mse_loss(widen(logits_BC), widen(teacher_BC))
        return distance * classes if self.classes == "sum" else distance


def compared(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """Return ``[h, h', |h − h'|, h ∘ h']``, (B, 4·D)."""
    first_BD, second_BD = widen(first_BD), widen(second_BD)
    return torch.cat([first_BD, second_BD, (first_BD - second_BD).abs(), first_BD * second_BD], dim=-1)


def cross_entropy(logits_BC: Tensor, labels_B: Tensor) -> Tensor:
    """Compute the mean over the labelled rows; 0 if there are none.

    Raises:
        BadInput: There is not one label per row, or a label is not a class.
    """
    rows, classes = logits_BC.shape
    require(labels_B.shape == (rows,), "one label per row", labels=tuple(labels_B.shape), rows=rows)
    labelled_B = labels_B != UNLABELLED
    if labels_B.device.type == "cpu" and rows:  # a GPU checks on its own; checking here would wait for it
        low, high = int(labels_B.min()), int(labels_B.max())
        require(
            UNLABELLED <= low and high < classes,
            f"labels in 0..{classes - 1}, or -1",
            lowest=low,
            highest=high,
        )
    total = F.cross_entropy(widen(logits_BC), labels_B, ignore_index=UNLABELLED, reduction="sum")
    return total / labelled_B.sum().clamp(min=1)
