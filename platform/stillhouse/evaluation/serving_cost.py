"""The cost of serving a model: parameters, sizes as float32, int8 and ONNX, speed, an index of vectors."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import Encoder, Encoding, Scorer, Student, ThreadedEncoder, Tokens
from stillhouse.students.export.onnx import quantise, write_graph
from stillhouse.students.sizes import distinct_weights, sizes

BATCHES = (1, 8, 32, 64)
CHUNKS = (32, 128)
CALLS = 100
"""Calls of the suite's latency. Of so few the 99th percentile is in effect the slowest, so that is shown."""

TEXTS = (
    "The cat sat on the mat.",
    "Return the index of the largest value.",
    "A river runs through the old part of the city, and three bridges cross it.",
    "How do I read a file line by line without holding all of it in memory?",
    "Heavy rain is expected in the north on Tuesday, with strong winds along the coast.",
    "If the two arrays have different shapes, they are broadcast to a common one, which becomes the shape of "
    "the output; when that is impossible an error is raised that names both shapes.",
    "Sort the rows by date and keep the last one of each group.",
    "She finished the second book in a week but never opened the first, because a friend had told her how it "
    "ends, and what is worse, had told it badly.",
)
"""Sentences of 6 to 40 words that speeds are measured on."""


def cost(
    encoder: Encoder, module: nn.Module, texts: Sequence[str] = TEXTS * 8, *, runs: int = 5, calls: int = 50
) -> dict[str, float]:
    """Measure the `sizes` of a module, and the `speed` of the same model in its own runtime."""
    return {**sizes(module), **speed(encoder, texts, runs=runs, calls=calls)}


def speed(
    encoder: Encoder, texts: Sequence[str] = TEXTS * 8, *, runs: int = 5, calls: int = 50
) -> dict[str, float]:
    """Measure ``sentences_per_second``, ``latency_ms_p50``, ``latency_ms_max`` and ``threads``.

    The model is timed on this machine with its runtime's number of threads, tokenisation included: ``runs``
    times for the throughput, ``calls`` times for the latency.
    """
    latency = latency_ms(encoder, texts, calls=calls)
    return {
        "sentences_per_second": sentences_per_second(encoder, texts, runs=runs),
        "latency_ms_p50": latency["p50"],
        "latency_ms_max": latency["max"],
        "threads": float(threads_of(encoder)),
    }


def int8_megabytes(module: nn.Module) -> float:
    """Calculate the size in 10^6 bytes with int8 matrices, one float32 scale per row, the rest in float32.

    Shared weights count once. No file is written.
    """
    total = sum(
        weight.numel() + 4 * weight.shape[0] if weight.ndim >= 2 else 4 * weight.numel()
        for weight in distinct_weights(module)
    )
    return total / 1e6


def onnx_megabytes(module: Any) -> dict[str, float]:
    """Measure ``megabytes_onnx`` and ``megabytes_onnx_int8``, 10^6 bytes of the exported graph's files.

    The module is a student or a sentence-transformers model. The second size is that after onnxruntime has
    quantised the weights. The files are written to a temporary folder. Needs the extra ``onnx``.

    Raises:
        BadInput: If the graph cannot be exported.
    """
    with tempfile.TemporaryDirectory(prefix="onnx-") as folder:
        graph = Path(folder) / "model.onnx"
        write_graph(module if isinstance(module, Student) else _PublishedStudent(module), graph)
        whole = _megabytes(graph.parent)
        quantise(graph)
        return {"megabytes_onnx": whole, "megabytes_onnx_int8": _megabytes(graph.parent)}


def index_megabytes(dim: int) -> dict[str, float]:
    """Calculate 10^6 bytes of a million vectors of ``dim`` dimensions, by format.

    Ids and graphs are not included. ``binary_rescored`` also keeps int8 vectors, to rescore the
    best hits of a search.
    """
    bits = -(-dim // 8)
    per_vector = {"float32": 4 * dim, "float16": 2 * dim, "int8": dim, "binary": bits}
    return {kind: float(size) for kind, size in {**per_vector, "binary_rescored": bits + dim}.items()}


def measure_speed(
    encoder: Encoder, texts: Sequence[str] = TEXTS * 8, *, runs: int = 3, calls: int = CALLS
) -> dict[str, float]:
    """Measure sentences per second at one text per call and at the best batch size, and the latency.

    Arguments are those of `speed`.
    """
    by_batch = speeds(encoder, texts, runs=runs, chunks=BATCHES)
    best = max(by_batch, key=lambda batch: by_batch[batch])
    latency = latency_ms(encoder, texts, calls=calls)
    return {
        "sentences_per_second_1": by_batch[1],
        "sentences_per_second": by_batch[best],
        "best_batch": float(best),
        "latency_ms_p50": latency["p50"],
        "latency_ms_max": latency["max"],
        "threads": float(threads_of(encoder)),
    }


def sentences_per_second(
    encoder: Encoder, texts: Sequence[str] = TEXTS * 8, *, runs: int = 5, chunks: Sequence[int] = CHUNKS
) -> float:
    """Measure the throughput at the best number of texts per call: the median of several runs."""
    return max(speeds(encoder, texts, runs=runs, chunks=chunks).values())


def speeds(
    encoder: Encoder, texts: Sequence[str] = TEXTS * 8, *, runs: int = 5, chunks: Sequence[int] = CHUNKS
) -> dict[int, float]:
    """Measure sentences per second, the median of several runs, by the number of texts per call.

    Numbers beyond the first that takes all texts at once are left out.
    """
    require(runs >= 1, "runs >= 1", runs=runs)
    if not texts:
        raise BadInput("a speed needs texts to time, but there are none.")
    found: dict[int, float] = {}
    for chunk in chunks:
        parts = [list(texts[start : start + chunk]) for start in range(0, len(texts), chunk)]
        encoder.encode(parts[0])
        seconds = [sum(_timed(encoder, part) for part in parts) for _ in range(runs)]
        found[chunk] = len(texts) / float(np.median(seconds))
        if chunk >= len(texts):
            break
    return found


def pairs_per_second(scorer: Scorer, texts: Sequence[str] = TEXTS * 2, *, runs: int = 3) -> float:
    """Measure how many text pairs a scorer scores per second: the median of several runs."""
    first = [text for text in texts for _ in texts]
    second = list(texts) * len(texts)
    scorer.score(first[:4], second[:4])
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        scorer.score(first, second)
        seconds.append(time.perf_counter() - start)
    return len(first) / float(np.median(seconds))


def latency_ms(encoder: Encoder, texts: Sequence[str] = TEXTS, *, calls: int = 50) -> dict[str, float]:
    """Measure milliseconds for a single text: ``p50`` and ``max`` over the calls after a short warm-up."""
    require(calls >= 1, "calls >= 1", calls=calls)
    for text in texts[:3]:
        encoder.encode([text])
    seconds = [_timed(encoder, [texts[call % len(texts)]]) for call in range(calls)]
    return {"p50": 1e3 * float(np.median(seconds)), "max": 1e3 * max(seconds)}


class _PublishedStudent(nn.Module):
    """A sentence-transformers model with the interface of a student."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tokens) -> Encoding:
        batch = {"input_ids": tokens.input_ids_BT, "attention_mask": tokens.attention_mask_BT}
        return Encoding(self.model(batch)["sentence_embedding"])


def threads_of(encoder: Any) -> int:
    """The number of threads that a model computes with."""
    return encoder.threads if isinstance(encoder, ThreadedEncoder) else torch.get_num_threads()


def _megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


def _timed(encoder: Encoder, texts: list[str]) -> float:
    start = time.perf_counter()
    encoder.encode(texts)
    return time.perf_counter() - start
