"""Made texts, a made model and exact search for `gpu.py`: nothing here needs data or a network."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Row, at_least, in_turn, ratio, spread
from torch import Tensor

from stillhouse.core.types import FloatArray
from stillhouse.evaluation.search.exact import search
from stillhouse.students.backbone import fresh, read_config, transformer_folder
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.in_memory import RandomVectors
from stillhouse.values.data import Model

WORDS = (
    "the of and to in is was for on that with as by from at it an are this be which or have not one all "
    "time year people way day man thing woman life child world school state family student group country "
    "problem hand part place case week company system program question work number night point home water"
).split()


def made_texts(count: int, words: int) -> list[str]:
    """Return texts of varied length around a mean number of words, the same on every call."""
    random = np.random.default_rng(words)
    lengths = np.clip(random.lognormal(np.log(words), 0.4, count), 4, 4 * words).astype(int)
    return [" ".join(random.choice(WORDS, length)) for length in lengths]


def made_model(base: Model, folder: Path, hidden: int, layers: int) -> Model:
    """A model with random weights, the files of another around them."""
    target = folder / "made"
    shutil.copytree(base.path, target, ignore=shutil.ignore_patterns("*.safetensors", "onnx", "openvino"))
    config = read_config(base)
    config.update(
        {
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "intermediate_size": 4 * hidden,
            "num_attention_heads": max(1, hidden // 64),
        }
    )
    inside = transformer_folder(base).relative_to(Path(base.path))
    fresh(config, {}, seed=0).save_pretrained(target / inside)
    for file in target.glob("*_Pooling/config.json"):
        file.write_text(file.read_text().replace(f": {read_config(base).hidden_size}", f": {hidden}"))
    return resolve_model(str(target))


def device_search(queries_QD: Tensor, passages_ND: Tensor, k: int, tile: int = 1 << 18) -> Tensor:
    """Ids of the exact top k on any device: a running top k over tiles of the product."""
    scores, ids = queries_QD.new_empty(len(queries_QD), 0), queries_QD.new_empty(len(queries_QD), 0).long()
    for first in range(0, len(passages_ND), tile):
        part = queries_QD @ passages_ND[first : first + tile].T
        values, places = part.topk(min(k, part.shape[1]), dim=1)
        scores, ids = torch.cat([scores, values], dim=1), torch.cat([ids, places + first], dim=1)
        scores, kept = scores.topk(min(k, scores.shape[1]), dim=1)
        ids = ids.gather(1, kept)
    return ids


def faiss_search(device: str, passages_ND: FloatArray, k: int) -> Callable[[FloatArray], Any] | None:
    """A flat FAISS index where it is installed, on the GPU where it has one."""
    try:
        import faiss
    except ImportError:
        return None
    index: Any = faiss.IndexFlatIP(passages_ND.shape[1])
    if device.startswith("cuda") and hasattr(faiss, "StandardGpuResources"):
        index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
    index.add(passages_ND)
    return lambda queries_QD: index.search(queries_QD, k)[1]


def search_rows(device: str, quick: bool, repeats: int, k: int = 100) -> Iterator[Row]:
    """Exact search on the device against FAISS, the ids against the platform's search on the host."""
    count, queries, dim = (4096, 20, 64) if quick else (1_000_000, 1000, 384)
    passages_ND, queries_QD = (RandomVectors(rows, dim).gather(np.arange(rows)) for rows in (count, queries))
    queries_QD = queries_QD[:, ::-1].copy()
    held_ND = torch.from_numpy(passages_ND).to(device)
    runs: dict[str, Callable[[], Any]] = {
        "ours": lambda: device_search(torch.from_numpy(queries_QD).to(device), held_ND, k).cpu().numpy()
    }
    few = slice(0, 20)
    known = search(queries_QD[few], passages_ND, k)[1]
    found = runs["ours"]()[few]
    same = float(np.mean([len(np.intersect1d(*pair)) / k for pair in zip(found, known, strict=True)]))
    assert same >= 0.99, f"only {same:.4f} of the ids are those of the exact search on the host"
    theirs = faiss_search(device, passages_ND, k)
    if theirs is not None:
        runs["faiss"] = lambda: theirs(queries_QD)
    seconds = in_turn(runs, repeats)
    what = f"exact search, {queries:,} queries in {count:,} × {dim}, top {k}"
    mine, note = spread([1000 * s for s in seconds["ours"]], "ms"), f"{100 * same:.2f} % of the host's ids"
    if theirs is None:
        yield Row(what, "faiss is not installed", "–", mine, met=True, note=note)
        return
    peer = spread([1000 * s for s in seconds["faiss"]], "ms")
    gain = at_least(ratio(seconds["faiss"], seconds["ours"]), 1.0)
    yield Row(what, "a flat FAISS index", **gain, ours=mine, peer=peer, note=note)
