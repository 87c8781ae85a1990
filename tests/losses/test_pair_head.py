"""Joiners compared with loops, and their dependence on the claim."""

from typing import Any

import pytest
import torch
from rows import each_row
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.losses.pair_head import KINDS, Joiner
from stillhouse.losses.softlabel import HardLabelCE

CLAIMS, DOCUMENTS, DIM = 6, 7, 4


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def joiner(kind: str, claim_dim: int = DIM, document_dim: int | None = None) -> Joiner:
    module = Joiner(claim_dim=claim_dim, document_dim=document_dim, kind=kind).double()
    with torch.no_grad():
        for seed, weight in enumerate(module.parameters()):
            weight.copy_(draw(*weight.shape, seed=seed + 7))
    return module


def by_hand(module: Joiner, claim: list[float], document: list[float]) -> float:
    weight: list[list[float]] = next(iter(module.parameters())).tolist()
    if module.kind == "bilinear":
        return sum(
            weight[f][d] * claim[d] * document[f] for d in range(len(claim)) for f in range(len(document))
        )
    features = [*claim, *document]
    if module.kind == "features":
        features += [c * d for c, d in zip(claim, document, strict=True)]
        features += [abs(c - d) for c, d in zip(claim, document, strict=True)]
    return sum(w * x for w, x in zip(weight[0], features, strict=True))


@each_row(
    ("kind", "document_dim"),
    [("bilinear", 4), ("bilinear", 3), ("features", 4), ("concat", 4), ("concat", 3)],
)
def test_scores_are_the_formula(kind: str, document_dim: int) -> None:
    module = joiner(kind, document_dim=document_dim)
    claims, documents = draw(2, DIM), draw(2, 3, document_dim, seed=1)
    scores = module(claims, documents)
    for b in range(2):
        for c in range(3):
            expected = by_hand(module, claims[b].tolist(), documents[b, c].tolist())
            assert scores[b, c].item() == pytest.approx(expected, rel=1e-12)


@each_row("kind", KINDS)
def test_the_ranking_depends_on_the_claim_except_for_concat(kind: str) -> None:
    """Every claim has the same documents; then the claims are permuted."""
    module = joiner(kind)
    claims, documents = draw(CLAIMS, DIM), draw(DOCUMENTS, DIM, seed=1).expand(CLAIMS, -1, -1)
    ranking = module(claims, documents).argsort(dim=1)
    permuted = module(claims.roll(1, dims=0), documents).argsort(dim=1)
    assert torch.equal(ranking.roll(1, dims=0), permuted)
    assert torch.equal(ranking, permuted) == (kind == "concat")


def test_concat_never_learns_from_the_claim() -> None:
    """Under a softmax over candidates, the gradient of the claim's half is zero."""
    module = joiner("concat")
    claims = draw(CLAIMS, DIM).requires_grad_()
    labels = torch.nn.functional.one_hot(torch.arange(CLAIMS), DOCUMENTS)
    HardLabelCE()(module(claims, draw(CLAIMS, DOCUMENTS, DIM, seed=1)), labels).backward()
    (weight,) = module.parameters()
    assert weight.grad is not None and claims.grad is not None
    assert weight.grad[0, :DIM].abs().max() < 1e-12 < weight.grad[0, DIM:].abs().min()
    assert claims.grad.abs().max() < 1e-12


@pytest.mark.parametrize("document_dim", [DIM, 3])
def test_bilinear_scores_can_be_served_by_inner_product_search(document_dim: int) -> None:
    module = joiner("bilinear", document_dim=document_dim)
    claims, documents = draw(CLAIMS, DIM), draw(DOCUMENTS, document_dim, seed=1)
    served = module.search_vector(claims) @ documents.T
    torch.testing.assert_close(served, module(claims, documents.expand(CLAIMS, -1, -1)))


def test_bilinear_starts_as_the_plain_inner_product() -> None:
    claims, documents = draw(2, DIM), draw(2, 3, DIM, seed=1)
    expected = (documents @ claims[:, :, None]).squeeze(-1)
    torch.testing.assert_close(Joiner(claim_dim=DIM).double()(claims, documents), expected)


@each_row("kind", KINDS)
def test_gradients(kind: str) -> None:
    module = joiner(kind)
    inputs = (draw(2, DIM).requires_grad_(), draw(2, 3, DIM, seed=1).requires_grad_())
    assert torch.autograd.gradcheck(module, inputs)
    module(*inputs).square().sum().backward()
    assert all(weight.grad is not None and bool(weight.grad.any()) for weight in module.parameters())


@each_row("kind", KINDS)
def test_half_precision_inputs_are_upcast(kind: str) -> None:
    module = Joiner(claim_dim=DIM, kind=kind)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = module(torch.zeros(2, DIM).bfloat16(), torch.ones(2, 3, DIM).bfloat16())
    assert scores.dtype == torch.float32 and scores.isfinite().all()


@pytest.mark.parametrize("kind", ["features", "concat"])
def test_only_bilinear_can_be_searched(kind: str) -> None:
    with pytest.raises(BadInput, match="kind = bilinear"):
        Joiner(claim_dim=DIM, kind=kind).search_vector(torch.ones(1, DIM))


@each_row(
    "switches",
    [{"kind": "cosine"}, {"claim_dim": 0}, {"document_dim": 0}, {"kind": "features", "document_dim": 3}],
)
def test_values_out_of_range_are_refused(switches: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Joiner(**{"claim_dim": DIM, **switches})


@each_row(
    ("claims", "documents"), [((2, 4), (3, 5, 4)), ((2, 4), (2, 4)), ((2, 3), (2, 5, 4)), ((2, 4), (2, 5, 3))]
)
def test_mismatched_shapes_are_refused(claims: tuple[int, ...], documents: tuple[int, ...]) -> None:
    with pytest.raises(BadInput):
        Joiner(claim_dim=4)(torch.ones(claims), torch.ones(documents))
