"""Exact search of 200 queries in 100 000 passages, against FAISS and sentence-transformers."""

import sys
from typing import Any

import numpy as np
import torch
from harness import Row, arguments, at_least, finish, in_turn, median, ratio, spread

from stillhouse.evaluation.search import search


def main() -> int:
    """The same vectors through each; the ids must be the same."""
    import faiss
    from sentence_transformers.util import semantic_search

    options = arguments(__doc__).parse_args()
    passages, queries, dim = (20_000, 50, 64) if options.quick else (100_000, 200, 384)
    threads = torch.get_num_threads()
    faiss.omp_set_num_threads(threads)
    random = np.random.default_rng(0)
    passages_ND, queries_QD = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for rows in (random.standard_normal((count, dim), np.float32) for count in (passages, queries))
    )
    flat = faiss.IndexFlatIP(dim)
    flat.add(passages_ND)
    torch_queries, torch_passages = torch.from_numpy(queries_QD), torch.from_numpy(passages_ND)
    rows = []
    for k in (10, 1000):
        runs: dict[str, Any] = {
            "ours": lambda k=k: search(queries_QD, passages_ND, k),
            "faiss-cpu flat": lambda k=k: flat.search(queries_QD, k),
            "sentence-transformers `semantic_search`": lambda k=k: semantic_search(
                torch_queries, torch_passages, top_k=k
            ),
        }
        found, theirs = search(queries_QD, passages_ND, k)[1], flat.search(queries_QD, k)[1]
        same = float(np.mean([len(np.intersect1d(*pair)) / k for pair in zip(found, theirs, strict=True)]))
        seconds = in_turn(runs, options.repeats)
        for peer in list(runs)[1:]:
            rows.append(
                Row(
                    f"{queries} queries in {passages:,} × {dim}, top {k}",
                    peer,
                    **at_least(ratio(seconds[peer], seconds["ours"]), 4),
                    ours=spread([1000 * value for value in seconds["ours"]], "ms"),
                    peer=spread([1000 * value for value in seconds[peer]], "ms"),
                    note=f"{threads} threads; {100 * same:.2f} % of the ids of FAISS, "
                    f"{queries * passages * dim * 2e-9 / median(seconds['ours']):.0f} GFLOP/s",
                )
            )
    return finish(rows, options)


if __name__ == "__main__":
    sys.exit(main())
