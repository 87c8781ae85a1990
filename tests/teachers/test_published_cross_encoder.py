"""A published cross-encoder: its logits, and models that give no single score."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from stillhouse.errors import BadInput
from stillhouse.teachers.cross_encoder import CrossEncoderScorer, check_cross_encoder
from stillhouse.teachers.models import resolve_model


def saved(tiny_model: Path, folder: Path, labels: int) -> Path:
    """A random BERT with a head of so many labels, and the tiny model's tokenizer."""
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=24,
        initializer_range=0.5,
    )
    config.num_labels = labels
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_its_scores_are_the_logits_that_stock_code_gives(tiny_model: Path, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    folder = saved(tiny_model, tmp_path / "one", 1)
    pairs = [("the cat", "a dog " * 40), ("the sun", "the moon")]
    scores_N1 = CrossEncoderScorer(resolve_model(str(folder)), max_length=64).score(*zip(*pairs, strict=True))
    stock = CrossEncoder(str(folder), max_length=24, activation_fn=nn.Identity(), device="cpu")
    np.testing.assert_allclose(scores_N1[:, 0], stock.predict(pairs, show_progress_bar=False), atol=1e-5)


def test_a_model_without_a_single_score_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has one label"):
        check_cross_encoder(resolve_model(str(saved(tiny_model, tmp_path / "three", 3))))
    with pytest.raises(BadInput, match="trained head"):
        check_cross_encoder(resolve_model(str(tiny_model)))
