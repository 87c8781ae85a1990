"""FAISS indexes beside exact search: what they find of the exact top k, and what they cost.

    flat                       every passage is compared, in FAISS                     recall 1 but for ties
    hnsw:m=32,ef_construction=200,ef_search=128          Malkov & Yashunin, arXiv 1603.09320
    ivfpq:nlist=0,m=0,nbits=8,nprobe=16,train=0          Jégou et al., TPAMI 2011; 0 chooses by the collection
    flat-gpu:device=0          as flat, on a GPU, with faiss-gpu

Recall against exact at k is the share of the exact top k that the index has in its own top k. Vectors have
length 1, so the inner product is the cosine, and the nearest by distance are the nearest by cosine: IVF-PQ is
given distances, by which its centroids are placed and its codes are closer.
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
"""Index to parameter to default, lowest and highest value."""

POINTS_PER_CENTROID = 39
"""What FAISS wants at least to place a centroid; it trains with fewer, and warns."""


@dataclass(frozen=True)
class IndexChoice:
    """An index with its parameters, checked.

    Attributes:
        kind: ``flat``, ``hnsw``, ``ivfpq`` or ``flat-gpu``.
        parameters: All of them, the defaults included.
    """

    kind: str
    parameters: Mapping[str, int]


class Vectors(Protocol):
    """Passages as an index takes them in: float32 vectors of length 1."""

    @property
    def rows(self) -> int:
        """N."""

    @property
    def dim(self) -> int:
        """E."""

    def blocks(self) -> Iterator[FloatArray]:
        """All, some at a time, in order."""

    def gather(self, rows: IntArray, /) -> FloatArray:
        """Some, by their number, ascending."""


@dataclass(frozen=True)
class Built:
    """An index that holds a collection.

    Attributes:
        index: FAISS's.
        build_s: Seconds to train it and to add the passages.
        trained_on: Passages it was trained on; 0 where it needs none.
        megabytes: 10⁶ bytes of the index, written out.
    """

    index: Any
    build_s: float
    trained_on: int
    megabytes: float


def parse_index(text: str) -> IndexChoice:
    """``hnsw`` or ``hnsw:m=16,ef_search=64``.

    Raises:
        BadInput: An unknown index or parameter, with the near ones, or a value out of its range.
    """
    kind, _, given = text.strip().partition(":")
    if kind not in PARAMETERS:
        raise BadInput(f"`{kind}` is no index. {nearest(kind, list(PARAMETERS))}")
    known = PARAMETERS[kind]
    values = {name: default for name, (default, _, _) in known.items()}
    for pair in filter(None, given.split(",")):
        name, _, value = (part.strip() for part in pair.partition("="))
        if name not in known:
            remedy = nearest(name, list(known)) if known else "It has none."
            raise BadInput(f"`{name}` is no parameter of {kind}. {remedy}")
        _, low, high = known[name]
        fits = value.isdecimal() and low <= int(value) <= high
        require(fits, f"{low} <= {name} <= {high}, a whole number", index=text, **{name: value})
        values[name] = int(value)
    return IndexChoice(kind, values)


def check_index(choice: IndexChoice) -> None:
    """Refuse what FAISS here cannot do, before any work.

    Raises:
        BadInput: FAISS is missing, or has no GPU.
    """
    faiss = _faiss()
    if choice.kind != "flat-gpu":
        return
    has = hasattr(faiss, "StandardGpuResources")
    gpus = faiss.get_num_gpus() if has else 0
    require(
        has and choice.parameters["device"] < gpus,
        "flat-gpu runs on a GPU that FAISS sees",
        device=choice.parameters["device"],
        gpus=gpus,
        faiss="with GPU" if has else "faiss-cpu",
        remedy="Install the extra `gpu` (faiss-gpu) in the place of `cpu`, or use --index flat.",
    )


def build_index(choice: IndexChoice, files: Vectors, *, seed: int = 0) -> Built:
    """Train the index and add the passages, part by part.

    Args:
        choice: Which.
        files: The passages.
        seed: Of the passages that it is trained on.

    Raises:
        BadInput: The collection is too small to train on, or its dimension cannot be cut so.
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
    """The index's top k, best first, equal scores by id; and the seconds it took.

    Places that it could not fill have the id -1.

    Raises:
        BadInput: Queries of another dimension.
    """
    require(
        queries_QD.shape[1] == built.index.d,
        "queries have the dimension of the index",
        queries=queries_QD.shape[1],
        index=built.index.d,
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
    """The share of the exact top k that is in the top k found, over all queries."""
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
    """Lists: √N, as many as the passages can place; a byte for 8 dimensions."""
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
    wanted = parameters["train"] or POINTS_PER_CENTROID * max(nlist, codes)
    require(
        wanted >= POINTS_PER_CENTROID * max(nlist, codes),
        f"train >= {POINTS_PER_CENTROID} * max(nlist, 2**nbits)",
        train=wanted,
        nlist=nlist,
        nbits=parameters["nbits"],
    )
    sample = min(wanted, files.rows)
    rows = np.sort(np.random.default_rng(seed).choice(files.rows, sample, replace=False))
    quantiser = faiss.IndexFlatL2(files.dim)
    index = faiss.IndexIVFPQ(quantiser, files.dim, nlist, m, parameters["nbits"], faiss.METRIC_L2)
    index.nprobe = min(parameters["nprobe"], nlist)
    index.train(files.gather(rows))
    return index, sample


def _bytes(index: Any) -> int:
    """Of the index as FAISS writes it, counted and not kept."""
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
            "`faiss` must be installed for --index, but it is not. Install the extra `cpu` (faiss-cpu) or "
            "`gpu` (faiss-gpu), or leave --index out: exact search needs none."
        ) from None
    return faiss
