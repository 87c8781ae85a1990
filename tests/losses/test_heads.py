"""Classification heads and their losses compared with loops, closed forms and invariants."""

import math
from typing import Any

import pytest
import torch
from rows import each_row
from torch import Tensor, nn

from stillhouse.core.errors import BadInput
from stillhouse.losses.heads import UNLABELLED, ClassificationHead, LabelsAndLogits, compared


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def head(pair: bool, **options: Any) -> ClassificationHead:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        options = {"student_dim": 3, "classes": 4, "hidden": 5, **options}
        return ClassificationHead(pair=pair, **options).double()


@pytest.mark.parametrize("pair", [False, True])
def test_the_head_is_an_mlp(pair: bool) -> None:
    module, first, second = head(pair), draw(2, 3), draw(2, 3, seed=1)
    inner, outer = (layer for layer in module.layers if isinstance(layer, nn.Linear))
    found = module(first, second) if pair else module(first)
    for row in range(2):
        h, o = first[row].tolist(), second[row].tolist()
        x = [*h, *o, *(abs(a - b) for a, b in zip(h, o, strict=True))] if pair else h
        x += [a * b for a, b in zip(h, o, strict=True)] if pair else []
        units = [
            max(0.0, sum(w * v for w, v in zip(weights, x, strict=True)) + bias)
            for weights, bias in zip(inner.weight.tolist(), inner.bias.tolist(), strict=True)
        ]
        for c in range(4):
            expected = sum(w * u for w, u in zip(outer.weight[c].tolist(), units, strict=True))
            assert found[row, c].item() == pytest.approx(expected + outer.bias[c].item(), rel=1e-12)


def test_the_pair_head_has_the_size_of_the_paper() -> None:
    """4 120 576 parameters in the BiLSTM and W plus this head give 4.91 M."""
    module = ClassificationHead(student_dim=768, classes=2, pair=True)
    assert sum(weight.numel() for weight in module.parameters()) == 787_202
    assert round((4_120_576 + 787_202) / 1e6, 2) == 4.91


def test_compared_features_are_symmetric_where_expected() -> None:
    one, two = compared(draw(2, 3), draw(2, 3, seed=1)), compared(draw(2, 3, seed=1), draw(2, 3))
    assert torch.equal(one[:, 6:], two[:, 6:]) and torch.equal(one[:, :3], two[:, 3:6])
    assert compared(draw(2, 3), draw(2, 3))[:, 6:9].abs().sum() == 0


def test_score_gives_probabilities_without_dropout() -> None:
    module = head(False, dropout=0.5).train()
    found = module.score(draw(6, 3))
    assert torch.equal(found, module.score(draw(6, 3))) and module.training and not found.requires_grad
    torch.testing.assert_close(found.sum(dim=1), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(found, module.eval()(draw(6, 3)).softmax(dim=1))


@each_row("classes", ["mean", "sum"])
@each_row("alpha", [0.0, 0.3, 1.0])
def test_the_loss_is_the_equation(alpha: float, classes: str) -> None:
    logits, teacher, labels = draw(4, 3), draw(4, 3, seed=1), [2, 0, UNLABELLED, 1]
    entropy = 0.0
    for row, label in zip(logits.tolist(), labels, strict=True):
        if label != UNLABELLED:
            entropy += (math.log(sum(math.exp(z) for z in row)) - row[label]) / 3
    squares = sum(
        (z - t) ** 2 for z, t in zip(logits.flatten().tolist(), teacher.flatten().tolist(), strict=True)
    )
    distance = squares / (12 if classes == "mean" else 4)
    terms = LabelsAndLogits(alpha=alpha, classes=classes)(logits, torch.tensor(labels), teacher)
    assert set(terms) == {*(["labels"] if alpha > 0 else []), *(["logits"] if alpha < 1 else [])}
    total = sum(term.item() for term in terms.values())
    assert total == pytest.approx(alpha * entropy + (1 - alpha) * distance, rel=1e-12)


def test_only_the_terms_in_use_need_their_inputs() -> None:
    logits, labels = draw(2, 3), torch.tensor([0, 1])
    assert LabelsAndLogits(alpha=1.0)(logits, labels)["labels"] > 0
    assert LabelsAndLogits(alpha=0.0)(logits, None, logits)["logits"] == 0
    with pytest.raises(BadInput, match="labels"):
        LabelsAndLogits(alpha=0.5)(logits, None, logits)
    with pytest.raises(BadInput, match="teacher"):
        LabelsAndLogits(alpha=0.5)(logits, labels)


def test_a_batch_without_labels_has_no_cross_entropy() -> None:
    logits = draw(2, 3).requires_grad_()
    term = LabelsAndLogits(alpha=1.0)(logits, torch.tensor([UNLABELLED] * 2))["labels"]
    (gradient,) = torch.autograd.grad(term, logits)
    assert term.item() == 0 and gradient.abs().sum() == 0


def test_gradients() -> None:
    labels, teacher = torch.tensor([2, 0, UNLABELLED]), draw(3, 4, seed=2)
    module, loss = head(True), LabelsAndLogits(alpha=0.4)

    def total(first: Tensor, second: Tensor) -> Tensor:
        return torch.stack(list(loss(module(first, second), labels, teacher).values())).sum()

    assert torch.autograd.gradcheck(total, (draw(3, 3).requires_grad_(), draw(3, 3, seed=1).requires_grad_()))
    gradients = torch.autograd.grad(total(draw(3, 3), draw(3, 3, seed=1)), list(module.parameters()))
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


def test_half_precision_inputs_are_upcast() -> None:
    module = head(True).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = module(torch.ones(2, 3).bfloat16(), torch.zeros(2, 3).half())
        terms = LabelsAndLogits(alpha=0.5)(logits.bfloat16(), torch.tensor([0, 1]), logits.half())
    assert logits.dtype == torch.float32 and all(term.dtype == torch.float32 for term in terms.values())


@each_row("options", [{"classes": 1}, {"hidden": 0}, {"dropout": 1.0}])
def test_invalid_heads_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(options))):
        head(True, **options)


def test_mismatched_vectors_and_labels_are_refused() -> None:
    single, pairs, x = head(False), head(True), draw(2, 3)
    for module, given in ((single, (x, x)), (pairs, (x,)), (pairs, (x, draw(3, 3))), (single, (draw(2, 4),))):
        with pytest.raises(BadInput):
            module(*given)
    loss = LabelsAndLogits(alpha=0.5)
    for labels, teacher in (([0, 4], x), ([-2, 0], x), ([0], x), ([0, 1], draw(2, 4))):
        with pytest.raises(BadInput):
            loss(x, torch.tensor(labels), teacher)
    for options in ({"alpha": -0.1}, {"alpha": 1.1}, {"classes": "max"}):
        with pytest.raises(BadInput):
            LabelsAndLogits(**{"alpha": 0.5, **options})  # type: ignore[arg-type]
