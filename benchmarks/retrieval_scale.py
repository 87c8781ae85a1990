"""Exact search in shards, HNSW and IVF-PQ over synthetic passages: times, recall, memory, as Markdown.

    python benchmarks/retrieval_scale.py --rows 1000000 --dim 384 --queries 1000

Passages and queries lie in topics near a subspace of few dimensions, as a model's vectors do; uniform ones
would be the worst case of every approximate index. Each line runs in a process of its own, so its peak memory
is its own. A shard is searched by a process with one thread, as by an actor of `evaluate --search-shards`;
the pages of the memory-mapped passages count in the peak while they are mapped.
"""

import argparse
import hashlib
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from harness import machine

from stillhouse.core.types import FloatArray
from stillhouse.corpora.published.judged import Entry
from stillhouse.evaluation.search.exact import Ranking, merge, shards
from stillhouse.evaluation.search.index_options import parse_index
from stillhouse.evaluation.search.indexes import build_index, recall_of_exact, search_index
from stillhouse.evaluation.search.passage_vectors import PassageVectors, write_vectors
from stillhouse.evaluation.search.sharded import search_shard

SPAN, TOPICS = 64, 1000
"""Dimensions of the subspace, and centres in it; passages differ from theirs as much as centres differ."""

HEADER = (
    *("search", "same bits", "recall@10", "recall@100", "build s", "search s", "index MB"),
    "peak MB of a process",
)


def vectors(first: int, rows: int, dim: int, seed: int) -> FloatArray:
    """Unit vectors near a subspace; a block of rows is the same whatever was drawn before it."""
    shared = np.random.default_rng(seed)
    plane = shared.standard_normal((SPAN, dim), np.float32)
    topics = shared.standard_normal((TOPICS, SPAN), np.float32)
    draw = np.random.default_rng([seed, first])
    place = topics[draw.integers(TOPICS, size=rows)] + draw.standard_normal((rows, SPAN), np.float32)
    drawn = place @ plane + draw.standard_normal((rows, dim), np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), np.float32)


def write(folder: Path, options: argparse.Namespace) -> PassageVectors:
    """The passages, a part at a time."""

    def passages() -> Iterator[Entry]:
        return (Entry(str(row), str(row), row + 1) for row in range(options.rows))

    def encode(texts: list[str]) -> FloatArray:
        return vectors(int(texts[0]), len(texts), options.dim, options.seed)

    return write_vectors(folder, passages(), encode)[0]


def peak_mb() -> float:
    """Peak memory of this process in MB; Linux counts in KiB, macOS in bytes."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (1e6 if sys.platform == "darwin" else 1e6 / 1024)


def one_shard(
    queries: FloatArray, files: PassageVectors, k: int, start: int, stop: int
) -> tuple[Ranking, float]:
    """In a process of its own: its ranking and its peak memory."""
    return search_shard(queries, files, k, start, stop), peak_mb()


def one_index(queries: FloatArray, files: PassageVectors, k: int, text: str, exact: Ranking) -> list[str]:
    """In a process of its own: its line of the table."""
    built = build_index(parse_index(text), files)
    (_, ids), seconds = search_index(built, queries, k)
    recalls = [f"{recall_of_exact(ids, exact[1], depth):.4f}" for depth in (10, 100)]
    costs = [f"{built.build_s:.1f}", f"{seconds:.2f}", f"{built.megabytes:.0f}", f"{peak_mb():.0f}"]
    return [text, "", *recalls, *costs]


def in_processes(calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> tuple[list[Any], float]:
    """Every call in a fresh process, all at once; the processes' start is not in the seconds."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(calls), mp_context=fresh) as pool:
        list(pool.map(time.sleep, [0.5] * len(calls)))
        started = time.perf_counter()
        answers = [pool.submit(call, *arguments) for call, arguments in calls]
        return [answer.result() for answer in answers], time.perf_counter() - started


def exact_line(
    queries: FloatArray, files: PassageVectors, k: int, parts: int, first: str
) -> tuple[Ranking, str, list[str]]:
    """Search exactly in a number of shards; return the ranking, its hash and its line of the table."""
    ranges = shards(files.rows, parts)
    found, seconds = in_processes([(one_shard, (queries, files, k, *each)) for each in ranges])
    ranking = merge([each for each, _ in found], k)
    digest = hashlib.sha256(ranking[0].tobytes() + ranking[1].tobytes()).hexdigest()
    same = "yes" if digest == (first or digest) else "NO"
    size = f"{4 * files.rows * files.dim / 1e6:.0f}"
    peak = f"{max(peak for _, peak in found):.0f}"
    name = f"exact, {len(ranges)} shard{'s' if len(ranges) > 1 else ''}"
    return ranking, first or digest, [name, same, "1", "1", "0", f"{seconds:.2f}", size, peak]


def measure(folder: Path, options: argparse.Namespace) -> Iterator[list[str]]:
    """Write the passages there; the lines of the table, exact search first."""
    files = write(folder, options)
    queries = vectors(-1 & 0xFFFFFFFF, options.queries, options.dim, options.seed)
    exact, digest = None, ""
    for parts in options.shards:
        exact, digest, line = exact_line(queries, files, options.k, parts, digest)
        yield line
    for text in options.index:
        ((line,), _) = in_processes([(one_index, (queries, files, options.k, text, exact))])
        yield line


def arguments() -> argparse.ArgumentParser:
    """Define the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000, help="passages (default 100000)")
    parser.add_argument("--dim", type=int, default=384, help="dimension (default 384)")
    parser.add_argument("--queries", type=int, default=1000, help="queries (default 1000)")
    parser.add_argument("--k", type=int, default=100, help="depth, at least 100 (default 100)")
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4], help="default: 1 2 4")
    parser.add_argument("--index", nargs="*", default=["hnsw", "ivfpq"], help="default: hnsw ivfpq")
    parser.add_argument("--folder", type=Path, help="keep the passages there; default: a temporary folder")
    parser.add_argument("--seed", type=int, default=0, help="of the vectors (default 0)")
    return parser


def main() -> int:
    """Print the table; 1 where a number of shards gave another result."""
    options, differs = arguments().parse_args(), False
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print(f"{options.rows:,} passages × {options.dim}, {options.queries:,} queries, top {options.k}\n")
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    with tempfile.TemporaryDirectory() as temporary:
        for line in measure(options.folder or Path(temporary), options):
            differs |= "NO" in line
            print(f"| {' | '.join(line)} |", flush=True)
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
