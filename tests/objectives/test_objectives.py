"""Objectives: their terms, texts and weights, and the cost of a zero weight."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from rows import each_row
from sklearn.decomposition import PCA
from torch import Tensor, nn

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.core.types import (
    Batch,
    Encoding,
)
from stillhouse.losses.contrastive import InfoNCE, SupervisedInfoNCE
from stillhouse.losses.hsic import HSIC
from stillhouse.losses.memory_bank import MemoryBank
from stillhouse.losses.regression import MSE
from stillhouse.objectives.contrasts import ContrastiveDistillation
from stillhouse.objectives.information_bottleneck import InformationBottleneck, SupervisedBottleneck
from stillhouse.objectives.matching import PatientRegression, ProjectedRegression, Regression
from stillhouse.objectives.objective import Objective
from stillhouse.objectives.parallel_sentences import ParallelContrast

BATCH, TOKENS, HIDDEN, DIM, TEACHER, K = 6, 4, 5, 3, 4, 2


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def encoding(texts: int, seed: int) -> Encoding:
    mask_BT = torch.ones(texts, TOKENS, dtype=torch.long)
    mask_BT[0, 2:] = 0
    hidden = tuple(draw(texts, TOKENS, HIDDEN, seed=10 * seed + layer).requires_grad_() for layer in range(4))
    return Encoding(draw(texts, DIM, seed=seed).requires_grad_(), hidden, mask_BT)


def distillation() -> tuple[dict[str, Encoding], dict[str, Encoding], Batch]:
    rows = torch.tensor([4, 5, 4, 7, 8, 9])
    return (
        {"text": encoding(BATCH, 1)},
        {"text": Encoding(draw(BATCH, TEACHER))},
        Batch({}, {"text": rows}, {}),
    )


def labelled() -> tuple[dict[str, Encoding], dict[str, Encoding], Batch]:
    student = {
        "query": encoding(BATCH, 1),
        "passage": encoding(BATCH, 2),
        "negatives": encoding(BATCH * K, 3),
    }
    rows = {
        "query": torch.tensor([0, 1, 2, 3, 4, 0]),
        "passage": torch.tensor([10, 11, 10, 13, 14, 15]),
        "negatives": torch.arange(9, 9 + BATCH * K).view(BATCH, K),
    }
    return student, {}, Batch({}, rows, {})


def pooled(states: Encoding, layer: int) -> Tensor:
    """Compute the mean over the real tokens, text by text."""
    assert states.mask_BT is not None
    lengths = states.mask_BT.sum(1).tolist()
    return torch.stack([states.hidden[layer][i, :n].mean(0) for i, n in enumerate(lengths)])


@pytest.mark.parametrize(("input_layer", "index"), [("embedding", 0), ("penultimate", 2)])
def test_distillation_is_infonce_and_weighted_hsic(input_layer: str, index: int) -> None:
    student, teacher, batch = distillation()
    torch.manual_seed(0)
    objective = InformationBottleneck(
        student_dim=DIM,
        teacher_dim=TEACHER,
        nce=spec(InfoNCE, temperature=0.3),
        hsic=spec(HSIC, gamma=0.2),
        beta=0.7,
        input_layer=input_layer,
    )
    torch.manual_seed(0)
    nce = InfoNCE(student_dim=DIM, teacher_dim=TEACHER, temperature=0.3)
    terms = objective(student, teacher, batch)
    assert list(terms) == ["nce", "hsic"]
    vectors = student["text"].embedding_BD
    expected = nce(vectors, teacher["text"].embedding_BD, batch.rows["text"])
    torch.testing.assert_close(terms["nce"], expected)
    bottleneck = 0.7 * HSIC(gamma=0.2)(pooled(student["text"], index), vectors)
    torch.testing.assert_close(terms["hsic"], bottleneck)
    both = (student["text"].hidden[index], vectors)
    torch.testing.assert_close(
        torch.autograd.grad(terms["hsic"], both),
        torch.autograd.grad(bottleneck, both),
        msg="X and S both learn",
    )


def test_fine_tuning_is_supervised_infonce_and_hsic_of_the_queries() -> None:
    student, teacher, batch = labelled()
    terms = SupervisedBottleneck(beta=0.5)(student, teacher, batch)
    vectors = {column: states.embedding_BD for column, states in student.items()}
    nce = SupervisedInfoNCE()(
        vectors["query"],
        vectors["passage"],
        torch.stack([vectors["negatives"][K * i : K * i + K] for i in range(BATCH)]),
        *batch.rows.values(),
    )
    torch.testing.assert_close(terms["nce"], nce)
    torch.testing.assert_close(terms["hsic"], 0.5 * HSIC()(pooled(student["query"], 0), vectors["query"]))


@each_row("output", ["vector", "state"])
@each_row("columns", [("query", "passage", "negatives"), ("query", "passage")])
def test_hsic_over_all_texts_and_of_the_pooled_state(output: str, columns: tuple[str, ...]) -> None:
    whole, teacher, batch = labelled()
    student = {
        column: Encoding(
            whole[column].embedding_BD.double(),
            tuple(states.double() for states in whole[column].hidden),
            whole[column].mask_BT,
        )
        for column in columns
    }
    hsic = spec(HSIC, gamma=0.1, normalize=False, estimator="biased")
    objective = SupervisedBottleneck(
        hsic=hsic, beta=0.8, input_layer="penultimate", output=output, texts="all"
    )
    term = objective(student, teacher, batch)["hsic"]
    parts = [(pooled(each, 2), each.embedding_BD, pooled(each, 3)) for each in student.values()]
    inputs, vectors, states = (torch.cat(part) for part in zip(*parts, strict=True))
    follows = vectors if output == "vector" else states
    rows = len(inputs)
    center = torch.eye(rows, dtype=torch.float64) - 1 / rows
    grams = [torch.exp(-0.1 * torch.cdist(points, points) ** 2) for points in (inputs, follows)]
    expected = 0.8 * (grams[0] @ center @ grams[1] @ center).trace() / (rows - 1) ** 2
    assert rows == sum(len(each.embedding_BD) for each in student.values())
    torch.testing.assert_close(term, expected, rtol=1e-9, atol=0)
    means = objective.diagnostics(student)
    off = ~torch.eye(rows, dtype=torch.bool)
    assert means["kernel_mean_student"] == pytest.approx(grams[1][off].mean().item())


def test_the_distillations_hsic_of_the_pooled_state() -> None:
    student, teacher, batch = distillation()
    objective = InformationBottleneck(student_dim=DIM, teacher_dim=TEACHER, beta=0.7, output="state")
    expected = 0.7 * HSIC()(pooled(student["text"], 0), pooled(student["text"], 3))
    torch.testing.assert_close(objective(student, teacher, batch)["hsic"], expected)


def test_fine_tuning_works_without_mined_negatives() -> None:
    student, teacher, batch = labelled()
    pairs = {column: student[column] for column in ("query", "passage")}
    terms = SupervisedBottleneck(nce=spec(SupervisedInfoNCE, mask_duplicates=False))(pairs, teacher, batch)
    expected = SupervisedInfoNCE()(pairs["query"].embedding_BD, pairs["passage"].embedding_BD)
    torch.testing.assert_close(terms["nce"], expected)


class Untouchable(tuple[Tensor, ...]):
    """Hidden states that must not be read."""

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("a term of weight 0 was computed")


@pytest.mark.parametrize("make", [InformationBottleneck, SupervisedBottleneck])
def test_zero_weight_terms_are_not_computed(make: type[nn.Module]) -> None:
    student, teacher, batch = distillation() if make is InformationBottleneck else labelled()
    unread = {c: Encoding(e.embedding_BD, Untouchable(e.hidden), e.mask_BT) for c, e in student.items()}
    objective = spec(make, beta=0.0).build(student_dim=DIM, teacher_dim=TEACHER)
    assert list(objective(unread, teacher, batch)) == ["nce"]
    assert isinstance(objective, InformationBottleneck | SupervisedBottleneck)
    assert objective.diagnostics(unread) == {}
    with pytest.raises(AssertionError, match="weight 0"):
        spec(make, beta=0.1).build(student_dim=DIM, teacher_dim=TEACHER)(unread, teacher, batch)


def test_diagnostics_are_the_means_of_the_kernels() -> None:
    student, _, _ = distillation()
    figures = InformationBottleneck(student_dim=DIM, teacher_dim=TEACHER).diagnostics(student)
    expected = HSIC().kernel_means(pooled(student["text"], 0), student["text"].embedding_BD)
    assert figures["kernel_mean_inputs"] == pytest.approx(expected[0].item())
    assert figures["kernel_mean_student"] == pytest.approx(expected[1].item())


def test_the_bank_stores_a_batch_after_its_loss_and_only_in_training() -> None:
    student, teacher, batch = distillation()
    plain = ContrastiveDistillation(student_dim=DIM, teacher_dim=TEACHER)
    bank = spec(MemoryBank, size=8)
    banked = ContrastiveDistillation(student_dim=DIM, teacher_dim=TEACHER, bank=bank)
    banked.nce.load_state_dict(plain.nce.state_dict())
    assert banked.bank is not None
    banked.eval()
    banked(student, teacher, batch)
    assert (banked.bank.rows_M < 0).all()
    banked.train()
    first = banked(student, teacher, batch)["nce"]
    torch.testing.assert_close(first, plain(student, teacher, batch)["nce"])
    assert set(banked.bank.rows_M.tolist()) == {-1, 4, 5, 7, 8, 9}
    other = Batch({}, {"text": torch.arange(20, 20 + BATCH)}, {})
    assert banked(student, teacher, other)["nce"] > plain(student, teacher, other)["nce"]
    first.backward()


def test_a_bank_smaller_than_the_batch_is_refused() -> None:
    student, teacher, batch = distillation()
    bank = spec(MemoryBank, size=BATCH - 1)
    objective = ContrastiveDistillation(student_dim=DIM, teacher_dim=TEACHER, bank=bank)
    with pytest.raises(BadInput, match="memory bank >= batch"):
        objective(student, teacher, batch)


def test_regression_is_the_mean_squared_error() -> None:
    student, teacher, batch = distillation()
    objective = Regression(student_dim=DIM, teacher_dim=TEACHER)
    (weight,) = objective.parameters()
    apart = student["text"].embedding_BD @ weight.T - teacher["text"].embedding_BD
    torch.testing.assert_close(objective(student, teacher, batch), {"mse": apart.square().mean()})


@pytest.mark.parametrize("centred", [True, False])
def test_hpd_projects_by_scikit_learns_pca_with_or_without_its_mean(centred: bool) -> None:
    vectors = (draw(200, TEACHER) * torch.tensor([3.0, 2.0, 1.0, 0.5]) + 4).numpy()
    objective = ProjectedRegression(student_dim=DIM, teacher_dim=TEACHER, centred=centred)
    objective.fit_teacher({"text": [vectors[:70], vectors[70:]]})
    stock = PCA(DIM, svd_solver="full").fit(vectors.astype(np.float64))
    student, _, batch = distillation()
    texts = vectors[:BATCH]
    target = stock.transform(texts) if centred else texts @ stock.components_.T
    apart = student["text"].embedding_BD.detach().numpy() - target
    term = objective(student, {"text": Encoding(torch.from_numpy(texts))}, batch)["mse"]
    assert term.item() == pytest.approx((apart**2).mean(), rel=1e-5)


@each_row("make", [InformationBottleneck, SupervisedBottleneck, ContrastiveDistillation, Regression])
def test_defaults_build_from_a_spec_and_every_parameter_gets_a_gradient(make: type[nn.Module]) -> None:
    student, teacher, batch = labelled() if make is SupervisedBottleneck else distillation()
    objective = spec(make).build(student_dim=DIM, teacher_dim=TEACHER)
    total = sum(objective(student, teacher, batch).values())
    assert total.isfinite()
    total.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in objective.parameters())
    assert all(states.embedding_BD.grad is not None for states in student.values())


@each_row(
    ("make", "switches"),
    [
        (InformationBottleneck, {"beta": -1.0}),
        (InformationBottleneck, {"input_layer": "last"}),
        (InformationBottleneck, {"hsic": spec(HSIC, kernel="laplace")}),
        (InformationBottleneck, {"output": "hidden"}),
        (SupervisedBottleneck, {"texts": "passages"}),
        (InformationBottleneck, {"hsic": spec(HSIC, gamma=0.0)}),
        (InformationBottleneck, {"nce": spec(InfoNCE, temperature=0.0)}),
        (InformationBottleneck, {"nce": spec(InfoNCE, similarity="l2")}),
        (SupervisedBottleneck, {"beta": -1.0}),
        (SupervisedBottleneck, {"nce": spec(SupervisedInfoNCE, temperature=-0.1)}),
        (ContrastiveDistillation, {"bank": spec(MemoryBank, size=-1)}),
        (ContrastiveDistillation, {"bank": spec(MemoryBank, size=8, precision="float16")}),
        (Regression, {"mse": spec(MSE, dimensions="max")}),
    ],
)
def test_bad_values_are_refused_even_at_zero_weight(make: type[nn.Module], switches: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        spec(make, **switches).build(student_dim=DIM, teacher_dim=TEACHER)


@each_row("make", [InformationBottleneck, SupervisedBottleneck])
@each_row(
    ("argument", "value"),
    [
        ("beta", 0.7),
        ("input_layer", "penultimate"),
        ("hsic", spec(HSIC, gamma=0.1)),
        ("nce", spec(InfoNCE, temperature=0.3)),
    ],
)
def test_an_argument_that_acts_through_a_term_changes_no_other(make: Any, argument: str, value: Any) -> None:
    student, teacher, batch = labelled() if make is SupervisedBottleneck else distillation()
    if argument == "nce" and make is SupervisedBottleneck:
        value = spec(SupervisedInfoNCE, temperature=0.3)
    before, after = (
        spec(make, **given).build(student_dim=DIM, teacher_dim=TEACHER) for given in ({}, {argument: value})
    )
    after.load_state_dict(before.state_dict())
    terms, others = (objective(student, teacher, batch) for objective in (before, after))
    changed = [name for name in terms if not torch.equal(terms[name], others[name])]
    assert changed == [make.acts_through[argument]]


def test_what_acts_through_a_term_is_an_argument() -> None:
    """Paths that do not exist, or terms that are misspelt, would never be found."""
    classes: list[Any] = [each for each in Objective.__subclasses__() if each.acts_through]
    assert {InformationBottleneck, SupervisedBottleneck, PatientRegression, ParallelContrast} <= set(classes)
    for each in classes:
        for path in each.acts_through:
            known, last = each, path
            while "." in last:
                first, _, last = last.partition(".")
                known = inspect.signature(known).parameters[first].default.target
            assert last in inspect.signature(known).parameters, (each, path)
