"""Losses over candidates compared with loops, closed forms and sentence-transformers."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rows import each_row
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import Spec, spec
from stillhouse.losses.softlabel import (
    HardLabelCE,
    KLDivergence,
    MarginMSE,
    RelevanceBCE,
    SoftAndHard,
    SoftLabelCE,
    SoftLabelMSE,
)

TWO_SIDED: list[Callable[[], torch.nn.Module]] = [
    lambda: SoftLabelCE(temperature=2.0, softened="both"),
    lambda: SoftLabelMSE(temperature=2.0, softened="both"),
    lambda: SoftLabelMSE(temperature=2.0, compared="scores", softened="both"),
    lambda: SoftLabelMSE(temperature=2.0, compared="printed"),
    lambda: KLDivergence(temperature=2.0),
    lambda: MarginMSE(),
]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def soften(row: list[float], temperature: float) -> list[float]:
    weights = [math.exp(value / temperature) for value in row]
    return [weight / sum(weights) for weight in weights]


STUDENT, TEACHER = draw(4, 5), draw(4, 5, seed=1) * 3
LABELS = torch.tensor([[1, 0, 0, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 0, 0]])


@each_row("temperature", [0.5, 1.0, 4.0])
@each_row("softened", ["teacher", "both"])
@each_row("scale", [False, True])
def test_soft_cross_entropy_is_the_equation(temperature: float, softened: str, scale: bool) -> None:
    total = 0.0
    for student, teacher in zip(STUDENT.tolist(), TEACHER.tolist(), strict=True):
        p, q = soften(teacher, temperature), soften(student, temperature if softened == "both" else 1.0)
        total -= sum(a * math.log(b) for a, b in zip(p, q, strict=True))
    loss = SoftLabelCE(temperature=temperature, softened=softened, scale=scale)(STUDENT, TEACHER)
    assert loss.item() == pytest.approx(total / 4 * (temperature**2 if scale else 1), rel=1e-12)


@each_row("compared", ["probabilities", "scores", "printed"])
@each_row("softened", ["teacher", "both"])
@each_row("scale", [False, True])
def test_soft_mse_is_the_equation(compared: str, softened: str, scale: bool) -> None:
    total, temperature = 0.0, 3.0
    of_student = temperature if softened == "both" else 1.0
    for student, teacher in zip(STUDENT.tolist(), TEACHER.tolist(), strict=True):
        target_row, student_row = soften(teacher, temperature), [s / of_student for s in student]
        if compared == "probabilities":
            student_row = soften(student, of_student)
        if compared == "scores":
            target_row = [t / temperature for t in teacher]
        total += sum((a - b) ** 2 for a, b in zip(target_row, student_row, strict=True))
    loss = SoftLabelMSE(temperature=temperature, compared=compared, softened=softened, scale=scale)(
        STUDENT, TEACHER
    )
    assert loss.item() == pytest.approx(total / 4 * (9 if scale else 1), rel=1e-12)


@each_row("gold", ["sum", "mean"])
@each_row("kind", [torch.int64, torch.bool, torch.float32])
def test_hard_loss_is_the_equation_with_several_gold_and_none(gold: str, kind: torch.dtype) -> None:
    total = 0.0
    for student, labels in zip(STUDENT.tolist(), LABELS.tolist(), strict=True):
        q = soften(student, 1.0)
        terms = [-math.log(b) for y, b in zip(labels, q, strict=True) if y]
        total += sum(terms) / (len(terms) if gold == "mean" and terms else 1)
    assert HardLabelCE(gold=gold)(STUDENT, LABELS.to(kind)).item() == pytest.approx(total / 4, rel=1e-12)


def test_hard_loss_with_one_gold_equals_torch_cross_entropy() -> None:
    labels = torch.nn.functional.one_hot(torch.tensor([3, 0, 1, 4]), 5)
    expected = torch.nn.functional.cross_entropy(STUDENT, torch.tensor([3, 0, 1, 4])).item()
    for gold in ("sum", "mean"):
        assert HardLabelCE(gold=gold)(STUDENT, labels).item() == pytest.approx(expected, rel=1e-12)


@each_row("alpha", [0.0, 0.2, 1.0])
@each_row("soft", [SoftLabelCE, SoftLabelMSE])
def test_alpha_weights_hard_and_soft_loss(alpha: float, soft: type[SoftLabelCE] | type[SoftLabelMSE]) -> None:
    softened: Spec[Any] = spec(soft, temperature=2.0, scale=True)
    loss = SoftAndHard(alpha=alpha, soft=softened, hard=spec(HardLabelCE, gold="mean"))
    alone = soft(temperature=2.0, scale=True)
    expected = alpha * alone(STUDENT, TEACHER) + (1 - alpha) * HardLabelCE(gold="mean")(STUDENT, LABELS)
    terms = loss(STUDENT, TEACHER, LABELS)
    assert sum(terms.values()).item() == pytest.approx(expected.item(), rel=1e-12)
    assert list(terms) == (["hard"] if alpha == 0 else ["soft"] if alpha == 1 else ["soft", "hard"])


def test_targets_with_zero_weight_are_not_needed() -> None:
    SoftAndHard(alpha=0)(STUDENT, None, LABELS)
    SoftAndHard(alpha=1)(STUDENT, TEACHER, None)
    with pytest.raises(BadInput, match="teacher's scores"):
        SoftAndHard(alpha=0.5)(STUDENT, None, LABELS)
    with pytest.raises(BadInput, match="alpha = 1 without labels"):
        SoftAndHard(alpha=0.5)(STUDENT, TEACHER, None)


def test_cross_entropy_and_divergence_differ_by_the_teachers_entropy() -> None:
    p = TEACHER.div(3).softmax(dim=1)
    entropy = -(p * p.log()).sum(dim=1).mean()
    cross = SoftLabelCE(temperature=3.0, softened="both")(STUDENT, TEACHER)
    divergence = KLDivergence(temperature=3.0, scale=False)(STUDENT, TEACHER)
    assert (cross - entropy).item() == pytest.approx(divergence.item(), rel=1e-12)


@each_row("make", [make for make in TWO_SIDED if getattr(make(), "compared", "") != "printed"])
def test_the_teachers_own_scores_are_the_optimum(make: Callable[[], torch.nn.Module]) -> None:
    """Student and teacher terms have the same form, so the gradient at the teacher's scores is zero."""
    loss = make()
    student = TEACHER.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(student, TEACHER), student)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)


def test_a_low_temperature_picks_the_largest() -> None:
    """As the paper says, T near 0 picks only the largest value."""
    best = torch.nn.functional.one_hot(TEACHER.argmax(dim=1), 5)
    soft = SoftLabelMSE(temperature=1e-3)(100 * best.double(), TEACHER)
    assert soft.item() == pytest.approx(0, abs=1e-9)


@each_row("make", [make for make in TWO_SIDED if not getattr(make(), "compared", "")])
def test_a_constant_on_a_claims_scores_changes_nothing(make: Callable[[], torch.nn.Module]) -> None:
    loss = make()
    moved = loss(STUDENT + draw(4, 1, seed=2), TEACHER + draw(4, 1, seed=3))
    assert moved.item() == pytest.approx(loss(STUDENT, TEACHER).item(), rel=1e-9)


@each_row("make", TWO_SIDED)
def test_the_order_of_claims_does_not_matter(make: Callable[[], torch.nn.Module]) -> None:
    loss, order = make(), torch.tensor([2, 0, 3, 1])
    assert loss(STUDENT[order], TEACHER[order]).item() == pytest.approx(loss(STUDENT, TEACHER).item())


@each_row("make", TWO_SIDED)
def test_gradients(make: Callable[[], torch.nn.Module]) -> None:
    student, teacher = draw(2, 3).requires_grad_(), draw(2, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(make(), (student, teacher))


def test_gradients_of_the_joint_loss() -> None:
    for gold in ("sum", "mean"):
        joint = SoftAndHard(alpha=0.3, hard=spec(HardLabelCE, gold=gold))
        student = STUDENT.clone().requires_grad_()
        assert torch.autograd.gradcheck(
            lambda s, joint=joint: sum(joint(s, TEACHER, LABELS).values()), (student,)
        )


def vectors_with(scores_BC: Tensor) -> list[Tensor]:
    """Make a query and C documents per row whose inner products are the scores."""
    query = torch.ones(len(scores_BC), 1, dtype=scores_BC.dtype)
    return [query, *scores_BC.T.unsqueeze(-1)]


def assert_equals(loss: torch.nn.Module, reference: Any, student: Tensor, teacher: Tensor) -> None:
    """Compare values and gradients."""
    ours, theirs = (student.clone().requires_grad_() for _ in range(2))
    value, expected = loss(ours, teacher), reference(theirs, teacher)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)
    gradients = [torch.autograd.grad(each, to)[0] for each, to in ((value, ours), (expected, theirs))]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


@each_row("candidates", [2, 5])
@each_row("labels", ["scores", "margins"])
def test_margin_mse_equals_sentence_transformers(candidates: int, labels: str) -> None:
    from sentence_transformers.sentence_transformer.losses import MarginMSELoss

    stock: Any = MarginMSELoss(model=None)

    def reference(student: Tensor, teacher: Tensor) -> Any:
        target = teacher if labels == "scores" else teacher[:, :1] - teacher[:, 1:]
        return stock.compute_loss_from_embeddings(vectors_with(student), target)

    assert_equals(MarginMSE(), reference, STUDENT[:, :candidates], TEACHER[:, :candidates])


def test_margin_mse_is_the_equation() -> None:
    total = 0.0
    for student, teacher in zip(STUDENT.tolist(), TEACHER.tolist(), strict=True):
        for s, t in zip(student[1:], teacher[1:], strict=True):
            total += ((student[0] - s) - (teacher[0] - t)) ** 2 / (4 * 4)
    assert MarginMSE()(STUDENT, TEACHER).item() == pytest.approx(total, rel=1e-12)


@each_row("temperature", [0.5, 1.0, 4.0])
def test_divergence_equals_sentence_transformers(temperature: float) -> None:
    from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss

    stock: Any = DistillKLDivLoss(model=None, temperature=temperature)

    def reference(student: Tensor, teacher: Tensor) -> Any:
        return stock.compute_loss_from_embeddings(vectors_with(student), teacher)

    assert_equals(KLDivergence(temperature=temperature), reference, STUDENT, TEACHER)


@pytest.mark.parametrize("scale", [True, False])
def test_divergence_is_the_equation(scale: bool) -> None:
    total = 0.0
    for student, teacher in zip(STUDENT.tolist(), TEACHER.tolist(), strict=True):
        p, q = soften(teacher, 2.5), soften(student, 2.5)
        total += sum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True)) / 4
    loss = KLDivergence(temperature=2.5, scale=scale)(STUDENT, TEACHER)
    assert loss.item() == pytest.approx(total * (2.5**2 if scale else 1), rel=1e-12)


def test_relevance_is_the_equation() -> None:
    total = 0.0
    for student, labels in zip(STUDENT.tolist(), LABELS.tolist(), strict=True):
        for s, y in zip(student, labels, strict=True):
            likely = 1 / (1 + math.exp(-s))
            total -= math.log(likely if y else 1 - likely) / 20
    assert RelevanceBCE()(STUDENT, LABELS).item() == pytest.approx(total, rel=1e-12)


@each_row("make", TWO_SIDED)
def test_extreme_scores_stay_finite_and_in_float32(make: Callable[[], torch.nn.Module]) -> None:
    loss = make()
    student = torch.tensor([[300.0, -300.0], [0.0, 0.0]]).bfloat16().requires_grad_()
    teacher = torch.tensor([[-300.0, 300.0], [0.0, 0.0]]).half()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(student, teacher)
    value.backward()
    assert value.dtype == torch.float32 and value.isfinite()
    assert student.grad is not None and student.grad.isfinite().all()


@each_row(
    ("build", "switches"),
    [
        (SoftLabelCE, {"temperature": 0}),
        (SoftLabelMSE, {"temperature": -1}),
        (SoftLabelMSE, {"compared": "logits"}),
        (SoftLabelMSE, {"softened": "student"}),
        (SoftLabelCE, {"softened": "none"}),
        (KLDivergence, {"temperature": 0}),
        (HardLabelCE, {"gold": "first"}),
        (SoftAndHard, {"alpha": 1.1}),
        (SoftAndHard, {"soft": spec(SoftLabelCE, temperature=0)}),
        (SoftAndHard, {"hard": spec(HardLabelCE, gold="first")}),
    ],
)
def test_values_out_of_range_are_refused(build: Any, switches: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        build(**switches)


@each_row("shapes", [((2, 3), (2, 4)), ((3, 3), (2, 3)), ((3,), (3,)), ((2, 1), (2, 1))])
def test_mismatched_shapes_are_refused(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    student, target = map(torch.ones, shapes)
    for loss in (*(make() for make in TWO_SIDED), HardLabelCE(), RelevanceBCE()):
        with pytest.raises(BadInput):
            loss(student, target)
