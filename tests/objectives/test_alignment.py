"""The alignment with the teacher's space: each term by hand, its weight, and the cost of a zero weight."""

import math
from typing import Any

import pytest
import torch
from rows import each_row
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.core.types import Batch, Encoding
from stillhouse.losses.cosine import CosineDistance
from stillhouse.losses.regression import MSE
from stillhouse.losses.relational import SimilarityMatrix, SpreadOut
from stillhouse.objectives.alignment import Alignment

DIM = 4
WEIGHTS = {"relational_weight": 3.0, "cosine_weight": 0.5, "spread_weight": 0.2}


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def given() -> tuple[Tensor, Tensor, list[int]]:
    """Student, teacher and rows: crowded vectors, of which two are of the same text."""
    return draw(6, DIM, seed=1) + 1, 3 * draw(6, DIM, seed=2), [4, 5, 4, 7, 8, 9]


def terms_of(**values: Any) -> dict[str, Tensor]:
    student, teacher, rows = given()
    batch = Batch({}, {"text": torch.tensor(rows)}, {})
    objective = Alignment(student_dim=DIM, teacher_dim=DIM, **values)
    sides = ({"text": Encoding(each)} for each in (student.requires_grad_(), teacher))
    return dict(objective(*sides, batch))


def by_hand(normalize: bool) -> dict[str, float]:
    student, teacher, rows = ([list(map(float, row)) for row in given()[0]], given()[1].tolist(), given()[2])

    def length(vector: list[float]) -> float:
        return math.sqrt(sum(x * x for x in vector))

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True)) / length(a) / length(b)

    def scaled(vector: list[float]) -> list[float]:
        return [x / length(vector) for x in vector] if normalize else vector

    places = range(len(rows))
    squares = [
        sum((x - y) ** 2 for x, y in zip(scaled(s), scaled(t), strict=True))
        for s, t in zip(student, teacher, strict=True)
    ]
    gaps = [
        cosine(student[i], student[j]) - cosine(teacher[i], teacher[j])
        for i in places
        for j in places
        if i != j
    ]
    apart = [cosine(student[i], student[j]) for i in places for j in places if rows[i] != rows[j]]
    mean, second = sum(apart) / len(apart), sum(each**2 for each in apart) / len(apart)
    assert len(apart) == len(gaps) - 2 and second > 1 / DIM
    return {
        "mse": sum(squares) / len(squares),
        "relational": 3.0 * sum(gap**2 for gap in gaps) / len(gaps),
        "cosine": 0.5 * sum(1 - cosine(s, t) for s, t in zip(student, teacher, strict=True)) / len(student),
        "spread": 0.2 * (mean**2 + second - 1 / DIM),
    }


@pytest.mark.parametrize("normalize", [False, True])
def test_every_term_has_its_value_and_its_weight(normalize: bool) -> None:
    terms = {name: term.item() for name, term in terms_of(normalize=normalize, **WEIGHTS).items()}
    assert terms == pytest.approx(by_hand(normalize), rel=1e-9)


@each_row(
    ("weight", "loss"),
    [
        ("relational_weight", SimilarityMatrix),
        ("cosine_weight", CosineDistance),
        ("spread_weight", SpreadOut),
    ],
)
def test_a_term_of_weight_zero_is_not_computed(
    weight: str, loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def computed(*_: object) -> None:
        raise AssertionError("computed")

    monkeypatch.setattr(loss, "forward", computed)
    name = Alignment.acts_through[weight]
    assert set(terms_of(**{**WEIGHTS, weight: 0.0})) == {"mse", "relational", "cosine", "spread"} - {name}
    with pytest.raises(AssertionError, match="computed"):
        terms_of(**WEIGHTS)


def test_without_further_terms_nothing_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[Tensor] = []

    def gather(local: Tensor) -> Tensor:
        gathered.append(local)
        return local

    monkeypatch.setattr("stillhouse.objectives.alignment.gather", gather)
    assert list(terms_of()) == ["mse"] and list(terms_of(cosine_weight=1.0)) == ["mse", "cosine"]
    assert not gathered
    terms_of(relational_weight=1.0)
    assert [each.requires_grad for each in gathered] == [True, False]


@each_row(("argument", "value"), [*WEIGHTS.items(), ("normalize", True)])
def test_an_argument_that_acts_through_a_term_changes_no_other(argument: str, value: Any) -> None:
    before, after = terms_of(**WEIGHTS), terms_of(**{**WEIGHTS, argument: 2 * value if value != 1 else value})
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed == [Alignment.acts_through[argument]]


def test_for_unit_vectors_the_regression_is_twice_one_minus_the_cosine() -> None:
    terms = terms_of(normalize=True, cosine_weight=1.0)
    assert terms["mse"].item() == pytest.approx(2 * terms["cosine"].item(), rel=1e-12)


@each_row(
    "values",
    [{"relational_weight": -1.0}, {"cosine_weight": -0.1}, {"spread_weight": -1e-3}, {"student_dim": 3}],
)
def test_what_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        spec(Alignment, **values).build(student_dim=DIM, teacher_dim=DIM)


def test_the_regression_may_be_another() -> None:
    plain, meaned = terms_of(), terms_of(mse=spec(MSE, projection=False))
    assert plain["mse"].item() == pytest.approx(DIM * meaned["mse"].item(), rel=1e-12)
