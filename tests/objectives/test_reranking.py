"""Objectives on a reranker's scores, against sentence-transformers and loops in float64."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from rows import each_row
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.core.types import Batch, Encoding
from stillhouse.losses.contrastive import SupervisedInfoNCE
from stillhouse.losses.softlabel import HardLabelCE, KLDivergence, MarginMSE, RelevanceBCE
from stillhouse.objectives.reranking import RelevantFirst, RerankedPairs

QUERIES, NEGATIVES, DIM = 4, 3, 5
MARGINS, DIVERGENCE = spec(MarginMSE), spec(KLDivergence, temperature=2.0)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def student(gradient: bool = False) -> dict[str, Encoding]:
    vectors = {
        "query": draw(QUERIES, DIM),
        "passage": draw(QUERIES, DIM, seed=1),
        "negatives": draw(QUERIES * NEGATIVES, DIM, seed=2),
    }
    return {name: Encoding(value.requires_grad_(gradient)) for name, value in vectors.items()}


def batch() -> Batch:
    rows = {
        "query": torch.arange(QUERIES),
        "passage": torch.arange(QUERIES),
        "negatives": 100 + torch.arange(QUERIES * NEGATIVES).view(QUERIES, NEGATIVES),
    }
    return Batch({}, rows, {}, {"scores": 4 * draw(QUERIES, 1 + NEGATIVES, seed=3)}, {})


def plain_scores(similarity: str, scale: float) -> list[list[float]]:
    """The student's scores, one product after another."""
    vectors = {name: encoding.embedding_BD.tolist() for name, encoding in student().items()}
    found = []
    for row in range(QUERIES):
        query = vectors["query"][row]
        candidates = [
            vectors["passage"][row],
            *vectors["negatives"][row * NEGATIVES : (row + 1) * NEGATIVES],
        ]
        products = [sum(a * b for a, b in zip(query, each, strict=True)) for each in candidates]
        if similarity == "cosine":
            lengths = [math.hypot(*query) * math.hypot(*each) for each in candidates]
            products = [product / length for product, length in zip(products, lengths, strict=True)]
        found.append([scale * product for product in products])
    return found


@each_row("similarity", ["cosine", "dot"])
@each_row("scale", [1.0, 20.0])
def test_margins_follow_the_reranker(similarity: str, scale: float) -> None:
    total, teacher = 0.0, batch().values["scores"].tolist()
    for own, given in zip(plain_scores(similarity, scale), teacher, strict=True):
        for s, t in zip(own[1:], given[1:], strict=True):
            total += ((own[0] - s) - (given[0] - t)) ** 2 / (QUERIES * NEGATIVES)
    terms = RerankedPairs(soft=MARGINS, similarity=similarity, scale=scale)(student(), {}, batch())
    assert list(terms) == ["soft"] and terms["soft"].item() == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_the_objective_equals_sentence_transformers(similarity: str) -> None:
    """Values and the gradients of every vector, with stock code on the same vectors."""
    from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss, MarginMSELoss
    from sentence_transformers.util import pairwise_cos_sim, pairwise_dot_score

    stock_similarity = pairwise_cos_sim if similarity == "cosine" else pairwise_dot_score
    references: list[tuple[Any, Any]] = [
        (MARGINS, MarginMSELoss(None, similarity_fct=stock_similarity)),
        (DIVERGENCE, DistillKLDivLoss(None, similarity_fct=stock_similarity, temperature=2.0)),
    ]
    for soft, stock in references:
        ours, theirs = student(gradient=True), student(gradient=True)
        objective = RerankedPairs(soft=soft, similarity=similarity, weight=0.5)
        (term,) = objective(ours, {}, batch()).values()
        query, passage, flat = (theirs[name].embedding_BD for name in ("query", "passage", "negatives"))
        columns = [query, passage, *flat.view(QUERIES, NEGATIVES, DIM).unbind(dim=1)]
        expected = 0.5 * stock.compute_loss_from_embeddings(columns, batch().values["scores"])
        torch.testing.assert_close(term, expected, rtol=1e-9, atol=1e-12)
        gradients = [
            torch.autograd.grad(value, [encoding.embedding_BD for encoding in of.values()])
            for value, of in ((term, ours), (expected, theirs))
        ]
        for own, other in zip(*gradients, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-6, atol=1e-9)


def test_the_contrast_stands_beside_the_weighted_divergence() -> None:
    nce = spec(SupervisedInfoNCE, temperature=0.3, share_negatives=True)
    vectors = {name: encoding.embedding_BD for name, encoding in student().items()}
    rows = batch().rows
    contrast = nce.build()(
        vectors["query"],
        vectors["passage"],
        vectors["negatives"].view(QUERIES, NEGATIVES, DIM),
        rows["query"],
        rows["passage"],
        rows["negatives"],
    )
    alone = RerankedPairs(soft=DIVERGENCE, scale=7.0)(student(), {}, batch())["soft"]
    both = RerankedPairs(soft=DIVERGENCE, nce=nce, weight=0.3, scale=7.0)(student(), {}, batch())
    assert list(both) == ["nce", "soft"]
    assert both["nce"].item() == pytest.approx(contrast.item(), rel=1e-12)
    assert both["soft"].item() == pytest.approx(0.3 * alone.item(), rel=1e-12)


def test_weight_zero_reads_no_scores() -> None:
    bare = Batch({}, batch().rows, {}, {}, {})
    terms = RerankedPairs(soft=DIVERGENCE, nce=spec(SupervisedInfoNCE), weight=0.0)(student(), {}, bare)
    assert list(terms) == ["nce"]


@pytest.mark.parametrize("loss", [HardLabelCE, RelevanceBCE])
def test_a_reranker_learns_that_the_first_is_relevant(loss: Any) -> None:
    scores, total = draw(QUERIES, 1 + NEGATIVES), 0.0
    for row in scores.tolist():
        if loss is HardLabelCE:
            total -= math.log(math.exp(row[0]) / sum(math.exp(s) for s in row)) / QUERIES
        else:
            likely = [1 / (1 + math.exp(-s)) for s in row]
            total -= sum(map(math.log, [likely[0], *(1 - p for p in likely[1:])])) / (
                QUERIES * (1 + NEGATIVES)
            )
    terms = RelevantFirst(loss=spec(loss))({"scores": Encoding(scores)}, {}, batch())
    assert terms["hard"].item() == pytest.approx(total, rel=1e-12)


def remarks(span: float, **values: Any) -> list[str]:
    scores = np.array([[0.0, -span / 2, -span], [span, 0.0, 0.5 * span]], np.float32)
    return list(RerankedPairs(**values).remarks({"scores": scores}))


@each_row(
    ("span", "values", "proposed"),
    [
        (20.0, {"similarity": "cosine"}, "Set scale=20."),
        (20.0, {"similarity": "dot", "unit_vectors": True}, "Set scale=20."),
        (11.4, {"similarity": "cosine", "scale": 5.0}, "Set scale=11."),
        (1.0, {"similarity": "cosine", "scale": 20.0}, "Set scale=1."),
        (20.0, {"soft": DIVERGENCE, "scale": 20.0}, None),
        (30.0, {"soft": DIVERGENCE, "scale": 20.0}, "Set temperature=6."),
        (20.0, {"similarity": "dot"}, None),
        (8.0, {"similarity": "cosine", "scale": 10.0}, None),
        (0.0, {"similarity": "cosine"}, None),
        (20.0, {"nce": spec(SupervisedInfoNCE), "weight": 0.0}, None),
    ],
)
def test_scores_of_another_scale_are_remarked_on(span: float, values: Any, proposed: str | None) -> None:
    found = remarks(span, **values)
    assert [line.rpartition(". ")[2] for line in found] == ([] if proposed is None else [proposed])
    again = dict(part.split("=") for line in found for part in [line.rpartition("Set ")[2].rstrip(".")])
    named: dict[str, Any] = {"scale": float(again["scale"])} if "scale" in again else {}
    if "temperature" in again:
        named["soft"] = spec(KLDivergence, temperature=float(again["temperature"]))
    assert remarks(span, **{**values, **named}) == [], "what is proposed needs no remark"


@each_row(
    "values", [{"weight": -1.0}, {"scale": 0.0}, {"similarity": "angle"}, {"weight": 0.0}, {"soft": None}]
)
def test_values_out_of_range_are_refused(values: Any) -> None:
    with pytest.raises(BadInput):
        RerankedPairs(**values)
