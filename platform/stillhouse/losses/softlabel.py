"""Losses on the scores of C candidate documents per claim, against the teacher's scores and the labels.

Shakeri et al., Knowledge Distillation in Document Retrieval, eq. 1–3. Softened by T, a row of scores z
becomes the distribution softmax(z/T). Eq. 1 softens the teacher's scores alone; Hinton et al. (2015) soften
both sides (``softened``). Both cross-entropies of eq. 2 are printed without the minus sign and with the
student's logits instead of its probabilities; here s is the softmax of the student's logits.

All means are over the batch. No claim depends on another, so nothing has to be gathered.

B  claims in the batch    C  candidates per claim
"""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.losses.numerics import full_precision, widen

COMPARED = ("probabilities", "scores", "printed")
GOLD = ("sum", "mean")
SOFTENED = ("teacher", "both")


class SoftLabelCE(nn.Module):
    """Cross-entropy to the teacher's softened distribution (eq. 1 and 2).

    ``L = −1/B Σ_o Σ_i softmax(t_o/T)_i · log softmax(s_o/U)_i``, U = 1 as printed, or T.

    With U = T, the student's gradients are those of `KLDivergence`, from which the loss differs by the
    teacher's entropy.

    Args:
        temperature: T.
        softened: ``teacher``: T divides the teacher's scores alone (eq. 1). ``both``: the student's too.
        scale: Multiply by T², which keeps the size of the gradient when T changes and both sides are softened
            (Hinton et al., 2015). The paper does not print it.

    Raises:
        BadInput: T ≤ 0, or it is unknown what is softened.
    """

    version: ClassVar[int] = 2

    def __init__(self, *, temperature: float = 1.0, softened: str = "teacher", scale: bool = False) -> None:
        super().__init__()
        _require_softening(temperature, softened)
        self.temperature, self.softened, self.scale = temperature, softened, scale

    def forward(self, student_BC: Tensor, teacher_BC: Tensor) -> Tensor:
        """Compute the mean over the claims.

        Raises:
            BadInput: The shapes do not fit, or there are fewer than two candidates.
        """
        _require_scores(student_BC, teacher_BC)
        with full_precision(student_BC):
            soft_BC = (widen(teacher_BC) / self.temperature).softmax(dim=1)
            log_BC = (widen(student_BC) / _of_student(self)).log_softmax(dim=1)
            loss = -(soft_BC * log_BC).sum(dim=1).mean()
            return loss * self.temperature**2 if self.scale else loss


class SoftLabelMSE(nn.Module):
    """Squared distance to the teacher's scores (eq. 1 and 2), ``L = 1/B Σ_o Σ_i (t'_oi − s_oi)²``.

    Eq. 2 is not clear about s, which the text calls logits and the cross-entropies use as probabilities:

    * ``probabilities``: the softmax of both sides, the reading that fits the rest of eq. 2.
    * ``printed``: the teacher's softmax(t/T) and the student's logits, taken literally.
    * ``scores``: the logits of both sides, without a softmax.

    Args:
        temperature: T.
        compared: Meaning of s and t': ``probabilities``, ``printed`` or ``scores``.
        softened: ``teacher``: T divides the teacher's scores alone (eq. 1). ``both``: the student's too.
        scale: Multiply by T².

    Raises:
        BadInput: T ≤ 0, or the reading is unknown.
    """

    version: ClassVar[int] = 2

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        compared: str = "probabilities",
        softened: str = "teacher",
        scale: bool = False,
    ) -> None:
        super().__init__()
        _require_softening(temperature, softened)
        require(compared in COMPARED, f"compared in {COMPARED}", compared=compared)
        self.temperature, self.compared = temperature, compared
        self.softened, self.scale = softened, scale

    def forward(self, student_BC: Tensor, teacher_BC: Tensor) -> Tensor:
        """The mean over the claims of the sum over the candidates.

        Raises:
            BadInput: The shapes do not fit, or there are fewer than two candidates.
        """
        _require_scores(student_BC, teacher_BC)
        with full_precision(student_BC):
            student_BC = widen(student_BC) / _of_student(self)
            teacher_BC = widen(teacher_BC) / self.temperature
            if self.compared == "probabilities":
                student_BC = student_BC.softmax(dim=1)
            if self.compared != "scores":
                teacher_BC = teacher_BC.softmax(dim=1)
            loss = (teacher_BC - student_BC).square().sum(dim=1).mean()
            return loss * self.temperature**2 if self.scale else loss


class HardLabelCE(nn.Module):
    """Cross-entropy to the labels (eq. 2), ``L = −1/B Σ_o Σ_i y_oi · log softmax(s_o)_i``.

    A claim without a relevant candidate adds 0, but counts in the mean.

    Args:
        gold: How several relevant candidates count: ``sum`` adds their terms, as printed, so that such a
            claim has more weight; ``mean`` gives them a weight of 1 in total.

    Raises:
        BadInput: The rule is unknown.
    """

    def __init__(self, *, gold: str = "sum") -> None:
        super().__init__()
        require(gold in GOLD, f"gold in {GOLD}", gold=gold)
        self.gold = gold

    def forward(self, student_BC: Tensor, labels_BC: Tensor) -> Tensor:
        """Compute the mean over the claims.

        Args:
            student_BC: Logits.
            labels_BC: 1 (or True) for a relevant candidate, 0 otherwise.

        Raises:
            BadInput: The shapes do not fit, or there are fewer than two candidates.
        """
        _require_scores(student_BC, labels_BC)
        with full_precision(student_BC):
            log_BC = widen(student_BC).log_softmax(dim=1)
            target_BC = (labels_BC > 0).to(log_BC.dtype)
            if self.gold == "mean":
                target_BC = target_BC / target_BC.sum(dim=1, keepdim=True).clamp_min(1)
            return -(target_BC * log_BC).sum(dim=1).mean()


class SoftAndHard(nn.Module):
    """The loss of the paper (eq. 3), ``L = α · SoftLoss + (1 − α) · HardLoss``.

    Args:
        alpha: Weight α; 0 trains without a teacher, 1 without labels.
        soft: The loss on the teacher's scores.
        hard: The loss on the labels.

    Raises:
        BadInput: α is outside [0, 1], or one of the losses refuses an argument.
    """

    def __init__(
        self,
        *,
        alpha: float = 0.5,
        soft: Spec[SoftLabelCE] | Spec[SoftLabelMSE] = spec(SoftLabelCE, temperature=3.0),
        hard: Spec[HardLabelCE] = spec(HardLabelCE),
    ) -> None:
        super().__init__()
        require(0 <= alpha <= 1, "0 <= alpha <= 1", alpha=alpha)
        self.alpha = alpha
        self.hard = hard.build()
        self.soft: SoftLabelCE | SoftLabelMSE = soft.build()

    def forward(
        self, student_BC: Tensor, teacher_BC: Tensor | None, labels_BC: Tensor | None
    ) -> dict[str, Tensor]:
        """Compute the weighted terms ``soft`` and ``hard``.

        A term with weight 0 is left out, and its targets may be None.

        Raises:
            BadInput: Targets are required but missing, or the shapes do not fit.
        """
        terms = {}
        if self.alpha > 0:
            require(teacher_BC is not None, "alpha = 0 without the teacher's scores", alpha=self.alpha)
            assert teacher_BC is not None
            terms["soft"] = self.alpha * self.soft(student_BC, teacher_BC)
        if self.alpha < 1:
            require(labels_BC is not None, "alpha = 1 without labels", alpha=self.alpha)
            assert labels_BC is not None
            terms["hard"] = (1 - self.alpha) * self.hard(student_BC, labels_BC)
        return terms


class KLDivergence(nn.Module):
    """KL(teacher || student) of the softened distributions; sentence-transformers' DistillKLDivLoss.

    ``L = T²/B Σ_o Σ_i p_oi · (log p_oi − log q_oi)``, p = softmax(t/T), q = softmax(s/T)

    Args:
        temperature: T.
        scale: Multiply by T².

    Raises:
        BadInput: T ≤ 0.
    """

    def __init__(self, *, temperature: float = 1.0, scale: bool = True) -> None:
        super().__init__()
        require(temperature > 0, "temperature > 0", temperature=temperature)
        self.temperature, self.scale = temperature, scale

    def forward(self, student_BC: Tensor, teacher_BC: Tensor) -> Tensor:
        """Compute the mean over the claims.

        Raises:
            BadInput: The shapes do not fit, or there are fewer than two candidates.
        """
        _require_scores(student_BC, teacher_BC)
        with full_precision(student_BC):
            log_p_BC = (widen(teacher_BC) / self.temperature).log_softmax(dim=1)
            log_q_BC = (widen(student_BC) / self.temperature).log_softmax(dim=1)
            loss = F.kl_div(log_q_BC, log_p_BC, reduction="batchmean", log_target=True)
            return loss * self.temperature**2 if self.scale else loss


class MarginMSE(nn.Module):
    """Squared error of the margins of a positive over its negatives (Hofstätter et al., arXiv:2010.02666).

    ``L = 1/(B(C−1)) Σ_o Σ_{i>0} ((s_o0 − s_oi) − (t_o0 − t_oi))²``, where candidate 0 is the positive; equals
    sentence-transformers' MarginMSELoss. A constant added to the scores of a claim changes nothing.
    """

    def forward(self, student_BC: Tensor, teacher_BC: Tensor) -> Tensor:
        """Compute the mean over claims and negatives.

        Raises:
            BadInput: The shapes do not fit, or there are fewer than two candidates.
        """
        _require_scores(student_BC, teacher_BC)
        with full_precision(student_BC):
            return F.mse_loss(_margins(widen(student_BC)), _margins(widen(teacher_BC)))


class RelevanceBCE(nn.Module):
    """Binary cross-entropy of every candidate by itself: a reranker is trained to tell relevant ones.

    ``L = −1/(BC) Σ_o Σ_i y_oi · log σ(s_oi) + (1 − y_oi) · log(1 − σ(s_oi))``
    """

    def forward(self, student_BC: Tensor, labels_BC: Tensor) -> Tensor:
        """Compute the mean over claims and candidates.

        Args:
            student_BC: Logits.
            labels_BC: 1 (or True) for a relevant candidate, 0 otherwise.

        Raises:
            BadInput: The shapes do not fit, or there are fewer than two candidates.
        """
        _require_scores(student_BC, labels_BC)
        with full_precision(student_BC):
            wide_BC = widen(student_BC)
            return F.binary_cross_entropy_with_logits(wide_BC, (labels_BC > 0).to(wide_BC.dtype))


def _of_student(loss: SoftLabelCE | SoftLabelMSE) -> float:
    """The temperature of the student's side."""
    return loss.temperature if loss.softened == "both" else 1.0


def _require_softening(temperature: float, softened: str) -> None:
    require(temperature > 0, "temperature > 0", temperature=temperature)
    require(softened in SOFTENED, f"softened in {SOFTENED}", softened=softened)


def _margins(scores_BC: Tensor) -> Tensor:
    return scores_BC[:, :1] - scores_BC[:, 1:]


def _require_scores(student_BC: Tensor, target_BC: Tensor) -> None:
    student, target = tuple(student_BC.shape), tuple(target_BC.shape)
    require(
        student == target and len(student) == 2,
        "one value per claim and candidate on both sides, (B, C)",
        student=student,
        target=target,
    )
    require(student[0] >= 1 and student[1] >= 2, "claims >= 1 and candidates >= 2", shape=student)
