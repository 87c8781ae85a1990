import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray
from stillhouse.evaluation.serving_cost import (
    cost,
    int8_megabytes,
    latency_ms,
    measure_speed,
    onnx_megabytes,
    sentences_per_second,
)
from stillhouse.students.pooling import mean
from stillhouse.students.sizes import sizes


class Sleeper:
    """A model that takes a millisecond per call and a tenth of one per text, by a clock of its own."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.now = 0.0

    def encode(self, texts: Sequence[str]) -> FloatArray:
        self.calls.append(len(texts))
        self.now += 0.001 + 0.0001 * len(texts)
        return np.zeros((len(texts), 2), np.float32)


@pytest.fixture
def sleeper(monkeypatch: pytest.MonkeyPatch) -> Sleeper:
    """A model whose clock replaces the machine's, so that a busy machine changes no figure."""
    model = Sleeper()
    monkeypatch.setattr(time, "perf_counter", lambda: model.now)
    return model


def test_throughput_is_taken_from_the_best_chunk(sleeper: Sleeper) -> None:
    assert sentences_per_second(sleeper, ["text"] * 64, runs=3, chunks=(1, 32)) == pytest.approx(32 / 0.0042)
    assert sentences_per_second(sleeper, ["text"] * 64, runs=3, chunks=(1,)) == pytest.approx(1 / 0.0011)


def test_latency_is_measured_on_one_text(sleeper: Sleeper) -> None:
    found = latency_ms(sleeper, ["a", "b"], calls=20)
    assert set(sleeper.calls) == {1}
    assert found == {"p50": pytest.approx(1.1), "max": pytest.approx(1.1)}


def test_sizes_of_a_known_model() -> None:
    class Tiny(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = nn.ModuleDict({"words": nn.Embedding(10, 4), "norm": nn.LayerNorm(4)})
            self.dense = nn.Linear(4, 3)
            self.tied = nn.Linear(4, 10, bias=False)
            self.tied.weight = self.embeddings["words"].weight  # type: ignore[assignment]

    assert sizes(Tiny()) == {
        "parameters": 48 + 15,
        "parameters_embedding": 48,
        "parameters_encoder": 15,
        "megabytes": pytest.approx(4 * 63 / 1e6),
    }
    assert sizes(nn.Sequential(nn.Embedding(7, 2), nn.Linear(2, 2)))["parameters_embedding"] == 14


def test_megabytes_match_the_file_size(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(256, 256), nn.BatchNorm1d(256)).half()
    save_file({name: weight.float() for name, weight in model.state_dict().items()}, tmp_path / "weights")
    on_disk = (tmp_path / "weights").stat().st_size / 1e6
    assert sizes(model)["megabytes"] == pytest.approx(on_disk, abs=2e-3)


def test_all_figures_of_a_real_model(tiny_model: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(tiny_model), device="cpu")
    found = cost(model, model, ["a cat sat on the mat"] * 8, runs=2, calls=5)
    assert found["parameters"] == sum(weight.numel() for weight in model.parameters())
    assert found["parameters"] == found["parameters_embedding"] + found["parameters_encoder"]
    assert found["threads"] == torch.get_num_threads()
    assert all(value > 0 for value in found.values())
    assert set(found) == {
        "parameters",
        "parameters_embedding",
        "parameters_encoder",
        "megabytes",
        "sentences_per_second",
        "latency_ms_p50",
        "latency_ms_max",
        "threads",
    }


def test_bad_numbers() -> None:
    with pytest.raises(BadInput, match="runs >= 1"):
        sentences_per_second(Sleeper(), ["a"], runs=0)
    with pytest.raises(BadInput, match="calls >= 1"):
        latency_ms(Sleeper(), calls=0)
    with pytest.raises(BadInput, match="texts to time"):
        sentences_per_second(Sleeper(), [])


def test_int8_counts_one_byte_per_weight_and_one_scale_per_row() -> None:
    model = nn.Sequential(nn.Linear(10, 6), nn.LayerNorm(6))
    assert int8_megabytes(model) == pytest.approx((60 + 4 * 6 + 4 * 6 + 4 * 12) / 1e6)
    tied = nn.ModuleList([nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)])
    tied[1].weight = tied[0].weight
    assert int8_megabytes(tied) == pytest.approx((15 + 20) / 1e6)


def test_speed_at_batch_size_one_and_at_the_best_batch_size(sleeper: Sleeper) -> None:
    found = measure_speed(sleeper, ["text"] * 32, runs=2, calls=4)
    assert found["best_batch"] == 32
    assert found["sentences_per_second"] == pytest.approx(32 / 0.0042)
    assert found["sentences_per_second_1"] == pytest.approx(1 / 0.0011)


class Published(nn.Module):
    """A recurrent model (quick to export) with the interface of sentence-transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(2000, 32), nn.LSTM(32, 32, batch_first=True)

    def forward(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        states_BTH = self.lstm(self.words(given["input_ids"]))[0]
        return {"sentence_embedding": mean(states_BTH, given["attention_mask"])}


def test_onnx_files_are_as_large_as_the_weights() -> None:
    model = Published()
    found = onnx_megabytes(model)
    assert found["megabytes_onnx"] == pytest.approx(sizes(model)["megabytes"], abs=0.02)
    assert found["megabytes_onnx_int8"] == pytest.approx(int8_megabytes(model), abs=0.04)
