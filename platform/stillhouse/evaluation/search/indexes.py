"""FAISS indexes compared with exact search: their recall of the exact top k, and their cost.

    flat                       compares every passage in FAISS
    hnsw:m=32,ef_construction=200,ef_search=128          Malkov & Yashunin, arXiv 1603.09320
    ivfpq:nlist=0,m=0,nbits=8,nprobe=16,train=0          Jégou et al., TPAMI 2011; 0 depends on the collection
    flat-gpu:device=0          flat on a GPU, with faiss-gpu

Recall of exact at k is the share of the exact top k that is in the top k of the index. Vectors have length 1,
so the inner product is the cosine, and the nearest by distance are the nearest by cosine. IVF-PQ uses
distances, since they place its centroids and make its codes more accurate.
"""

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from stillhouse.core.errors import BadInput, require
from stillhouse.core.machine import describe_machine
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.evaluation.search.exact import NOTHING_TO_SEARCH, TILE, Ranking, require_finite
from stillhouse.evaluation.search.index_options import IndexChoice, parse_index
from stillhouse.evaluation.search.top_k import Top, ids_of, keys_of, scores_of

EXACT, AUTO = "exact", "auto"
"""Beside the indexes: the product in torch, and the faster one of that and ``flat``."""
APPROXIMATE = ("hnsw", "ivfpq")
"""Indexes that miss passages, and so change figures."""

POINTS_PER_CENTROID = 39
"""Passages that FAISS requires per centroid; with fewer it trains, but warns."""


class Passages(Protocol):
    """Vectors of passages that are read slice by slice, such as an array."""

    def __len__(self) -> int:
        """The number of passages."""

    def __getitem__(self, rows: slice, /) -> FloatArray:
        """The vectors of some consecutive passages, (N, D)."""


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

    Raises:
        BadInput: If the collection is too small to train on, or ``m`` does not divide the dimension.
    """
    started = time.perf_counter()
    index, trained_on = _filled(choice, files, seed)
    seconds = time.perf_counter() - started
    return Built(index, seconds, trained_on, _bytes(index) / 1e6)


def chosen_index(index: str, threads: int) -> tuple[str, str]:
    """Choose what ``auto`` stands for, and say why; any other index is kept.

    The rule: FAISS on one thread, torch on several and on Intel processors (docs/benchmarks.md, Dev queries).
    """
    if index != AUTO:
        return index, "as selection.index says"
    if importlib.util.find_spec("faiss") is None:
        return EXACT, "since FAISS is not installed"
    if "Intel" in str(describe_machine(threads)["cpu"]):
        return EXACT, "since torch is faster on Intel processors"
    if threads == 1:
        return "flat", "since FAISS is not slower on one thread"
    return EXACT, f"since torch is faster on {threads} threads"


def search_passages(
    index: str, passages_ND: Passages, queries_QD: FloatArray, k: int, *, threads: int = 1
) -> Ranking:
    """Search passages with FAISS; an index is built for this search alone.

    Raises:
        BadInput: A vector is not finite, there is nothing to search, or the index cannot be built.
    """
    if not len(queries_QD) or not len(passages_ND):
        raise BadInput(NOTHING_TO_SEARCH)
    require_finite(queries_QD, "query vectors")
    choice, files = parse_index(index), _Held(passages_ND, queries_QD.shape[1])
    with _quick(threads):
        if choice.kind == "flat":
            return _nearest(files, queries_QD, k)
        built, _ = _filled(choice, files, 0)
        depth = min(k, files.rows)
        if choice.kind in APPROXIMATE:
            return _found(built, queries_QD, depth)
        scores, ids = _with_ties(lambda deep: _found(built, queries_QD, deep), depth, files.rows)
        return scores[:, :depth], ids[:, :depth]


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
    with _quick(threads):
        started = time.perf_counter()
        ranked = _found(built.index, queries_QD, min(k, built.index.ntotal))
        return ranked, time.perf_counter() - started


def recall_of_exact(found_QK: IntArray, exact_QK: IntArray, k: int) -> float:
    """Compute the share of the exact top k that is in the top k of the index, over all queries."""
    k = min(k, exact_QK.shape[1])
    pairs = zip(found_QK[:, :k].tolist(), exact_QK[:, :k].tolist(), strict=True)
    return float(np.mean([len(set(found) & set(exact)) / k for found, exact in pairs]))


@dataclass(frozen=True)
class _Held:
    """Passages as `Vectors`."""

    passages_ND: Passages
    dim: int

    @property
    def rows(self) -> int:
        return len(self.passages_ND)

    def blocks(self) -> Iterator[FloatArray]:
        for at in range(0, self.rows, 16 * TILE):
            block = np.asarray(self.passages_ND[at : at + 16 * TILE], np.float32)
            require_finite(block, "passage vectors", at)
            yield block

    def gather(self, rows: IntArray, /) -> FloatArray:
        return np.concatenate([self.passages_ND[row : row + 1] for row in rows.tolist()])


@contextlib.contextmanager
def _quick(threads: int) -> Iterator[None]:
    """Search with so many threads, and with matrix products from 20 queries on: FAISS waits for hundreds."""
    faiss = _faiss()
    before = faiss.omp_get_max_threads(), faiss.cvar.distance_compute_blas_threshold
    faiss.omp_set_num_threads(threads)
    faiss.cvar.distance_compute_blas_threshold = 20
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before[0])
        faiss.cvar.distance_compute_blas_threshold = before[1]


def _nearest(files: _Held, queries_QD: FloatArray, k: int) -> Ranking:
    """Compare all passages block by block, without a copy of them."""
    faiss, top, at = _faiss(), Top(k), 0
    queries = np.ascontiguousarray(queries_QD, np.float32)
    for block in files.blocks():
        rows = np.ascontiguousarray(block)

        def search(depth: int, rows: FloatArray = rows) -> Ranking:
            found: Ranking = faiss.knn(queries, rows, depth, metric=faiss.METRIC_INNER_PRODUCT)
            return found

        scores, ids = _with_ties(search, k, len(rows))
        top.take(keys_of(torch.from_numpy(scores), torch.from_numpy(ids) + at))
        at += len(rows)
    keys = top.keys()
    return scores_of(keys).numpy(), ids_of(keys).numpy()


def _with_ties(search: Callable[[int], Ranking], k: int, rows: int) -> Ranking:
    """Search as deep as those go that tie for place k, of which FAISS keeps any."""
    depth = min(k + 1, rows)
    scores, ids = search(depth)
    while depth < rows and bool((scores[:, -1] == scores[:, min(k, depth) - 1]).any()):
        depth = min(2 * depth, rows)
        scores, ids = search(depth)
    return scores, ids


def _filled(choice: IndexChoice, files: Vectors, seed: int) -> tuple[Any, int]:
    """Make an index, train it, and add all passages."""
    check_index(choice)
    make = {"flat": _flat, "hnsw": _hnsw, "ivfpq": _ivfpq, "flat-gpu": _flat_gpu}[choice.kind]
    index, trained_on = make(choice.parameters, files, seed)
    for block in files.blocks():
        index.add(np.ascontiguousarray(block))
    return index, trained_on


def _found(index: Any, queries_QD: FloatArray, k: int) -> Ranking:
    """The top k, best first, equal scores by id."""
    scores, ids = index.search(np.ascontiguousarray(queries_QD, np.float32), k)
    if index.metric_type == _faiss().METRIC_L2:
        scores = 1 - scores / 2
    order = np.lexsort((ids, -scores), axis=1)
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)


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
            "this index needs `faiss`, which is not installed. Install the extra `cpu` (faiss-cpu) or `gpu` "
            "(faiss-gpu), or search with `exact`, which does not need it."
        ) from None
    return faiss
