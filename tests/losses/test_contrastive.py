"""Contrastive losses compared with plain Python loops, closed forms and sentence-transformers."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from rows import each_row
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.losses.contrastive import InfoNCE, SupervisedInfoNCE
from stillhouse.losses.memory_bank import EMPTY


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def cosine(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    return float(a @ b / math.sqrt(a @ a) / math.sqrt(b @ b))


def cross_entropy(positive: float, negatives: list[float]) -> float:
    return -math.log(math.exp(positive) / (math.exp(positive) + sum(math.exp(n) for n in negatives)))


def slow_infonce(
    loss: InfoNCE, student: Tensor, teacher: Tensor, rows: list[int], bank: Tensor, bank_rows: list[int]
) -> float:
    """Compute equation 5 as written, one similarity at a time."""
    weight = np.eye(loss.student_dim)
    if isinstance(loss.projection, torch.nn.Linear):
        weight = loss.projection.weight.detach().numpy()
    s, keys = student.numpy(), np.concatenate([teacher.numpy(), bank.numpy()])

    def similarity(i: int, j: int) -> float:
        if loss.similarity == "cosine":
            return cosine(weight @ s[i], keys[j])
        scale = math.sqrt(s[i] @ s[i]) * math.sqrt(keys[j] @ keys[j]) if loss.normalize else 1.0
        return float((weight @ s[i]) @ keys[j] / scale)

    total = 0.0
    for i in range(len(s)):
        negatives = []
        for j, row in enumerate([*rows, *bank_rows]):
            twin = row == rows[i] if j < len(s) else row in rows
            if j == i or row == EMPTY or (loss.mask_duplicates and twin):
                continue
            negatives.append(similarity(i, j) / loss.temperature.temperature)
        total += cross_entropy(similarity(i, i) / loss.temperature.temperature, negatives)
    return total / len(s)


@each_row("masked", [True, False])
@each_row(
    ("switches", "teacher_dim"),
    [
        ({"similarity": "bilinear"}, 4),
        ({"similarity": "bilinear", "normalize": False, "temperature": 3.0}, 6),
        ({"similarity": "bilinear", "identity_init": False}, 4),
        ({"similarity": "cosine"}, 4),
        ({"similarity": "cosine", "temperature": 0.3}, 6),
        ({"similarity": "cosine", "projection": True, "identity_init": False}, 4),
    ],
)
def test_infonce_is_the_equation(switches: dict[str, Any], teacher_dim: int, masked: bool) -> None:
    torch.manual_seed(1)
    loss = InfoNCE(student_dim=4, teacher_dim=teacher_dim, mask_duplicates=masked, **switches).double()
    student, teacher, bank = draw(5, 4), draw(5, teacher_dim, seed=2), draw(4, teacher_dim, seed=3)
    rows, bank_rows = [7, 8, 7, 9, 1], [8, EMPTY, 30, 31]
    slow = slow_infonce(loss, student, teacher, rows, bank, bank_rows)
    fast = loss(student, teacher, torch.tensor(rows), loss.keys(bank), torch.tensor(bank_rows))
    assert fast.item() == pytest.approx(slow, rel=1e-12)


def test_equal_vectors_give_the_log_of_the_batch_size() -> None:
    loss = InfoNCE(student_dim=3, teacher_dim=3)
    assert loss(torch.ones(8, 3), torch.ones(8, 3)).item() == pytest.approx(math.log(8), rel=1e-6)


def test_orthonormal_pairs_have_a_closed_form_and_the_positive_counts_once() -> None:
    loss = InfoNCE(student_dim=6, teacher_dim=6, temperature=0.5)
    expected = math.log(math.exp(2) + 5) - 2
    assert loss(torch.eye(6), 3 * torch.eye(6)).item() == pytest.approx(expected, rel=1e-6)


def test_order_of_the_batch_does_not_matter() -> None:
    loss = InfoNCE(student_dim=4, teacher_dim=4).double()
    student, teacher, order = draw(6, 4), draw(6, 4, seed=1), torch.tensor([3, 1, 5, 0, 2, 4])
    assert torch.allclose(loss(student, teacher), loss(student[order], teacher[order]), rtol=1e-13)


def test_a_repeated_text_is_not_its_own_negative() -> None:
    loss = InfoNCE(student_dim=2, teacher_dim=2).double()
    student, teacher = draw(3, 2), draw(3, 2, seed=1)
    twice = torch.tensor([0, 0, 1])
    student[1], teacher[1] = student[0], teacher[0]
    assert loss(student, teacher, twice) < loss(student, teacher, torch.arange(3))
    assert torch.equal(loss(student, teacher), loss(student, teacher, torch.arange(3)))


def test_a_batch_of_one_repeated_text_has_zero_loss() -> None:
    loss = InfoNCE(student_dim=2, teacher_dim=2)
    student = draw(2, 2).float().requires_grad_()
    value = loss(student, torch.ones(2, 2), torch.zeros(2, dtype=torch.long))
    value.backward()
    assert value.item() == 0
    assert student.grad is not None and student.grad.abs().max() == 0


def test_w_is_initialised_to_the_identity_or_orthogonal() -> None:
    assert torch.equal(next(InfoNCE(student_dim=3, teacher_dim=3).parameters()), torch.eye(3))
    weight, bias = InfoNCE(student_dim=3, teacher_dim=5, bias=True).parameters()
    assert torch.allclose(weight.T @ weight, torch.eye(3), atol=1e-6)
    assert bias.shape == (5,) and bias.abs().max() == 0
    assert not any(InfoNCE(student_dim=3, teacher_dim=3, similarity="cosine").parameters())


def test_learnable_scale_starts_at_the_temperature_and_gets_a_gradient() -> None:
    fixed = InfoNCE(student_dim=3, teacher_dim=3, temperature=0.2).double()
    learnt = InfoNCE(student_dim=3, teacher_dim=3, temperature=0.2, learnable_scale=True).double()
    student, teacher = draw(4, 3), draw(4, 3, seed=1)
    assert torch.allclose(fixed(student, teacher), learnt(student, teacher), rtol=1e-6)
    learnt(student, teacher).backward()
    log_scale = learnt.temperature.log_scale
    assert log_scale is not None and log_scale.grad is not None and log_scale.grad != 0


@pytest.mark.parametrize("switches", [{}, {"similarity": "cosine", "projection": True, "bias": True}])
def test_gradient_of_infonce(switches: dict[str, Any]) -> None:
    torch.manual_seed(0)
    loss = InfoNCE(student_dim=3, teacher_dim=4, learnable_scale=True, temperature=0.5, **switches).double()
    student, teacher = draw(4, 3).requires_grad_(), draw(4, 4, seed=1).requires_grad_()
    rows = torch.tensor([1, 2, 1, 3])

    def value(student: Tensor, teacher: Tensor, *_: Tensor) -> Tensor:
        return torch.as_tensor(
            loss(student, teacher, rows, loss.keys(draw(2, 4, seed=9)), torch.tensor([5, EMPTY]))
        )

    assert torch.autograd.gradcheck(value, (student, teacher, *loss.parameters()))


@pytest.mark.parametrize("similarity", ["bilinear", "cosine"])
def test_zero_vectors_stay_finite(similarity: str) -> None:
    loss = InfoNCE(student_dim=3, teacher_dim=3, similarity=similarity)
    student = torch.zeros(4, 3, requires_grad=True)
    value = loss(student, torch.zeros(4, 3))
    value.backward()
    assert student.grad is not None
    assert value.isfinite() and student.grad.isfinite().all()


def test_bfloat16_and_autocast_compute_in_float32() -> None:
    loss = InfoNCE(student_dim=8, teacher_dim=8, temperature=0.02)
    student, teacher = draw(6, 8).bfloat16(), draw(6, 8, seed=1).bfloat16()
    exact = loss(student.float(), teacher.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(student, teacher)
    assert value.dtype == torch.float32 and torch.equal(value, exact)


def slow_supervised(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor,
    temperature: float,
    rows: list[list[int]],
    shared: bool,
) -> float:
    """Compute equation 10 as written, excluding other passages of the anchor's query from its negatives."""
    q, p, n = query.numpy(), positive.numpy(), negatives.numpy()
    query_rows, positive_rows, *negative_rows = rows
    total = 0.0
    for i in range(len(q)):
        answers = {positive_rows[j] for j in range(len(q)) if query_rows[j] == query_rows[i]}
        scores = []
        for j in range(len(q)):
            if j != i and positive_rows[j] not in answers:
                scores.append(cosine(q[i], p[j]) / temperature)
            for k in range(n.shape[1]):
                if (shared or j == i) and negative_rows[j][k] not in answers:
                    scores.append(cosine(q[i], n[j, k]) / temperature)
        total += cross_entropy(cosine(q[i], p[i]) / temperature, scores)
    return total / len(q)


@each_row("shared", [True, False])
@each_row(
    "rows",
    [
        [[0, 1, 2, 3], [10, 11, 12, 13], [20, 21], [22, 23], [24, 25], [26, 27]],
        [[0, 1, 0, 3], [10, 11, 12, 11], [20, 11], [11, 23], [10, 25], [10, 12]],
    ],
)
def test_supervised_infonce_is_equation_10(rows: list[list[int]], shared: bool) -> None:
    query, positive, negatives = draw(4, 3), draw(4, 3, seed=1), draw(4, 2, 3, seed=2)
    loss = SupervisedInfoNCE(temperature=0.3, share_negatives=shared)
    ids = [torch.tensor(rows[0]), torch.tensor(rows[1]), torch.tensor(rows[2:])]
    slow = slow_supervised(query, positive, negatives, 0.3, rows, shared)
    assert loss(query, positive, negatives, *ids).item() == pytest.approx(slow, rel=1e-12)
    if len(set(rows[0] + rows[1])) == 8:
        assert loss(query, positive, negatives).item() == pytest.approx(slow, rel=1e-12)
    else:
        off = SupervisedInfoNCE(temperature=0.3, share_negatives=shared, mask_duplicates=False)
        assert torch.equal(off(query, positive, negatives, *ids), off(query, positive, negatives))
        assert off(query, positive, negatives).item() > slow


@each_row(("similarity", "negatives"), [("cosine", 2), ("dot", 2), ("cosine", 0)])
def test_supervised_infonce_equals_sentence_transformers(similarity: str, negatives: int) -> None:
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.util import cos_sim, dot_score

    theirs = MultipleNegativesRankingLoss(
        torch.nn.Identity(), scale=10.0, similarity_fct=cos_sim if similarity == "cosine" else dot_score
    )
    columns = [draw(5, 4, seed=seed).requires_grad_() for seed in range(2 + negatives)]
    expected = theirs.compute_loss_from_embeddings(columns, None)
    ours = SupervisedInfoNCE(temperature=0.1, similarity=similarity, share_negatives=True)
    value = ours(columns[0], columns[1], torch.stack(columns[2:], dim=1) if negatives else None)
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    for actual, other in zip(
        torch.autograd.grad(value, columns), torch.autograd.grad(expected, columns), strict=True
    ):
        assert torch.allclose(actual, other, rtol=1e-10, atol=1e-14)


def test_own_and_shared_negatives_differ() -> None:
    query, positive, negatives = draw(4, 3), draw(4, 3, seed=1), draw(4, 2, 3, seed=2)
    own, shared = SupervisedInfoNCE(), SupervisedInfoNCE(share_negatives=True)
    assert own(query, positive, negatives) < shared(query, positive, negatives)


def test_gradient_of_supervised_infonce() -> None:
    vectors = (draw(3, 3), draw(3, 3, seed=1), draw(3, 2, 3, seed=2))
    loss = SupervisedInfoNCE(temperature=0.4, learnable_scale=True).double()
    rows = (torch.tensor([0, 1, 0]), torch.tensor([4, 5, 6]), torch.tensor([[7, 8], [5, 9], [4, 1]]))
    inputs = tuple(v.requires_grad_() for v in vectors)
    assert torch.autograd.gradcheck(lambda *v: loss(*v[:3], *rows), (*inputs, *loss.parameters()))


def test_a_mined_negative_equal_to_the_passage_is_ignored() -> None:
    query, positive = draw(2, 3), draw(2, 3, seed=1)
    loss = SupervisedInfoNCE()
    rows = (torch.tensor([0, 1]), torch.tensor([5, 6]))
    same = loss(query, positive, positive[:, None], *rows, rows[1][:, None])
    assert torch.equal(same, loss(query, positive))


@each_row(
    ("switches", "message"),
    [
        ({"temperature": 0.0}, "temperature > 0"),
        ({"temperature": -1.0}, "temperature > 0"),
        ({"temperature": math.nan}, "temperature > 0"),
        ({"similarity": "dot"}, "similarity in"),
        ({"similarity": "cosine", "normalize": False}, "normalize"),
        ({"projection": False}, "projection"),
        ({"similarity": "cosine", "projection": False, "bias": True}, "bias = False without a projection"),
        ({"similarity": "cosine", "projection": False, "teacher_dim": 4}, "student_dim = teacher_dim"),
    ],
)
def test_infonce_refuses(switches: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        InfoNCE(**{"student_dim": 3, "teacher_dim": 3, **switches})


def test_mismatched_shapes_are_refused() -> None:
    loss = InfoNCE(student_dim=3, teacher_dim=3)
    with pytest.raises(BadInput, match="batch >= 2"):
        loss(torch.ones(1, 3), torch.ones(1, 3))
    for student, teacher in (((4, 3), (5, 3)), ((4, 2), (4, 3)), ((4, 3), (4, 2)), ((4, 3, 1), (4, 3))):
        with pytest.raises(BadInput):
            loss(torch.ones(student), torch.ones(teacher))
    with pytest.raises(BadInput, match="one row id"):
        loss(torch.ones(4, 3), torch.ones(4, 3), torch.arange(3))
    with pytest.raises(BadInput, match="one row id"):
        loss(torch.ones(4, 3), torch.ones(4, 3), torch.arange(4), torch.ones(2, 3))


def test_supervised_infonce_refuses() -> None:
    for switches, message in (
        ({"temperature": 0.0}, "temperature > 0"),
        ({"similarity": "l2"}, "similarity in"),
    ):
        with pytest.raises(BadInput, match=message):
            SupervisedInfoNCE(**switches)
    loss, ones = SupervisedInfoNCE(), torch.ones(4, 3)
    with pytest.raises(BadInput, match="batch >= 2"):
        loss(ones[:1], ones[:1], torch.ones(1, 2, 3))
    with pytest.raises(BadInput, match="shape of the negatives"):
        loss(ones, ones, torch.ones(8, 3))
    with pytest.raises(BadInput, match="one row id per negative"):
        loss(ones, ones, torch.ones(4, 2, 3), None, torch.arange(4), torch.zeros(4, 3))
