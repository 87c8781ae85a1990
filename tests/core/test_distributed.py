"""Two gloo ranks compared with one process: values, gradients, weights and the bank of every objective.

One spawned group of two ranks runs every case under DDP and writes its results to files; the tests compare
them with this process on the whole batch. Everything is float64, so that equal means equal to 1e-10.
"""

import itertools
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rows import each_row
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

from stillhouse.core.distributed import end_rank, gather, rank, world_size
from stillhouse.core.identity import Spec, spec
from stillhouse.core.types import Batch, Encoding, Terms, Tokens
from stillhouse.losses.contrastive import InfoNCE, SupervisedInfoNCE
from stillhouse.losses.crd import CRD
from stillhouse.losses.heads import ClassificationHead, LabelsAndLogits
from stillhouse.losses.hsic import HSIC
from stillhouse.losses.memory_bank import MemoryBank
from stillhouse.losses.multilingual import MultilingualContrast, MultilingualCrossEntropy
from stillhouse.losses.pair_head import Joiner
from stillhouse.losses.softlabel import HardLabelCE, SoftAndHard, SoftLabelMSE
from stillhouse.objectives import (
    classified,
    contrasts,
    information_bottleneck,
    matching,
    parallel_sentences,
    ranking,
)

WORDS, HIDDEN, DIM, TEACHER, ROWS, K = 40, 6, 5, 7, 8, 2

CASES: dict[str, Spec[nn.Module]] = {
    "ibkd": spec(information_bottleneck.InformationBottleneck),
    "ibkd-repo": spec(
        information_bottleneck.InformationBottleneck,
        nce=spec(InfoNCE, similarity="cosine", projection=True, bias=True, learnable_scale=True),
        hsic=spec(HSIC, normalize=False, estimator="biased"),
        input_layer="penultimate",
    ),
    "ibkd-median": spec(
        information_bottleneck.InformationBottleneck,
        hsic=spec(HSIC, kernel="imq", bandwidth="median"),
        beta=3.0,
    ),
    "ibkd-nce": spec(information_bottleneck.InformationBottleneck, beta=0.0),
    "supervised": spec(
        information_bottleneck.SupervisedBottleneck, nce=spec(SupervisedInfoNCE, learnable_scale=True)
    ),
    "supervised-shared": spec(
        information_bottleneck.SupervisedBottleneck,
        nce=spec(SupervisedInfoNCE, share_negatives=True, similarity="dot", temperature=1.0),
        hsic=spec(HSIC, kernel="linear"),
    ),
    "ckd": spec(contrasts.ContrastiveDistillation),
    "ckd-bank": spec(contrasts.ContrastiveDistillation, bank=spec(MemoryBank, size=21)),
    "crd": spec(contrasts.RepresentationContrast, crd=spec(CRD, items=30, dim=4)),
    "crd-bank": spec(
        contrasts.RepresentationContrast, crd=spec(CRD, items=30, dim=4), bank=spec(MemoryBank, size=21)
    ),
    "metakd": spec(contrasts.MetaDistillation),
    "mse": spec(matching.Regression),
    "classified": spec(
        classified.Classified,
        head=spec(ClassificationHead, classes=3, pair=False),
        loss=spec(LabelsAndLogits, alpha=0.6),
    ),
    "hpd": spec(matching.ProjectedRegression),
    "pkd": spec(matching.PatientRegression),
    "pkd-wide": spec(matching.PatientRegression, final=True),
    "sra": spec(matching.CosineApproximation),
    "pair-cosines": spec(matching.PairCosines),
    "parallel": spec(parallel_sentences.ParallelRegression),
    "contrast": spec(parallel_sentences.ParallelContrast),
    "contrast-same": spec(
        parallel_sentences.ParallelContrast, contrast=spec(MultilingualContrast, labels="same")
    ),
    "contrast-ce": spec(
        parallel_sentences.ParallelContrast, contrast=spec(MultilingualCrossEntropy, temperature=0.5)
    ),
    "candidates": spec(ranking.JoinedCandidates),
    "candidates-mse": spec(
        ranking.JoinedCandidates,
        joiner=spec(Joiner, kind="features"),
        loss=spec(SoftAndHard, soft=spec(SoftLabelMSE, temperature=3.0), hard=spec(HardLabelCE, gold="mean")),
    ),
}
COUPLED = [name for name in CASES if name.startswith(("ibkd", "supervised", "ckd", "crd", "contrast"))]
COLUMNS = {
    **dict.fromkeys(("supervised", "supervised-shared", "metakd"), ("query", "passage", "negatives")),
    **dict.fromkeys(("parallel", "contrast", "contrast-same", "contrast-ce"), ("source", "target")),
    **dict.fromkeys(("candidates", "candidates-mse"), ("claim", "documents")),
    "pair-cosines": ("text", "other"),
}
"""Of a case; else ``text`` alone."""
REPEATED = ("negatives", "documents")


class ToyStudent(nn.Module):
    """Words to a vector through two hidden states and a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, HIDDEN)
        self.layers = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in range(2)])
        self.head = nn.Linear(HIDDEN, DIM)

    def forward(self, tokens: Tokens) -> Encoding:
        hidden = [self.words(tokens.input_ids_BT)]
        for layer in self.layers:
            hidden.append(torch.tanh(layer(hidden[-1])))
        mask_BT1 = tokens.attention_mask_BT[..., None]
        pooled = (hidden[-1] * mask_BT1).sum(1) / mask_BT1.sum(1)
        return Encoding(self.head(pooled), tuple(hidden), tokens.attention_mask_BT)


class Wrapped(nn.Module):
    """Student and objective in one module, as DDP must see them."""

    def __init__(self, objective: nn.Module) -> None:
        super().__init__()
        self.student, self.objective = ToyStudent(), objective

    def forward(self, batch: Batch) -> Terms:
        encodings = {column: self.student(tokens) for column, tokens in batch.tokens.items()}
        terms: Terms = self.objective(encodings, batch.teacher, batch)
        return terms


def make_batch(step: int, part: slice) -> Batch:
    """Rows ``part`` of the whole batch of a step; each part is padded to its own longest text."""
    generator = torch.Generator().manual_seed(step)
    tokens, rows, teacher = {}, {}, {}
    for column in dict.fromkeys(("text", *itertools.chain(*COLUMNS.values()))):
        repeat = K if column in REPEATED else 1
        shape = (ROWS, repeat)
        ids = torch.randint(0, WORDS, (*shape, 9), generator=generator)
        lengths = torch.randint(1, 5, shape, generator=generator)
        lengths[:3] += 4
        rows_BK = torch.randint(0, 30, shape, generator=generator)
        vectors = torch.randn(30, TEACHER, dtype=torch.float64, generator=torch.Generator().manual_seed(99))
        lengths_B = lengths[part].flatten()
        longest = int(lengths_B.max())
        mask_BT = (torch.arange(longest) < lengths_B[:, None]).long()
        tokens[column] = Tokens(ids[part].flatten(0, 1)[:, :longest] * mask_BT, mask_BT)
        rows[column] = rows_BK[part].squeeze(1) if repeat == 1 else rows_BK[part]
        hidden = tuple(layer[tokens[column].input_ids_BT] for layer in _teacher_layers())
        teacher[column] = Encoding(vectors[rows_BK[part].flatten()], hidden, mask_BT)
    logits = torch.randn(ROWS, 3, dtype=torch.float64, generator=generator)
    # The ranks have different numbers of labelled rows.
    label = torch.tensor([0, -1, -1, -1, 2, 1, -1, 0])
    scores = torch.randn(ROWS, K, dtype=torch.float64, generator=generator)
    gold = torch.tensor([[1, 0], [0, 1]]).repeat(ROWS // 2, 1)
    values = {"label": label, "logits": logits, "scores": scores, "gold": gold}
    return Batch(tokens, rows, teacher, {name: value[part] for name, value in values.items()})


def _teacher_layers() -> Tensor:
    """Hidden states of a live teacher, as a table over words: (5, WORDS, HIDDEN)."""
    generator = torch.Generator().manual_seed(98)
    return torch.randn(5, WORDS, HIDDEN, dtype=torch.float64, generator=generator)


def _widened(hidden: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """States of twice the size."""
    return tuple(torch.cat([state, state.square()], dim=-1) for state in hidden)


@dataclass
class Layers:
    """The layers of a model."""

    depth: int
    hidden_size: int


def only(batch: Batch, name: str) -> Batch:
    """Keep the fields that a case reads; SRA's teacher has the student's dimension."""
    columns = COLUMNS.get(name, ("text",))
    teacher = {c: batch.teacher[c] for c in columns}
    if name == "pkd-wide":
        teacher = {c: replace(encoding, hidden=_widened(encoding.hidden)) for c, encoding in teacher.items()}
    if name == "sra":
        teacher = {
            c: replace(encoding, embedding_BD=encoding.embedding_BD[:, :DIM])
            for c, encoding in teacher.items()
        }
    return Batch(
        {c: batch.tokens[c] for c in columns}, {c: batch.rows[c] for c in columns}, teacher, batch.values
    )


def build(name: str) -> Wrapped:
    torch.manual_seed(3)
    objective: Any = CASES[name].build(student_dim=DIM, teacher_dim=TEACHER)
    objective.fit_layers(Layers(2, HIDDEN), Layers(4, HIDDEN * (2 if name == "pkd-wide" else 1)))
    return Wrapped(objective).double()


def train(
    name: str, module: nn.Module, wrapped: Wrapped, parts: list[slice], steps: int = 3
) -> dict[str, Any]:
    """Take SGD steps over micro-batches; return the first terms and gradients and the last weights."""
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.3)
    result: dict[str, Any] = {}
    for step in range(steps):
        optimizer.zero_grad()
        for number, part in enumerate(parts):
            last = number + 1 == len(parts) or not isinstance(module, DistributedDataParallel)
            with nullcontext() if last else module.no_sync():  # type: ignore[operator]
                terms = module(only(make_batch(step, part), name))
                torch.autograd.backward(torch.stack(list(terms.values())).sum() / len(parts))
            if step == 0 and number == 0:
                result["terms"] = {term: value.detach() for term, value in terms.items()}
        if step == 0:
            result["gradients"] = {
                n: p.grad.clone() for n, p in wrapped.named_parameters() if p.grad is not None
            }
        optimizer.step()
    result["state"] = {n: value.clone() for n, value in wrapped.state_dict().items()}
    return result


def detached(local: Tensor) -> Tensor:
    """Gather the wrong way: gradients flow only through the rank's own rows."""
    parts = [torch.empty_like(local) for _ in range(world_size())]
    dist.all_gather(parts, local.detach().contiguous())
    parts[rank()] = local
    return torch.cat(parts)


def gather_case() -> dict[str, Tensor]:
    """Return the result of `gather`, and its gradient when the ranks weight the rows differently."""
    local = torch.full((2, 3), float(rank() + 1), dtype=torch.float64, requires_grad=True)
    whole = gather(local)
    weights = torch.arange(12, dtype=torch.float64).view(4, 3) * (10 if rank() == 1 else 1)
    torch.autograd.backward((whole * weights).sum())
    assert local.grad is not None
    ids = gather(torch.tensor([rank(), 5]))
    flags = gather(torch.ones(1, dtype=torch.bfloat16) * rank())
    return {"whole": whole.detach(), "gradient": local.grad, "ids": ids, "flags": flags}


def worker(number: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=number, world_size=2)
    half = slice(number * ROWS // 2, (number + 1) * ROWS // 2)
    results: dict[str, Any] = {"gather": gather_case()}
    for name in CASES:
        wrapped = build(name)
        results[name] = train(name, DistributedDataParallel(wrapped), wrapped, [half])
    # Buffers may be left out of the broadcast: the bank is a function of gathered tensors.
    wrapped = build("ckd-bank")
    quarters = [slice(number * 2, number * 2 + 2), slice(4 + number * 2, 6 + number * 2)]
    module = DistributedDataParallel(wrapped, broadcast_buffers=False)
    results["accumulated"] = train("ckd-bank", module, wrapped, quarters)
    for module_of in (information_bottleneck, contrasts, parallel_sentences):
        setattr(module_of, "gather", detached)  # noqa: B010
    for name in COUPLED:
        wrapped = build(name)
        results[f"detached {name}"] = train(name, DistributedDataParallel(wrapped), wrapped, [half], steps=1)
    torch.save(results, f"{folder}/{number}.pt")
    end_rank()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The results of both ranks."""
    folder: Path = tmp_path_factory.mktemp("ranks")
    start_processes(worker, args=(str(folder),), nprocs=2, start_method="fork")  # type: ignore[no-untyped-call]
    return [torch.load(folder / f"{number}.pt") for number in range(2)]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """The results of one process at the whole batch."""
    results = {}
    for name in CASES:
        wrapped = build(name)
        results[name] = train(name, wrapped, wrapped, [slice(None)])
    wrapped = build("ckd-bank")
    results["accumulated"] = train("ckd-bank", wrapped, wrapped, [slice(0, 4), slice(4, 8)])
    return results


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        apart = (value - other[name]).abs().max().item()
        assert torch.allclose(value, other[name], rtol=1e-10, atol=1e-12), f"{name} differs by {apart}"


def coupled(terms: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return all terms except the regression that accompanies a contrast."""
    return {name: value for name, value in terms.items() if name != "mse"}


def difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Return the relative distance of two gradients over all parameters."""
    apart = sum((one[n] - other[n]).square().sum() for n in other)
    return float((apart / sum(v.square().sum() for v in other.values())) ** 0.5)


def test_one_rank_without_a_process_group() -> None:
    local = torch.ones(2, 3)
    assert (world_size(), rank()) == (1, 0)
    assert gather(local) is local


def test_gather_keeps_the_order_of_the_ranks_and_sums_the_gradients(ranks: list[dict[str, Any]]) -> None:
    for number, result in enumerate(ranks):
        got = result["gather"]
        assert got["whole"][:, 0].tolist() == [1, 1, 2, 2]
        assert got["ids"].tolist() == [0, 5, 1, 5]
        assert got["flags"].dtype == torch.bfloat16 and got["flags"].tolist() == [0, 1]
        weights = torch.arange(12, dtype=torch.float64).view(4, 3)[2 * number : 2 * number + 2]
        assert torch.equal(got["gradient"], 11 * weights)


@each_row("name", [*CASES, "accumulated"])
def test_two_ranks_give_the_terms_of_one_process(
    name: str, ranks: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    """Coupled terms agree on each rank, local ones on average."""
    terms = [result[name]["terms"] for result in ranks]
    assert_equal({term: (terms[0][term] + terms[1][term]) / 2 for term in terms[0]}, alone[name]["terms"])
    for rank_terms in terms if name in COUPLED else ():
        assert_equal(coupled(rank_terms), coupled(alone[name]["terms"]))


@each_row("name", [*CASES, "accumulated"])
def test_two_ranks_give_the_gradient_of_one_process(
    name: str, ranks: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    assert any(n.startswith("student.words") for n in alone[name]["gradients"])
    for result in ranks:
        assert_equal(result[name]["gradients"], alone[name]["gradients"])


@each_row("name", [*CASES, "accumulated"])
def test_two_ranks_reach_the_weights_and_the_bank_of_one_process(
    name: str, ranks: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    for result in ranks:
        assert_equal(result[name]["state"], alone[name]["state"])


def test_the_bank_is_filled_and_used(alone: dict[str, Any]) -> None:
    rows = alone["ckd-bank"]["state"]["objective.bank.rows_M"]
    assert (rows >= 0).sum() > ROWS
    assert not torch.equal(
        alone["ckd-bank"]["state"]["student.words.weight"], alone["ckd"]["state"]["student.words.weight"]
    )


@each_row("name", COUPLED)
def test_a_detached_gather_gives_the_same_terms_but_another_gradient(
    name: str, ranks: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    for result in ranks:
        wrong = result[f"detached {name}"]
        assert_equal(coupled(wrong["terms"]), coupled(alone[name]["terms"]))
        assert difference(wrong["gradients"], alone[name]["gradients"]) > 0.01
