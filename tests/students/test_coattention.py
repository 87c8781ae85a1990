"""The coattention scorer compared with its equations, word by word."""

from pathlib import Path
from typing import Any

import pytest
import torch
from rows import each_row
from safetensors.torch import save_file
from torch import Tensor, nn

from stillhouse.core.errors import BadInput
from stillhouse.core.types import Tokens
from stillhouse.students.coattention import CoattentionScorer
from stillhouse.students.lstm import MaskedLSTM
from stillhouse.students.transformer import load_weights
from stillhouse.values.data import Model

VOCABULARY, DIM = 20, 5
CLAIMS = [[2, 3, 4], [5], [6, 7, 8, 9, 10]]
DOCUMENTS = [[11, 2, 3], [12, 13, 14, 15, 16, 17], [4], [5, 6], [18, 19], [7, 8, 9, 3, 2]]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Model:
    import tokenizers
    from tokenizers import models

    folder = tmp_path_factory.mktemp("words")
    ids = {f"w{row}": row for row in range(VOCABULARY)}
    tokenizers.Tokenizer(models.WordLevel(ids, unk_token="w1")).save(str(folder / "tokenizer.json"))
    vectors = torch.randn(VOCABULARY, DIM, generator=torch.Generator().manual_seed(0))
    save_file({"vectors": vectors}, folder / "model.safetensors")
    return Model(sha256="words", path=str(folder))


@pytest.fixture
def scorer(words: Model) -> CoattentionScorer:
    module = CoattentionScorer(words, units=4, head_units=3).double()
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return module.eval()


def tokens(rows: list[list[int]], width: int = 0, padding: int = 0) -> Tokens:
    width = max(width, *map(len, rows))
    ids_BT = torch.tensor([row + [padding] * (width - len(row)) for row in rows])
    mask_BT = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return Tokens(ids_BT, mask_BT)


def stock(lstm: MaskedLSTM) -> nn.LSTM:
    """Torch's own LSTM with the same weights."""
    both, dtype = lstm.bidirectional, next(lstm.parameters()).dtype
    module = nn.LSTM(lstm.width, lstm.units, batch_first=True, bidirectional=both, dtype=dtype)
    module.load_state_dict(lstm.stock_weights())
    return module


def by_hand(scorer: CoattentionScorer, claim: list[int], document: list[int]) -> float:
    """Score one pair column by column as in the coattention paper, where the sentinels come last."""

    def encode(text: list[int], sentinel: Tensor) -> list[Tensor]:
        states, _ = stock(scorer.encoder)(scorer.words(torch.tensor([text])))
        return [*states[0], sentinel]

    claim_states = [torch.tanh(scorer.query(q)) for q in encode(claim, scorer.sentinels[0])]
    document_states = encode(document, scorer.sentinels[1])
    affinity = [[d @ q for q in claim_states] for d in document_states]

    def softmax(values: list[Tensor]) -> list[Tensor]:
        weights = [value.exp() for value in values]
        return [weight / torch.stack(weights).sum() for weight in weights]

    summaries = []
    for j in range(len(claim_states)):
        weights = softmax([row[j] for row in affinity])
        summaries.append(torch.stack([w * d for w, d in zip(weights, document_states, strict=True)]).sum(0))
    columns = []
    for i in range(len(document)):
        weights = softmax(affinity[i])
        seen = [w * torch.cat([q, s]) for w, q, s in zip(weights, claim_states, summaries, strict=True)]
        columns.append(torch.cat([document_states[i], torch.stack(seen).sum(0)]))
    fused, _ = stock(scorer.fusion)(torch.stack(columns)[None])
    return float(scorer.head(fused[0].max(dim=0).values))


def test_scores_match_the_equations(scorer: CoattentionScorer) -> None:
    with torch.no_grad():
        scores = scorer(tokens(CLAIMS), tokens(DOCUMENTS))
        assert scores.shape == (3, 2) and scores.dtype == torch.float64
        for b, claim in enumerate(CLAIMS):
            for c in range(2):
                expected = by_hand(scorer, claim, DOCUMENTS[2 * b + c])
                assert scores[b, c].item() == pytest.approx(expected, abs=1e-10)


def test_padding_changes_nothing(scorer: CoattentionScorer) -> None:
    with torch.no_grad():
        plain = scorer(tokens(CLAIMS), tokens(DOCUMENTS))
        padded = scorer(tokens(CLAIMS, width=11, padding=9), tokens(DOCUMENTS, width=17, padding=3))
    torch.testing.assert_close(padded, plain, rtol=0, atol=1e-12)


def test_texts_without_words_are_scored(scorer: CoattentionScorer) -> None:
    scores = scorer(tokens([[2], []]), tokens([[], [3], [4], []]))
    assert scores.isfinite().all()
    scores.sum().backward()
    assert all(w.grad is not None and w.grad.isfinite().all() for w in scorer.parameters() if w.requires_grad)


def test_a_candidates_score_depends_on_the_claim_only(scorer: CoattentionScorer) -> None:
    with torch.no_grad():
        scores = scorer(tokens(CLAIMS[:1]), tokens(DOCUMENTS))
        turned = scorer(tokens(CLAIMS[:1]), tokens(DOCUMENTS[::-1]))
        other = scorer(tokens(CLAIMS[1:2]), tokens(DOCUMENTS))
    torch.testing.assert_close(turned, scores.flip(1))
    differences = (other - scores)[0]
    assert differences.std() > 1e-3


def test_every_trainable_parameter_gets_a_gradient(words: Model) -> None:
    for train_words in (False, True):
        scorer = CoattentionScorer(words, units=4, head_units=8, train_words=train_words)
        scorer(tokens(CLAIMS), tokens(DOCUMENTS)).square().sum().backward()
        for name, weight in scorer.named_parameters():
            reached = weight.grad is not None and bool(weight.grad.any())
            assert reached == weight.requires_grad == (train_words or name != "words.weight")


def test_it_is_about_as_large_as_the_papers_teacher(tmp_path: Path, words: Model) -> None:
    folder = tmp_path / "wide"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((Path(words.path) / "tokenizer.json").read_bytes())
    save_file({"vectors": torch.zeros(VOCABULARY, 300)}, folder / "model.safetensors")
    scorer = CoattentionScorer(Model(sha256="wide", path=str(folder)))
    trained = sum(weight.numel() for weight in scorer.parameters() if weight.requires_grad)
    units, head = 256, 200
    encoder = 4 * units * (300 + units + 2)
    fusion = 2 * 4 * units * (3 * units + units + 2)
    assert trained == encoder + units * (units + 1) + 2 * units + fusion + (2 * units + 1) * head + head + 1
    assert trained == pytest.approx(2.85e6, rel=0.01)


def test_the_seed_decides_and_the_global_random_state_is_kept(words: Model, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    one, two, other = (CoattentionScorer(words, units=4, seed=seed).eval() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    given = (tokens(CLAIMS), tokens(DOCUMENTS))
    with torch.no_grad():
        assert torch.equal(one(*given), two(*given))
        assert not torch.allclose(one(*given), other(*given))
        save_file(one.state_dict(), tmp_path / "scorer.safetensors")
        load_weights(other, tmp_path / "scorer.safetensors", new=())
        assert torch.equal(one(*given), other(*given))


def test_dropout_is_for_training_only(words: Model) -> None:
    scorer, given = CoattentionScorer(words, units=4, dropout=0.5), (tokens(CLAIMS), tokens(DOCUMENTS))
    with torch.no_grad():
        assert not torch.equal(scorer.train()(*given), scorer(*given))
        assert torch.equal(scorer.eval()(*given), scorer(*given))


def test_scores_stay_float32_under_autocast(words: Model) -> None:
    scorer, given = CoattentionScorer(words, units=4).eval(), (tokens(CLAIMS), tokens(DOCUMENTS))
    with torch.no_grad():
        plain = scorer(*given)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = scorer(*given)
    assert plain.dtype == rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, plain, atol=0.03, rtol=0.03)


@each_row("switches", [{"units": 0}, {"head_units": 0}, {"dropout": 1.0}, {"word_dim": 7}])
def test_values_out_of_range_are_refused(switches: dict[str, Any], words: Model) -> None:
    with pytest.raises(BadInput):
        CoattentionScorer(words, **{"units": 4, **switches})


def test_a_document_count_not_divisible_by_claims_is_refused(scorer: CoattentionScorer) -> None:
    for documents in (DOCUMENTS[:2], DOCUMENTS[:4]):
        with pytest.raises(BadInput, match="multiple of the number of claims"):
            scorer(tokens(CLAIMS), tokens(documents))
