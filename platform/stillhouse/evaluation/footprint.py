"""The costs of serving a model: its size as int8 and as ONNX, speed by batch, an index of its vectors."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stillhouse.core.types import Encoder, Encoding, Tokens
from stillhouse.evaluation.cost import TEXTS, latency_ms, speeds

BATCHES = (1, 8, 32, 64)


def int8_megabytes(module: nn.Module) -> float:
    """10^6 bytes with every matrix in int8 and a float32 scale a row, and the rest in float32.

    Shared weights count once. Calculated: no file is written.
    """
    once = {
        (weight.data_ptr(), weight.shape): weight
        for weight in module.state_dict().values()
        if isinstance(weight, torch.Tensor)
    }
    total = sum(
        weight.numel() + 4 * weight.shape[0] if weight.ndim >= 2 else 4 * weight.numel()
        for weight in once.values()
    )
    return total / 1e6


def onnx_megabytes(module: Any) -> dict[str, float]:
    """``megabytes_onnx`` and ``megabytes_onnx_int8``: 10^6 bytes of the graph's files, written and removed.

    The second is the first after onnxruntime's dynamic quantisation of its weights.

    Args:
        module: A student, or a model of sentence-transformers. Needs the extra ``onnx``.

    Raises:
        BadInput: The graph cannot be written.
    """
    from stillhouse.students.export.onnx import quantise, write_graph

    published = not hasattr(module, "dim")
    with tempfile.TemporaryDirectory(prefix="onnx-") as folder:
        graph = Path(folder) / "model.onnx"
        write_graph(_Published(module) if published else module, graph)
        whole = _megabytes(graph.parent)
        quantise(graph)
        return {"megabytes_onnx": whole, "megabytes_onnx_int8": _megabytes(graph.parent)}


def measure_speed(
    encoder: Encoder, texts: Sequence[str] = TEXTS * 8, *, runs: int = 3, calls: int = 100
) -> dict[str, float]:
    """Sentences a second at one text a call and at the best number, latency of one text, and the threads.

    Args:
        encoder: What is timed where it stands, tokenisation included.
        texts: What is encoded.
        runs: Timed runs for the throughput.
        calls: Timed calls for the latency.
    """
    by_batch = speeds(encoder, texts, runs=runs, chunks=BATCHES)
    best = max(by_batch, key=lambda batch: by_batch[batch])
    latency = latency_ms(encoder, texts, calls=calls)
    return {
        "sentences_per_second_1": by_batch[1],
        "sentences_per_second": by_batch[best],
        "best_batch": float(best),
        "latency_ms_p50": latency["p50"],
        "latency_ms_p99": latency["p99"],
        "threads": float(torch.get_num_threads()),
    }


def index_megabytes(dim: int) -> dict[str, float]:
    """10^6 bytes of a million vectors of ``dim`` numbers, by their form, ids and graphs not included.

    ``binary_rescored`` keeps int8 vectors beside the bits, to score the best of a search again.
    """
    bits = -(-dim // 8)
    per_vector = {"float32": 4 * dim, "float16": 2 * dim, "int8": dim, "binary": bits}
    return {kind: float(size) for kind, size in {**per_vector, "binary_rescored": bits + dim}.items()}


class _Published(nn.Module):
    """A model of sentence-transformers as a student, tokens to vectors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tokens) -> Encoding:
        given = {"input_ids": tokens.input_ids_BT, "attention_mask": tokens.attention_mask_BT}
        return Encoding(self.model(given)["sentence_embedding"])


def _megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6
