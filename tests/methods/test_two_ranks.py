"""Every stage of every method, found by itself: two ranks compute what one process would on the same batch.

A term that couples the texts of a batch must be computed over the gathered batch. Nothing here names a method
or an objective, so a new one that forgets `gather`, or detaches it, fails here.
"""

import copy
import dataclasses
import importlib
import itertools
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from test_contract import SMALL, setting  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes

from stillhouse import objectives
from stillhouse.core import distributed
from stillhouse.core.distributed import end_rank, rank, world_size
from stillhouse.core.identity import fingerprint, spec
from stillhouse.core.types import Batch, Encoding, Tokens
from stillhouse.corpora.word_vector_files import write_vocabulary
from stillhouse.methods import hyper_parameters, known_methods, load_method
from stillhouse.students.transformer import TransformerStudent
from stillhouse.training.module import StudentAndObjective, build_module
from stillhouse.training.module import distributed as wrapped
from stillhouse.values.stage import Stage

ROWS, TEXTS, TEACHER, STEPS = 8, 20, 24, 2
SEVERAL = {"negatives": 2, "documents": 3}
"""Columns of several texts per row; any other has one."""
FURTHER: dict[str, list[dict[str, Any]]] = {
    "ibkd": [
        {
            "beta1": 9.0,
            "beta2": 9.0,
            "kernel": kernel,
            "finetune_input_layer": "penultimate",
            "similarity": "cosine",
        }
        for kernel in ("imq", "linear")
    ],
    "crosslingual": [
        {"contrast": contrast, "unit": 2, "bottleneck": 0} for contrast in ("same", "ce", "none")
    ],
    "leaf": [
        {"relational_weight": 30.0},
        {"spread_weight": 9.0},
        {"relational_weight": 30.0, "cosine_weight": 1.0, "spread_weight": 9.0},
    ],
    "rerank_kd": [
        {"loss": "kl", "similarity": "cosine", "scale": 9.0, "teacher_loss": "bce"},
        {"loss": "contrastive_kl", "weight": 3.0, "contrast_temperature": 0.5},
        {"loss": "contrastive_kl", "weight": 0.0, "share_negatives": False},
    ],
    **{name: [{**SMALL.get(name, {}), "keep_projection": True}] for name in ("mse", "ckd")},
}
"""Hyper-parameters under which a method has other objectives, beside those of its contract."""
TOLERANCE = 1e-4
"""Largest distance of two gradients that are the same, relative to their length."""

BUILT: dict[str, StudentAndObjective] = {}
"""Modules by their stage, to be copied: to build one takes longer than to train it, also in forked ranks."""

Results = dict[str, dict[str, Any]]


def stages(folder: Path) -> Iterator[tuple[str, Stage]]:
    """Yield every different objective of every method, with the stage that it belongs to."""
    given = setting(str(folder / "model"), str(folder / "words"))
    base = given.student.kwargs["base"]
    given = dataclasses.replace(
        given, student=spec(TransformerStudent, base=base, layers=(0, 1), dropout=0.0)
    )
    seen: set[str] = set()
    for name in known_methods():
        method = load_method(name)
        for number, values in enumerate([SMALL.get(name, {}), *FURTHER.get(name, [])]):
            for stage in method.plan(hyper_parameters(method, values), given).chain():
                # Most methods share their fine-tuning.
                given_to = [
                    stage.objective,
                    dict.fromkeys(stage.examples.columns),
                    dict.fromkeys(stage.stores),
                ]
                key = fingerprint([*given_to, stage.examples.values, repr(stage.student.target)])
                if key not in seen or stage.label == method.PRUNABLE_FROM:
                    seen.add(key)
                    yield f"{name}-{number}-{stage.label}", stage


def make_batch(stage: Stage, step: int, part: slice) -> Batch:
    """Rows ``part`` of the batch of a step; each part is padded to its own longest text, and rows repeat."""
    generator = torch.Generator().manual_seed(step)
    vectors = torch.randn(TEXTS, TEACHER, generator=torch.Generator().manual_seed(99)) * 3
    tokens, rows, teacher = {}, {}, {}
    for column in stage.examples.columns:
        shape = (ROWS, SEVERAL.get(column, 1))
        ids = torch.randint(5, 100, (*shape, 7), generator=generator)
        lengths = torch.randint(2, 5, shape, generator=generator)
        lengths[:3] += 3
        rows_BK = torch.randint(0, TEXTS, shape, generator=generator)
        longest = int(lengths[part].max())
        mask = (torch.arange(longest) < lengths[part].flatten()[:, None]).long()
        tokens[column] = Tokens(ids[part].flatten(0, 1)[:, :longest] * mask, mask)
        rows[column] = rows_BK[part] if column in SEVERAL else rows_BK[part].squeeze(1)
        teacher[column] = Encoding(vectors[rows_BK[part].flatten()])
    values = {
        # The ranks have different numbers of labelled rows.
        "label": torch.tensor([0, -1, -1, -1, 2, 1, -1, 0]),
        "gold": torch.eye(3)[torch.arange(ROWS) % 3],
    }
    for name in stage.examples.values:
        given = values.get(name)
        values[name] = torch.randn(ROWS, 3, generator=generator) if given is None else given
    return Batch(
        tokens,
        rows,
        {column: teacher[column] for column in stage.stores},
        {name: values[name][part] for name in stage.examples.values},
    )


def build(stage: Stage) -> StudentAndObjective:
    """Build a stage's module as training does, without dropout."""
    if stage.fingerprint not in BUILT:
        dim = TEACHER if stage.stores else None
        BUILT[stage.fingerprint] = build_module(stage, teacher_dim=dim, first_weights=None).train()
    module = copy.deepcopy(BUILT[stage.fingerprint])
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    vectors = torch.randn(50, TEACHER, generator=torch.Generator().manual_seed(7)).numpy()
    module.objective.fit_teacher({column: iter([vectors]) for column in stage.stores})
    return module


def train(stage: Stage, part: slice, steps: int = STEPS) -> dict[str, Any]:
    """Take steps of plain descent; return the terms and gradients of each, and the state at the end."""
    module = build(stage)
    ranks = wrapped(module)
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.05)
    result: dict[str, Any] = {"terms": [], "gradients": []}
    for step in range(steps):
        optimizer.zero_grad()
        terms = ranks(make_batch(stage, step, part))
        torch.autograd.backward(torch.stack(list(terms.values())).sum())
        result["terms"].append({name: term.detach() for name, term in terms.items()})
        gradients = {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}
        result["gradients"].append(gradients)
        # All terms move the weights alike, however large they are.
        norm = torch.stack([g.norm() for g in gradients.values()]).norm()
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.grad /= norm
        optimizer.step()
    result["state"] = {n: v.clone() for n, v in module.objective.named_buffers()}
    return result


def without(local: Tensor) -> Tensor:
    """Forget to gather."""
    return local


def detached(local: Tensor) -> Tensor:
    """Gather without the gradient of the other ranks."""
    parts = [torch.empty_like(local) for _ in range(world_size())]
    dist.all_gather(parts, local.detach().contiguous())
    parts[rank()] = local
    return torch.cat(parts)


@contextmanager
def gathering(gather: Callable[[Tensor], Tensor]) -> Iterator[list[bool]]:
    """Let every objective gather with another function; yield whether each call had a gradient."""
    calls: list[bool] = []

    def counted(local: Tensor) -> Tensor:
        calls.append(local.requires_grad)
        return gather(local)

    modules = [
        importlib.import_module(f"{objectives.__name__}.{found.name}")
        for found in pkgutil.iter_modules(objectives.__path__)
    ]
    users = [module for module in modules if getattr(module, "gather", None) is distributed.gather]
    for module in users:
        module.gather = counted  # type: ignore[attr-defined]
    try:
        yield calls
    finally:
        for module in users:
            module.gather = distributed.gather  # type: ignore[attr-defined]


def worker(number: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=number, world_size=2)
    half = slice(number * ROWS // 2, (number + 1) * ROWS // 2)
    results: Results = {}
    for name, stage in stages(Path(folder)):
        with gathering(distributed.gather) as calls:
            results[name] = train(stage, half)
        for how in (without,) * bool(calls) + (detached,) * any(calls):
            with gathering(how):
                results[name][how.__name__] = train(stage, half, steps=1)
    torch.save(results, f"{folder}/{number}.pt")
    end_rank()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """A folder with the models that both ranks open."""
    made: Path = tmp_path_factory.mktemp("ranks")
    (made / "model").symlink_to(tiny_model)
    write_vocabulary((f"word{row}" for row in range(100)), made / "words", dim=6)
    return made


@pytest.fixture(scope="module")
def ranks(folder: Path, alone: Results) -> list[Results]:
    """What both ranks computed, on modules that were built for ``alone``."""
    start_processes(worker, args=(str(folder),), nprocs=2, start_method="fork")  # type: ignore[no-untyped-call]
    return [torch.load(folder / f"{number}.pt") for number in range(2)]


@pytest.fixture(scope="module")
def alone(folder: Path) -> Results:
    """What one process computes on the whole batch."""
    return {name: train(stage, slice(None)) for name, stage in stages(folder)}


def apart(some: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    """The distance of two gradients over all parameters, relative to the second."""
    assert some.keys() == others.keys()
    distance = sum((some[name] - others[name]).square().sum() for name in others)
    return float((distance / sum(value.square().sum() for value in others.values())) ** 0.5)


def test_every_method_is_here(alone: Results) -> None:
    assert {name.split("-")[0] for name in alone} == set(known_methods())


def test_two_ranks_have_the_terms_and_gradients_of_one_process(ranks: list[Results], alone: Results) -> None:
    """A term is the same on both ranks, or their mean is the term; the gradients are averaged by DDP."""
    wrong: list[tuple[Any, ...]] = []
    for name, one in alone.items():
        for step in range(STEPS):
            for term, value in one["terms"][step].items():
                mean = sum(result[name]["terms"][step][term] for result in ranks) / 2
                if not torch.isclose(mean, value, rtol=1e-3, atol=1e-5):
                    wrong.append((name, step, term, mean.item(), value.item()))
            for result in ranks:
                distance = apart(result[name]["gradients"][step], one["gradients"][step])
                if distance > TOLERANCE:
                    wrong.append((name, step, "gradients", distance))
    assert not wrong, wrong


def test_what_an_objective_keeps_is_the_same_on_every_rank(ranks: list[Results], alone: Results) -> None:
    """A bank that is fed by one rank's keys would differ."""
    for (name, one), result in itertools.product(alone.items(), ranks):
        for buffer, value in one["state"].items():
            torch.testing.assert_close(result[name]["state"][buffer], value, rtol=1e-4, atol=1e-4)


def test_a_stage_that_gathers_would_be_wrong_without(ranks: list[Results], alone: Results) -> None:
    """The comparison above sees a forgotten gather, and one without gradient, in each of these stages."""
    for how in ("without", "detached"):
        names = [name for name in alone if how in ranks[0][name]]
        assert {name.split("-")[0] for name in names} >= {
            "ibkd",
            "ckd",
            "crd",
            "metakd",
            "crosslingual",
            "leaf",
            "rerank_kd",
        }
        for name, result in itertools.product(names, ranks):
            wrong = apart(result[name][how]["gradients"][0], alone[name]["gradients"][0])
            assert wrong > 10 * TOLERANCE, (name, how, wrong)
