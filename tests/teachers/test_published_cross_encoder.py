"""A published cross-encoder: its logits, and models without a single score."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from stillhouse.core.errors import BadInput
from stillhouse.teachers.cross_encoder import CrossEncoderScorer, check_cross_encoder
from stillhouse.teachers.weights import resolve_model

MakeCrossEncoder = Callable[[int], Path]


def test_scores_are_the_logits_of_stock_code(tiny_cross_encoder: MakeCrossEncoder) -> None:
    from sentence_transformers import CrossEncoder

    folder = tiny_cross_encoder(1)
    pairs = [("the cat", "a dog " * 40), ("the sun", "the moon")]
    scores_N1 = CrossEncoderScorer(resolve_model(str(folder)), max_length=64).score(*zip(*pairs, strict=True))
    stock = CrossEncoder(str(folder), max_length=24, activation_fn=nn.Identity(), device="cpu")
    np.testing.assert_allclose(scores_N1[:, 0], stock.predict(pairs, show_progress_bar=False), atol=1e-5)


def test_a_model_without_a_single_score_is_refused(
    tiny_model: Path, tiny_cross_encoder: MakeCrossEncoder
) -> None:
    with pytest.raises(BadInput, match="has one label"):
        check_cross_encoder(resolve_model(str(tiny_cross_encoder(3))))
    with pytest.raises(BadInput, match="trained head"):
        check_cross_encoder(resolve_model(str(tiny_model)))
