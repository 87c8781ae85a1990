"""Embedding, training and search on a GPU, by what runs without Ray.

    python benchmarks/gpu.py --device cuda [--model FOLDER] [--shape 1024x24]
    python benchmarks/gpu.py --device cpu --quick

Needs torch, transformers, sentence-transformers, numpy and pyarrow; faiss is compared with where it is there.
Texts are made of common words. ``--shape`` takes random weights of that shape, and the tokenizer of
``--model``.
"""

import argparse
import functools
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_parts import made_model, made_texts, search_rows
from harness import Row, arguments, at_least, at_most, finish, in_turn, median, ratio, spread

from stillhouse.core.artifacts import Workspace
from stillhouse.core.devices import has_device
from stillhouse.core.identity import Spec, spec
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.losses.crd import CRD
from stillhouse.losses.memory_bank import MemoryBank
from stillhouse.objectives.contrasts import ContrastiveDistillation, RepresentationContrast
from stillhouse.objectives.information_bottleneck import InformationBottleneck
from stillhouse.objectives.matching import Regression
from stillhouse.students.backbone import layer_count, read_config
from stillhouse.students.transformer import TransformerStudent, select_layers
from stillhouse.teachers.embedding import resolve_compute
from stillhouse.teachers.forward import Forward, default_batch_tokens
from stillhouse.teachers.loading import as_encoder, load_teacher
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.fit import fit
from stillhouse.training.in_memory import MemoryTokens, RandomVectors
from stillhouse.training.table import TrainingTable
from stillhouse.values.data import AllRows, Examples, Model, Store, TextTable
from stillhouse.values.stage import Optimizer, Stage

SKIP = 3


def synchronised(device: str, run: Callable[[], Any]) -> Any:
    """Run, and wait for the device."""
    given = run()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return given


def product_rate(device: str, dtype: torch.dtype, size: int, seconds: float = 1.0) -> float:
    """FLOP/s of a square matrix product."""
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    synchronised(device, lambda: left @ right)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        synchronised(device, lambda: [left @ right for _ in range(10)])
        count += 10
    return count * 2.0 * size**3 / (time.perf_counter() - began)


def embedding(
    model: Model, options: argparse.Namespace, *, words: int, count: int, length: int
) -> Iterator[Row]:
    """Ours from token ids and from texts, against `encode` by default and in bfloat16."""
    from sentence_transformers import SentenceTransformer

    device, texts = options.device, made_texts(count, words)
    compute = resolve_compute(device, "auto")
    store = Store(TextTable(""), model, max_length=length, compute=compute)
    tokenizer = FastTokenizer(Path(model.path), length)
    budget = default_batch_tokens(device, torch.get_num_threads())
    teacher = as_encoder(load_teacher(store, Workspace(Path("unused")), device), store)
    forward = Forward(teacher, tokenizer.pad_id, budget, compute, device)
    ids, offsets = tokenizer(texts)
    kinds: dict[str, dict[str, Any]] = {"default": {}, "bf16": {"dtype": torch.bfloat16}}
    peers = {n: SentenceTransformer(model.path, device=device, model_kwargs=k) for n, k in kinds.items()}
    for peer in peers.values():
        peer.max_seq_length = length
    sizes = {"default": 32, "bf16": 32 if device == "cpu" else 256}
    runs: dict[str, Callable[[], Any]] = {"ours": lambda: forward(ids, offsets)}
    runs["with tokenising"] = lambda: forward(*tokenizer(texts))
    for name, peer in peers.items():
        given = {"batch_size": sizes[name], "show_progress_bar": False}
        runs[name] = functools.partial(peer.encode, texts, **given)
    mine, exact = forward(ids, offsets), runs["default"]()
    cosine = float(
        ((mine * exact).sum(1) / np.linalg.norm(mine, axis=1) / np.linalg.norm(exact, axis=1)).min()
    )
    assert cosine >= 0.999, f"the lowest cosine to fp32 is {cosine}"
    seconds = in_turn(runs, options.repeats)
    rate = {name: [len(ids) / value for value in found] for name, found in seconds.items()}
    config = read_config(model)
    flops = (
        len(ids)
        * config.num_hidden_layers
        * (8.0 * config.hidden_size**2 + 4.0 * config.hidden_size * config.intermediate_size)
    )
    product = product_rate(device, torch.bfloat16, 256 if options.quick else 8192)
    what = f"teacher embedding, {count:,} texts of {len(ids) / count:.0f} tokens"
    share = 100 * flops / median(seconds["ours"]) / product
    for name, target in (("default", 3.0), ("bf16", 1.3)):
        yield Row(
            what,
            f"`SentenceTransformer.encode`, {name}, batch {sizes[name]}",
            **at_least(ratio(seconds[name], seconds["with tokenising"]), target),
            ours=spread(rate["with tokenising"], "tokens/s"),
            peer=spread(rate[name], "tokens/s"),
            note=f"lowest cosine to fp32 {cosine:.5f}",
        )
    yield Row(
        f"{what}, tokenised before",
        f"{product / 1e12:.1f} TFLOP/s, the bfloat16 product",
        **at_least(share, 50, " %"),
        ours=spread(rate["ours"], "tokens/s"),
        note="linear layers and real tokens only",
    )


def step_seconds(model: Model, objective: Spec[Any], options: argparse.Namespace, batch: int) -> float:
    """A step of the real loop, the mean over those after the first."""
    steps, total = (6, layer_count(model)) if options.quick else (40, layer_count(model))
    layers = select_layers("every-other", total, max(1, total // 2))
    stage = Stage(
        label="benchmark",
        student=spec(TransformerStudent, base=model, layers=layers, pooling="own", normalize=None),
        objective=objective,
        examples=Examples(columns={"text": TextTable("")}, origin=AllRows()),
        stores={},
        budget=batch * steps,
        batch_size=batch,
        optimizer=Optimizer(1e-4),
        max_length=64,
        autocast=resolve_compute(options.device, "auto"),
    )
    rows = np.arange(20 * batch)
    tokens = MemoryTokens(FastTokenizer(Path(model.path), 64), made_texts(len(rows), 18))
    table = TrainingTable({"text": rows}, {"text": tokens}, {"text": RandomVectors(len(rows), 384)})
    moments: list[float] = []

    def asked() -> bool:
        if len(moments) + 1 in (SKIP, steps - 1):
            synchronised(options.device, lambda: None)
        moments.append(time.perf_counter())
        return False

    with tempfile.TemporaryDirectory() as held:
        fit(stage, table, Path(held), device=options.device, stop_requested=asked)
    return (moments[-1] - moments[SKIP - 1]) / (len(moments) - SKIP)


def training(model: Model, options: argparse.Namespace) -> Iterator[Row]:
    """Every objective, and what HSIC and a bank add."""
    batch, bank = (16, 256) if options.quick else (256, 65_536)
    objectives: dict[str, Spec[Any]] = {
        "MSE": spec(Regression),
        "CKD": spec(ContrastiveDistillation),
        "CKD with a bank": spec(ContrastiveDistillation, bank=spec(MemoryBank, size=bank)),
        "IBKD without HSIC": spec(InformationBottleneck, beta=0.0),
        "IBKD": spec(InformationBottleneck),
        "CRD": spec(RepresentationContrast, crd=spec(CRD, items=100_000)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in objectives}
    for _ in range(options.repeats):
        for name, objective in objectives.items():
            seconds[name].append(step_seconds(model, objective, options, batch))
    for name, found in seconds.items():
        speed = spread([batch / value for value in found], "texts/s")
        yield Row(f"training step, {name}, batch {batch}", "–", "–", speed, met=True)
    for more, base, target in (("IBKD", "IBKD without HSIC", 5), ("CKD with a bank", "CKD", 10)):
        added = 100 * (ratio(seconds[more], seconds[base]) - 1)
        yield Row(f"{more}: what it adds", base, **at_most(added, target, "%"), note=f"bank of {bank:,}")


def main() -> int:
    """Embedding, training, search; a machine without the device says so."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:1, cpu")
    parser.add_argument("--model", default="all-MiniLM-L6-v2", help="a folder, or the packaged model")
    parser.add_argument("--shape", default="", help="random weights, HIDDENxLAYERS, such as 1024x24")
    options = parser.parse_args()
    if not has_device(options.device):
        why = "the script is run on the CPU with --quick, to see that it runs"
        return finish([Row("everything on a GPU", "–", "–", "no GPU here", met=True, note=why)], options)
    with tempfile.TemporaryDirectory() as held:
        model = resolve_model(options.model)
        if options.shape:
            model = made_model(model, Path(held), *(int(size) for size in options.shape.split("x")))
        quick = options.quick
        rows = []
        for row in itertools.chain(
            embedding(model, options, words=18, count=64 if quick else 50_000, length=128),
            embedding(model, options, words=400, count=8 if quick else 5_000, length=256),
            training(model, options),
            search_rows(options.device, quick, options.repeats),
        ):
            print(f"{row.what}: {row.ours or row.measured}", file=sys.stderr, flush=True)
            rows.append(row)
        print(torch.cuda.get_device_name() if options.device.startswith("cuda") else "CPU")
    return finish(rows, options)


if __name__ == "__main__":
    sys.exit(main())
