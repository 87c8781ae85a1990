"""FAISS indexes compared with exact search: their recall of the exact top k, and their cost.

    flat                       compares every passage in FAISS; recall 1 except for ties
    hnsw:m=32,ef_construction=200,ef_search=128          Malkov & Yashunin, arXiv 1603.09320
    ivfpq:nlist=0,m=0,nbits=8,nprobe=16,train=0          Jégou et al., TPAMI 2011; 0 depends on the collection
    flat-gpu:device=0          flat on a GPU, with faiss-gpu

Recall of exact at k is the share of the exact top k that is in the top k of the index. Vectors have length 1,
so the inner product is the cosine, and the nearest by distance are the nearest by cosine. IVF-PQ uses
distances, since they place its centroids and make its codes more accurate.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.evaluation.search.exact import Ranking

PARAMETERS: dict[str, dict[str, tuple[int, int, int]]] = {
    "flat": {},
    "hnsw": {"m": (32, 2, 512), "ef_construction": (200, 1, 10_000), "ef_search": (128, 1, 10_000)},
    "ivfpq": {
        "nlist": (0, 0, 1 << 20),
        "m": (0, 0, 4096),
        "nbits": (8, 4, 12),
        "nprobe": (16, 1, 1 << 20),
        "train": (0, 0, 1 << 26),
    },
    "flat-gpu": {"device": (0, 0, 63)},
}
"""Index to parameter to (default, lowest value, highest value)."""

POINTS_PER_CENTROID = 39
"""Passages that FAISS requires per centroid; with fewer it trains, but warns."""


@dataclass(frozen=True)
class IndexChoice:
    """An index with checked parameters.

    Attributes:
        kind: ``flat``, ``hnsw``, ``ivfpq`` or ``flat-gpu``.
        parameters: All parameters, including defaults.
    """

    kind: str
    parameters: Mapping[str, int]


class Vectors(Protocol):
    """Passages to be indexed: float32 vectors of length 1."""

    @property
    def rows(self) -> int:
        """Number of passages (N)."""

    @property
    def dim(self) -> int:
        """Dimension (E)."""

    def blocks(self) -> Iterator[FloatArray]:
        """Yield all vectors in order, block by block."""

    def gather(self, rows: IntArray, /) -> FloatArray:
        """Return the vectors of ascending ``rows``."""


@dataclass(frozen=True)
class Built:
    """An index that holds a collection.

    Attributes:
        index: The FAISS index.
        build_s: Seconds to train it and to add the passages.
        trained_on: Number of passages that it was trained on; 0 if it needs no training.
        megabytes: Size of the serialised index in 10⁶ bytes.
    """

    index: Any
    build_s: float
    trained_on: int
    megabytes: float


def parse_index(text: str) -> IndexChoice:
    """Parse an index such as ``hnsw`` or ``hnsw:m=16,ef_search=64``.

    Raises:
        BadInput: If the index or a parameter is unknown, or a value is out of range.
    """
    kind, _, pairs = text.strip().partition(":")
    if kind not in PARAMETERS:
        raise BadInput(f"unknown index `{kind}`. {nearest(kind, list(PARAMETERS))}")
    known = PARAMETERS[kind]
    values = {name: default for name, (default, _, _) in known.items()}
    for pair in filter(None, pairs.split(",")):
        name, _, value = (part.strip() for part in pair.partition("="))
        if name not in known:
            remedy = nearest(name, list(known)) if known else "It has no parameters."
            raise BadInput(f"unknown parameter `{name}` of {kind}. {remedy}")
        _, low, high = known[name]
        fits = value.isdecimal() and low <= int(value) <= high
        require(fits, f"{low} <= {name} <= {high}, a whole number", index=text, **{name: value})
        values[name] = int(value)
    return IndexChoice(kind, values)


def check_index(choice: IndexChoice) -> None:
    """Check that the installed FAISS can build an index, before any work.

    Raises:
        BadInput: If FAISS is not installed, or has no GPU.
    """
    faiss = _faiss()
    if choice.kind != "flat-gpu":
        return
    # faiss-cpu and faiss-gpu share a module; only the latter has this class.
    has_gpu_build = hasattr(faiss, "StandardGpuResources")
    gpus, device = faiss.get_num_gpus() if has_gpu_build else 0, choice.parameters["device"]
    if device >= gpus:
        raise BadInput(
            f"flat-gpu needs a GPU that FAISS sees, but device {device} was requested and "
            f"{'faiss-gpu' if has_gpu_build else 'faiss-cpu'} sees {gpus}. Install the extra `gpu` "
            "(faiss-gpu) instead of `cpu`, or use --index flat."
        )


def build_index(choice: IndexChoice, files: Vectors, *, seed: int = 0) -> Built:
    """Train an index and add the passages, part by part.

    Args:
        choice: The index and its parameters.
        files: The passages.
        seed: Seed for sampling the passages to train on.

    Raises:
        BadInput: If the collection is too small to train on, or ``m`` does not divide the dimension.
    """
    check_index(choice)
    make = {"flat": _flat, "hnsw": _hnsw, "ivfpq": _ivfpq, "flat-gpu": _flat_gpu}[choice.kind]
    started = time.perf_counter()
    index, trained_on = make(choice.parameters, files, seed)
    for block in files.blocks():
        index.add(np.ascontiguousarray(block))
    seconds = time.perf_counter() - started
    return Built(index, seconds, trained_on, _bytes(index) / 1e6)


def search_index(built: Built, queries_QD: FloatArray, k: int, *, threads: int = 1) -> tuple[Ranking, float]:
    """Search an index.

    Returns:
        The top k, best first, equal scores by id, with the id -1 where there were too few hits; and the
        seconds that the search took.

    Raises:
        BadInput: If the queries have another dimension than the index.
    """
    if queries_QD.shape[1] != built.index.d:
        raise BadInput(
            f"queries must have the dimension of the index, {built.index.d}, but have {queries_QD.shape[1]}."
        )
    faiss = _faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    queries = np.ascontiguousarray(queries_QD, np.float32)
    started = time.perf_counter()
    scores, ids = built.index.search(queries, min(k, built.index.ntotal))
    seconds = time.perf_counter() - started
    faiss.omp_set_num_threads(before)
    if built.index.metric_type == faiss.METRIC_L2:
        scores = 1 - scores / 2
    order = np.lexsort((ids, -scores), axis=1)
    ranked = np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)
    return ranked, seconds


def recall_of_exact(found_QK: IntArray, exact_QK: IntArray, k: int) -> float:
    """Compute the share of the exact top k that is in the top k of the index, over all queries."""
    k = min(k, exact_QK.shape[1])
    pairs = zip(found_QK[:, :k].tolist(), exact_QK[:, :k].tolist(), strict=True)
    return float(np.mean([len(set(found) & set(exact)) / k for found, exact in pairs]))


def _flat(parameters: Mapping[str, int], files: Vectors, seed: int) -> tuple[Any, int]:
    return _faiss().IndexFlatIP(files.dim), 0


def _flat_gpu(parameters: Mapping[str, int], files: Vectors, seed: int) -> tuple[Any, int]:
    faiss = _faiss()
    resources = faiss.StandardGpuResources()
    return faiss.index_cpu_to_gpu(resources, parameters["device"], faiss.IndexFlatIP(files.dim)), 0


def _hnsw(parameters: Mapping[str, int], files: Vectors, seed: int) -> tuple[Any, int]:
    faiss = _faiss()
    index = faiss.IndexHNSWFlat(files.dim, parameters["m"], faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = parameters["ef_construction"]
    index.hnsw.efSearch = parameters["ef_search"]
    return index, 0


def _ivfpq(parameters: Mapping[str, int], files: Vectors, seed: int) -> tuple[Any, int]:
    """Default to √N lists, at most as many as the passages can train, and one byte per 8 dimensions."""
    faiss = _faiss()
    fitting = files.rows // POINTS_PER_CENTROID
    nlist = parameters["nlist"] or max(1, min(int(files.rows**0.5), fitting))
    codes = 1 << parameters["nbits"]
    require(
        max(nlist, codes) <= fitting,
        f"{POINTS_PER_CENTROID} * max(nlist, 2**nbits) <= passages",
        nlist=nlist,
        nbits=parameters["nbits"],
        passages=files.rows,
        remedy="The collection is too small to train ivfpq: use hnsw or flat, or smaller values.",
    )
    m = parameters["m"] or max(part for part in range(1, max(1, files.dim // 8) + 1) if files.dim % part == 0)
    require(files.dim % m == 0, "m divides the dimension", m=m, dimension=files.dim)
    requested = parameters["train"] or POINTS_PER_CENTROID * max(nlist, codes)
    require(
        requested >= POINTS_PER_CENTROID * max(nlist, codes),
        f"train >= {POINTS_PER_CENTROID} * max(nlist, 2**nbits)",
        train=requested,
        nlist=nlist,
        nbits=parameters["nbits"],
    )
    sample = min(requested, files.rows)
    rows = np.sort(np.random.default_rng(seed).choice(files.rows, sample, replace=False))
    quantiser = faiss.IndexFlatL2(files.dim)
    index = faiss.IndexIVFPQ(quantiser, files.dim, nlist, m, parameters["nbits"], faiss.METRIC_L2)
    index.nprobe = min(parameters["nprobe"], nlist)
    index.train(files.gather(rows))
    return index, sample


def _bytes(index: Any) -> int:
    """Count the bytes of the serialised index without storing them."""
    faiss = _faiss()
    if hasattr(faiss, "index_gpu_to_cpu") and "Gpu" in type(index).__name__:
        index = faiss.index_gpu_to_cpu(index)
    written = 0

    def count(data: bytes) -> None:
        nonlocal written
        written += len(data)

    faiss.write_index(index, faiss.PyCallbackIOWriter(count))
    return written


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise BadInput(
            "--index needs `faiss`, which is not installed. Install the extra `cpu` (faiss-cpu) or `gpu` "
            "(faiss-gpu), or omit --index: exact search does not need it."
        ) from None
    return faiss
