import math
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from rows import each_row
from torch import nn

from stillhouse.evaluation.vector_geometry import (
    alignment,
    collapse,
    effective_rank,
    random_pair_cosine,
    uniformity,
)

Floats = npt.NDArray[np.float32]


def gaussian(rows: int, dim: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)


def test_random_pair_cosine_matches_its_definition() -> None:
    x = gaussian(30, 5).astype(np.float64)
    unit = x / np.linalg.norm(x, axis=1)[:, None]
    pairs = [unit[i] @ unit[j] for i in range(30) for j in range(30) if i != j]
    assert random_pair_cosine(x) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("shape", [(64, 8), (8, 64)])
def test_effective_rank_matches_its_definition(shape: tuple[int, int]) -> None:
    x = gaussian(*shape)
    values = np.linalg.svd(x.astype(np.float64), compute_uv=False)
    shares = values / values.sum()
    assert effective_rank(x) == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    assert effective_rank(np.eye(6)) == pytest.approx(6)
    assert effective_rank(np.outer(np.arange(1, 9), np.ones(5))) == pytest.approx(1, abs=1e-5)
    assert effective_rank(np.ones((9, 5)), centre=True) == 0


def trained_to(target: Callable[[torch.Tensor], torch.Tensor]) -> Floats:
    """Return the vectors of a network that was trained to a function of its inputs, times a direction."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 32))
    texts, direction = torch.randn(128, 16), torch.randn(32)
    assert collapse(net(texts).detach().numpy()) is None
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(300):
        optimizer.zero_grad()
        loss: torch.Tensor = (net(texts) - target(texts) * direction).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    vectors: Floats = net(texts).detach().numpy()
    return vectors


def test_a_network_trained_to_a_constant_is_reported() -> None:
    vectors = trained_to(lambda texts: torch.ones(len(texts), 1))
    assert "mean cosine of random pairs" in str(collapse(vectors))


def test_a_network_trained_to_one_direction_is_reported() -> None:
    vectors = trained_to(lambda texts: torch.sign(texts[:, :1]))
    assert random_pair_cosine(vectors) < 0.5
    assert "of 32 dimensions" in str(collapse(vectors))
    assert collapse(vectors, few_directions=True) is None


def test_noise_does_not_hide_a_collapse() -> None:
    plane = gaussian(512, 2) @ gaussian(2, 384, 1) + 0.01 * gaussian(512, 384, 2)
    assert "dimensions" in str(collapse(plane))
    point = np.ones((512, 384), np.float32) + 0.01 * gaussian(512, 384)
    assert "mean cosine" in str(collapse(point))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_vector_that_is_not_finite_is_reported(value: float) -> None:
    vectors = gaussian(20, 8)
    vectors[3, 1] = value
    assert collapse(vectors) == "diverged: 1 of 20 vectors contain NaN or infinity"


def test_zero_vectors_are_reported() -> None:
    assert collapse(np.zeros((20, 8), np.float32)) == "collapsed: 20 of 20 vectors are zero"


@each_row(("layers", "hidden", "pooled"), [(1, 32, "mean"), (4, 32, "mean"), (2, 64, "mean")])
def test_an_untrained_bert_is_healthy(layers: int, hidden: int, pooled: str) -> None:
    """Its vectors are far from uniform, with cosines above 0.9, but it must not count as collapsed."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    bert: nn.Module = BertModel(
        BertConfig(
            vocab_size=500,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=2,
            intermediate_size=4 * hidden,
        )
    )
    bert.eval()
    ids = torch.randint(500, (200, 12))
    with torch.no_grad():
        vectors = bert(ids).last_hidden_state.mean(dim=1).numpy()
    assert random_pair_cosine(vectors) > 0.8
    assert collapse(vectors) is None


def test_healthy_embeddings_pass() -> None:
    for rows, dim in ((2, 3), (16, 4), (64, 16), (256, 128), (512, 384)):
        assert collapse(gaussian(rows, dim)) is None
        assert collapse(gaussian(rows, dim) + 2) is None


def test_it_is_cheap() -> None:
    vectors = gaussian(512, 384)
    collapse(vectors)
    seconds = []
    for _ in range(5):
        start = time.process_time()  # A busy machine does not make it slower.
        collapse(vectors)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.2


def test_alignment_and_uniformity_are_those_of_wang_and_isola() -> None:
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(1500, 5)), draw.normal(size=(1500, 5))
    x, y = (torch.nn.functional.normalize(torch.tensor(each), dim=1) for each in (a, b))
    assert alignment(a, b) == pytest.approx(float((x - y).norm(p=2, dim=1).pow(2).mean()))
    reference = float(torch.pdist(x, p=2).pow(2).mul(-2).exp().mean().log())
    assert uniformity(a) == pytest.approx(reference)
    assert uniformity(np.eye(2)) == pytest.approx(-4.0) and alignment(3 * a, a) == pytest.approx(0.0)
