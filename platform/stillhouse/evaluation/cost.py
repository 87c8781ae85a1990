"""What a model costs: parameters, size on the disk, sentences a second, latency."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.core.types import Encoder

CHUNKS = (32, 128)

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
    """All figures of a model, measured on this machine with the threads that torch has now.

    Args:
        encoder: What is timed, tokenisation included.
        module: The same model, whose weights are counted.
        texts: What is encoded.
        runs: Timed runs for the throughput.
        calls: Timed calls for the latency.

    Returns:
        `sizes`, ``sentences_per_second``, ``latency_ms_p50``, ``latency_ms_p99`` and ``threads``.
    """
    latency = latency_ms(encoder, texts, calls=calls)
    speed = sentences_per_second(encoder, texts, runs=runs)
    return {
        **sizes(module),
        "sentences_per_second": speed,
        "latency_ms_p50": latency["p50"],
        "latency_ms_p99": latency["p99"],
        "threads": float(torch.get_num_threads()),
    }


def sizes(module: nn.Module) -> dict[str, float]:
    """``parameters``, their ``parameters_embedding`` and ``parameters_encoder``, and ``megabytes``.

    The embedding part is the modules named ``embeddings`` (words, positions, types and their norm), or where
    a model has none, its embedding tables; the encoder is the rest. Megabytes are 10^6 bytes of the weights
    in float32, as safetensors holds them but for a header of a few kilobytes. Shared weights count once.
    """
    inside = [part for name, part in module.named_modules() if name.rsplit(".", 1)[-1] == "embeddings"]
    inside = inside or [part for part in module.modules() if isinstance(part, nn.Embedding)]
    total = sum(weight.numel() for weight in module.parameters())
    embedding = sum(weight.numel() for weight in nn.ModuleList(inside).parameters())
    stored = sum(weight.numel() for weight in _once(module.state_dict().values()))
    return {
        "parameters": float(total),
        "parameters_embedding": float(embedding),
        "parameters_encoder": float(total - embedding),
        "megabytes": stored * 4 / 1e6,
    }


def sentences_per_second(
    encoder: Encoder, texts: Sequence[str] = TEXTS * 8, *, runs: int = 5, chunks: Sequence[int] = CHUNKS
) -> float:
    """Throughput: the median of some runs, at the best number of texts handed over at once."""
    return max(speeds(encoder, texts, runs=runs, chunks=chunks).values())


def speeds(
    encoder: Encoder, texts: Sequence[str] = TEXTS * 8, *, runs: int = 5, chunks: Sequence[int] = CHUNKS
) -> dict[int, float]:
    """Sentences a second, the median of some runs, by the number of texts handed over at once.

    Numbers past the first that takes all texts are left out.
    """
    require(runs >= 1, "runs >= 1", runs=runs)
    require(len(texts) >= 1, "there are texts to time")
    found: dict[int, float] = {}
    for chunk in chunks:
        parts = [list(texts[start : start + chunk]) for start in range(0, len(texts), chunk)]
        encoder.encode(parts[0])
        seconds = [sum(_timed(encoder, part) for part in parts) for _ in range(runs)]
        found[chunk] = len(texts) / float(np.median(seconds))
        if chunk >= len(texts):
            break
    return found


def pairs_per_second(scorer: Any, texts: Sequence[str] = TEXTS * 2, *, runs: int = 3) -> float:
    """Pairs of a short and a longer text that a scorer scores in a second: the median of some runs."""
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
    """Milliseconds for one text alone: ``p50`` and ``p99`` over some calls, the first few left out."""
    require(calls >= 1, "calls >= 1", calls=calls)
    for text in texts[:3]:
        encoder.encode([text])
    seconds = [_timed(encoder, [texts[call % len(texts)]]) for call in range(calls)]
    return {"p50": 1e3 * float(np.percentile(seconds, 50)), "p99": 1e3 * float(np.percentile(seconds, 99))}


def _timed(encoder: Encoder, texts: list[str]) -> float:
    start = time.perf_counter()
    encoder.encode(texts)
    return time.perf_counter() - start


def _once(weights: object) -> Iterator[Tensor]:
    seen = set()
    for weight in weights:  # type: ignore[attr-defined]
        place = (weight.data_ptr(), weight.shape)
        if place not in seen:
            seen.add(place)
            yield weight
