"""Exact search of 200 queries in 100 000 passages, against FAISS and sentence-transformers.

Also from vectors to figures, against sentence-transformers' `InformationRetrievalEvaluator`.
"""

import sys
from typing import Any

import numpy as np
import torch
from harness import Row, arguments, at_least, finish, in_turn, median, ratio, spread
from torch import Tensor

from stillhouse.core.types import FloatArray
from stillhouse.evaluation.metrics import average_precision, judge, ndcg, recall, reciprocal_rank
from stillhouse.evaluation.search.exact import search


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
        rows.append(figures(queries_QD, passages_ND, k, options.repeats))
    return finish(rows, options)


class Encoded:
    """A model for the evaluator that returns precomputed vectors."""

    def __init__(self, queries_QD: Tensor) -> None:
        self.queries_QD = queries_QD

    def encode_query(self, queries: list[str], **_: Any) -> Tensor:
        """The vectors of all queries."""
        return self.queries_QD


def figures(queries_QD: FloatArray, passages_ND: FloatArray, k: int, repeats: int) -> Row:
    """From vectors to nDCG@10 and MRR@10, three relevant passages a query, rankings k deep."""
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
    from sentence_transformers.util import dot_score

    asked = {f"q{row}": f"query {row}" for row in range(len(queries_QD))}
    held = {f"p{row}": "" for row in range(len(passages_ND))}
    near = search(queries_QD, passages_ND, 20)[1][:, (0, 7, 19)]
    relevant = {query: {f"p{row}" for row in rows} for query, rows in zip(asked, near, strict=True)}
    queries_Q = np.arange(len(queries_QD))
    qrels_N3 = np.array([(query, row, 1) for query, rows in enumerate(near) for row in rows])
    evaluator = InformationRetrievalEvaluator(
        asked,
        held,
        relevant,
        mrr_at_k=[10],
        ndcg_at_k=[10],
        accuracy_at_k=[1],
        precision_recall_at_k=[1, 10, k],
        map_at_k=[k],
        score_functions={"dot": dot_score},
        write_csv=False,
    )
    model, corpus = Encoded(torch.from_numpy(queries_QD)), torch.from_numpy(passages_ND)
    found: dict[str, tuple[float, float]] = {}

    def ours() -> None:
        judged = judge(search(queries_QD, passages_ND, k)[1], queries_Q, qrels_N3)
        others = [*(recall(judged, at) for at in (1, 10, k)), average_precision(judged, k)]
        means = [float(each.mean()) for each in (ndcg(judged, 10), reciprocal_rank(judged, 10), *others)]
        found["ours"] = means[0], means[1]

    def theirs() -> None:
        scores = evaluator.compute_all_metrics(model, corpus_embeddings=corpus)["dot"]
        found["theirs"] = (float(scores["ndcg@k"][10]), float(scores["mrr@k"][10]))

    seconds = in_turn({"ours": ours, "theirs": theirs}, max(2, repeats // 2))
    apart = max(abs(mine - other) for mine, other in zip(found["ours"], found["theirs"], strict=True))
    return Row(
        f"the same, top {k}, to nDCG@10, MRR@10, MAP and recall",
        "sentence-transformers `InformationRetrievalEvaluator`",
        **at_least(ratio(seconds["theirs"], seconds["ours"]), 4),
        ours=spread([1000 * value for value in seconds["ours"]], "ms"),
        peer=spread([1000 * value for value in seconds["theirs"]], "ms"),
        note=f"nDCG@10 and MRR@10 agree to {apart:.0e}",
    )


if __name__ == "__main__":
    sys.exit(main())
