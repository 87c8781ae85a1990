"""Pairs joined into one text, and the scorers that read them together."""

from pathlib import Path

import numpy as np
import pytest
import torch

from stillhouse.core.errors import BadInput
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.core.types import Tokens
from stillhouse.students.pair_scorer import PairScorer
from stillhouse.students.pair_transformer import TransformerScorer, join_pairs
from stillhouse.teachers.weights import resolve_model

CLAIMS, DOCUMENTS = [[2, 7, 3], [2, 8, 9, 3]], [[2, 5, 3], [2, 4, 4, 4, 3], [2, 3], [2, 6, 7, 3]]


def tokens(rows: list[list[int]]) -> Tokens:
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return Tokens(ids, torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows]))


@pytest.mark.parametrize("most", [99, 6])
def test_a_document_follows_its_claim_without_its_first_token(most: int) -> None:
    joined = join_pairs(tokens(CLAIMS), tokens(DOCUMENTS), most)
    expected = [(CLAIMS[place // 2] + row[1:])[:most] for place, row in enumerate(DOCUMENTS)]
    found = zip(joined.input_ids_BT, joined.attention_mask_BT, strict=True)
    assert [ids[mask.bool()].tolist() for ids, mask in found] == expected


def test_scores_do_not_depend_on_the_batch_and_every_parameter_learns(tiny_model: Path) -> None:
    model = TransformerScorer(resolve_model(str(tiny_model)), layers=(0, 2))
    assert model.dim == 1 and model.encoder.backbone.config.num_hidden_layers == 2
    texts = (
        ["the cat", "a dog", "the cat"],
        ["a red house", "the sun", "first last next other same each other"],
    )
    scorer = PairScorer(model, model.tokenizer.path, 16, batch_tokens=16)
    scores_N1 = scorer.score(*texts)
    assert scores_N1.shape == (3, 1) and model.training
    cut = FastTokenizer(Path(model.tokenizer.path), 16)
    model.eval()
    for row, (first, second) in enumerate(zip(*texts, strict=True)):
        sides = [tokens([cut([text])[0].tolist()]) for text in (first, second)]
        assert model(*sides).item() == pytest.approx(float(scores_N1[row, 0]), abs=1e-5)
    both = model(tokens(CLAIMS), tokens(DOCUMENTS))
    assert both.shape == (2, 2)
    both.square().sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())
    with pytest.raises(BadInput, match="multiple of the number of claims"):
        model(tokens(CLAIMS), tokens(DOCUMENTS[:3]))
    with pytest.raises(BadInput, match="second=0"):
        scorer.score(["the cat"], [])
    assert np.isfinite(scores_N1).all()
