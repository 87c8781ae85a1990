"""Teacher embedding of real sentences: against `SentenceTransformer.encode`, and the machine's limit.

Ours is what a teacher actor does to a shard, tokenising included. Each peer runs in a process of its own,
with all threads, in turn. Every row of ours must agree with the peer's fp32 vector at a cosine of 0.999 at
least.
"""

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import Row, arguments, at_least, finish, median, ratio, spread
from sentences import sentences
from served import PEERS_PYTHON, Served, write_texts

from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.teachers.embedding import resolve_compute
from stillhouse.teachers.runtime_check import lowest_cosine
from stillhouse.teachers.runtimes import why_not
from stillhouse.teachers.weights import resolve_model
from stillhouse.values.data import COMPILE, RUNTIMES

COSINE = 0.999
HIDDEN, LAYERS = 384, 6


def linear_flops(tokens: int) -> float:
    """Operations in the linear layers of all-MiniLM-L6-v2: 2 · 12 H² per layer and real token."""
    return tokens * LAYERS * 24.0 * HIDDEN**2


def product_rate(dtype: torch.dtype, seconds: float = 2.0) -> float:
    """FLOP/s of the machine's matrix product, the best of the shapes of the model's layers."""
    best = 0.0
    for rows, inner, columns in ((2048, HIDDEN, 4 * HIDDEN), (2048, 4 * HIDDEN, HIDDEN), (4096, 1024, 1024)):
        left, right = torch.randn(rows, inner).to(dtype), torch.randn(columns, inner).to(dtype)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds / 3:
            torch.nn.functional.linear(left, right)
            count += 1
        best = max(best, count * 2.0 * rows * inner * columns / (time.perf_counter() - began))
    return best


DEFAULT = "default (fp32, batch 32)"
Peers = dict[str, tuple[tuple[str, ...], int]]


def peers(quick: bool, compute: str) -> Peers:
    """Name to a process's options and its batch: the default as a user calls it, then what is quicker.

    bfloat16 is tried where this machine has it: elsewhere it is many times slower than float32.
    """
    found: Peers = {DEFAULT: (("--backend", "torch"), 0)}
    for batch in (8,) if quick else (8, 32):
        if compute == "bfloat16":
            found[f"bf16, batch {batch}"] = (("--backend", "torch", "--dtype", "bfloat16"), batch)
        else:
            found[f"fp32, batch {batch}"] = (("--backend", "torch"), batch)
        if PEERS_PYTHON.exists():
            for backend in ("onnx", "openvino"):
                found[f"{backend}, batch {batch}"] = (("--backend", backend), batch)
    return found


def main() -> int:
    """Measure ours and the peers in turn."""
    parser = arguments(__doc__)
    parser.set_defaults(repeats=3)
    options = parser.parse_args()
    texts = sentences(256 if options.quick else 1000)
    model = resolve_model("all-MiniLM-L6-v2").path
    ids, _ = FastTokenizer(Path(model), 128)(texts)
    compute = resolve_compute()
    with tempfile.TemporaryDirectory() as held, contextlib.ExitStack() as stack:
        file = write_texts(Path(held), texts)
        runtimes = [each for each in RUNTIMES if not why_not(each, "cpu", compute)]
        if options.quick:
            runtimes.remove(COMPILE)
        mine = {
            f"ours, {each}": stack.enter_context(
                Served(file, model, "ours", "--dtype", "auto", "--backend", each)
            )
            for each in runtimes
        }
        passes: dict[str, Callable[[], float]] = {name: each.seconds for name, each in mine.items()}
        running: dict[tuple[str, ...], Served] = {}
        kinds = peers(options.quick, compute)
        for name, (given, batch) in kinds.items():
            if given not in running:
                python = PEERS_PYTHON if {"onnx", "openvino"} & set(given) else None
                peer = Served(file, model, "sentence-transformers", *given, python=python)
                running[given] = stack.enter_context(peer)
            passes[name] = partial(running[given].seconds, batch)
        seconds: dict[str, list[float]] = {name: [] for name in passes}
        rates: list[float] = []
        for _ in range(options.repeats):
            rates.append(product_rate(getattr(torch, compute)))
            for name, one_pass in passes.items():
                seconds[name].append(one_pass())
        exact = running[kinds[DEFAULT][0]].vectors()
        cosines = {name: lowest_cosine(each.vectors(), exact) for name, each in mine.items()}
    assert all(lowest >= COSINE for lowest in cosines.values()), f"the lowest cosines to fp32 are {cosines}"
    speed = {name: [len(texts) / second for second in found] for name, found in seconds.items()}
    ours = min(mine, key=lambda name: median(seconds[name]))
    fastest = min((name for name in seconds if name not in mine), key=lambda name: median(seconds[name]))
    what = f"teacher embedding, {len(texts):,} sentences of {len(ids) / len(texts):.0f} tokens"
    said: dict[str, Any] = {
        "ours": spread(speed[ours], "sentences/s"),
        "note": f"{ours}; lowest cosine to fp32 {cosines[ours]:.5f}",
    }
    missing = "" if PEERS_PYTHON.exists() else "; ONNX and OpenVINO were not installed (`make peers`)"
    others = ", ".join(f"{name} {median(found):.0f}" for name, found in speed.items())
    achieved = [linear_flops(len(ids)) / second for second in seconds[ours]]
    shares = [100 * reached / rate for reached, rate in zip(achieved, rates, strict=True)]
    rows = [
        Row(
            what,
            "`SentenceTransformer.encode`, default",
            **at_least(ratio(seconds[DEFAULT], seconds[ours]), 2.5),
            **said,
            peer=spread(speed[DEFAULT], "sentences/s"),
        ),
        Row(
            what,
            f"the fastest of its backends: {fastest}",
            **at_least(ratio(seconds[fastest], seconds[ours]), 1.2),
            ours=said["ours"],
            peer=spread(speed[fastest], "sentences/s"),
            note=f"sentences/s: {others}{missing}",
        ),
        Row(
            "the same as a share of the machine's matrix products",
            f"{compute} product",
            **at_least(median(shares), 70, " %"),
            ours=spread([value / 1e9 for value in achieved], "GFLOP/s"),
            peer=spread([value / 1e9 for value in rates], "GFLOP/s"),
            note="linear layers and real tokens only, tokenising in the time; both measured in every turn",
        ),
    ]
    return finish(rows, options)


if __name__ == "__main__":
    sys.exit(main())
