"""Gradients averaged over two gloo ranks: the rows of a table that were used, and all else."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from stillhouse.training import averaging

WORDS, DIM, STEPS = 250, 8, 3


class Model(nn.Module):
    """A table between other parameters, so that a bucket holds them all."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(DIM, 3)
        self.words = nn.Embedding(WORDS, DIM)
        self.places = nn.Embedding(5, DIM)

    def forward(self, ids_BT: Tensor) -> Tensor:
        states = self.words(ids_BT) + self.places(torch.arange(ids_BT.shape[1]))
        return torch.as_tensor(self.head(states.tanh()).square().mean())


def texts(rank: int, step: int, most: int) -> Tensor:
    return torch.randint(0, most, (4, 5), generator=torch.Generator().manual_seed(10 * rank + step))


def trained(model: nn.Module, rank: int, most: int) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients of the last step, of two micro-batches, and the weights after it."""
    optimizer, gradients = torch.optim.SGD(model.parameters(), 0.5), []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        if isinstance(model, DistributedDataParallel):
            with model.no_sync():
                model(texts(rank, 100 + step, most)).backward()
        else:
            model(texts(rank, 100 + step, most)).backward()
        model(texts(rank, step, most)).backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
    return gradients, [p.detach().clone() for p in model.parameters()]


def work(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    said: dict[str, Any] = {"sent": []}
    dense = dist.all_reduce

    def counting(tensor: Tensor, *given: Any, **named: Any) -> Any:
        said["sent"].append(tensor.numel())
        return dense(tensor, *given, **named)

    averaging.LEAST_VALUES = WORDS * DIM
    for name, most in (("few", 30), ("many", WORDS)):
        for kind in ("rows", "whole"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = DistributedDataParallel(Model(), gradient_as_bucket_view=True)
            said["sent"] = []
            dist.all_reduce = counting
            if kind == "rows":
                averaging.average_used_rows(model)
            said[f"{name} {kind}"] = trained(model, rank, most)
            said[f"{name} {kind} sent"] = list(said["sent"])
            dist.all_reduce = dense
    torch.save(said, Path(folder) / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("averaging")
    spawn(work, args=(str(folder),), nprocs=2)  # type: ignore[no-untyped-call]
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("name", ["few", "many"])
def test_gradients_and_weights_are_those_of_the_dense_average(ranks: list[dict[str, Any]], name: str) -> None:
    for rank in ranks:
        for mine, theirs in zip(rank[f"{name} rows"], rank[f"{name} whole"], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["few", "many"])
def test_ranks_have_the_same_bits(ranks: list[dict[str, Any]], name: str) -> None:
    for mine, theirs in zip(ranks[0][f"{name} rows"][1], ranks[1][f"{name} rows"][1], strict=True):
        assert torch.equal(mine, theirs)


def test_the_mean_is_over_both_ranks_texts(ranks: list[dict[str, Any]]) -> None:
    used = ranks[0]["few rows"][0][2].count_nonzero(dim=1) > 0
    both = torch.unique(torch.cat([texts(r, s, 30) for r in range(2) for s in (STEPS - 1, 100 + STEPS - 1)]))
    assert used.nonzero().flatten().tolist() == both.tolist()


def test_a_table_with_few_used_rows_is_not_sent_whole(ranks: list[dict[str, Any]]) -> None:
    table = WORDS * DIM
    assert ranks[0]["few rows sent"] and max(ranks[0]["few rows sent"]) < table
    assert table in ranks[0]["many rows sent"], "with most rows used it is"
