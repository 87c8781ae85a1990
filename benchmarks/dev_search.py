"""Dev queries in passages by torch (`exact`) and by FAISS (`flat`), as the actors of a sweep search.

Prints the table of docs/benchmarks.md from which `auto` of `selection.index` has its rule.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from stillhouse.core.types import FloatArray
from stillhouse.evaluation.retrieval import LocalSearch, settled, unit

DEPTH = 108


def main() -> None:
    """Print one row per number of threads, passages and queries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--passages", type=int, nargs="+", default=[800, 10_000, 100_000])
    parser.add_argument("--seconds", type=float, default=4.0, help="most seconds of repetitions per figure")
    given = parser.parse_args()
    random = np.random.default_rng(0)
    queries = unit(random.standard_normal((1000, 384), np.float32))
    print("| threads | passages | queries | exact, ms | flat, ms | flat / exact | same ids |")
    print("|---|---|---|---|---|---|---|")
    for rows in given.passages:
        passages = unit(random.standard_normal((rows, 384), np.float32))
        for threads in given.threads:
            torch.set_num_threads(threads)
            for count in (250, 1000):
                row(threads, queries[:count], passages, given.seconds)


def row(threads: int, queries_QD: FloatArray, passages_ND: FloatArray, limit: float) -> None:
    """Print the shortest times of both, which a busy machine lengthens least."""
    searches = [LocalSearch(threads, index) for index in ("exact", "flat")]
    runs = [partial(each.search, passages_ND, queries_QD, DEPTH) for each in searches]
    one, other = (settled(run(), queries_QD, passages_ND)[1][:, :100] for run in runs)
    exact, flat = (1000 * shortest(run, limit) for run in runs)
    print(
        f"| {threads} | {len(passages_ND):,} | {len(queries_QD):,} | {exact:.3g} | {flat:.3g} "
        f"| {flat / exact:.2f} | {100 * (one == other).mean():.2f} % |",
        flush=True,
    )


def shortest(run: Callable[[], object], limit: float) -> float:
    """The shortest time of several runs, in seconds."""
    taken: list[float] = []
    while len(taken) < 15 and sum(taken) < limit:
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return min(taken)


if __name__ == "__main__":
    main()
