"""Exact search over vectors on the disk, its tiles spread over Ray actors, with one result for any number.

Shards are whole tiles, each actor maps its own and computes with a fixed number of threads; what they find is
merged by (score falling, id rising). By the argument of `search` that has the bits of the unsharded result.
"""

import logging
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.types import FloatArray
from stillhouse.evaluation.search.exact import Ranking, merge, search_stream, shards
from stillhouse.evaluation.search.vector_files import VectorFiles

log = logging.getLogger(__name__)

THREADS = 1
"""Of every shard, the only one included: the number of shards is what is chosen, and changes no bit."""


def search_shard(queries_QD: FloatArray, files: VectorFiles, k: int, start: int, stop: int) -> Ranking:
    """The top k of the rows from ``start``, the first of a tile, to ``stop``: what an actor does."""
    return search_stream(queries_QD, files.blocks(start, stop), k, start, threads=THREADS)


def search_files(queries_QD: FloatArray, files: VectorFiles, k: int, *, actors: int = 1) -> Ranking:
    """The top k of all passages.

    Args:
        queries_QD: Query vectors, of length 1 as the passages'.
        files: The passages.
        k: Depth of the ranking.
        actors: Ray actors that search, each a shard; 1 searches in this process. Ray is running already.

    Raises:
        BadInput: Queries of another dimension, a vector that is not finite, or a file that an actor's node
            does not see.
    """
    require(actors >= 1, "actors >= 1", actors=actors)
    require(
        queries_QD.shape[1] == files.dim,
        "queries have the dimension of the passages",
        queries=queries_QD.shape[1],
        passages=files.dim,
    )
    if actors == 1:
        return search_shard(queries_QD, files, k, 0, files.rows)
    return _spread(queries_QD, files, k, actors)


def _spread(queries_QD: FloatArray, files: VectorFiles, k: int, actors: int) -> Ranking:
    import ray

    ranges = shards(files.rows, actors)
    worker = ray.remote(num_cpus=0, max_restarts=2, max_task_retries=2, scheduling_strategy="SPREAD")(_Shard)
    handles = [worker.remote() for _ in ranges]
    queries = ray.put(queries_QD)
    asked = [
        handle.search.remote(queries, files, k, start, stop)
        for handle, (start, stop) in zip(handles, ranges, strict=True)
    ]
    try:
        found = [
            _answer(answer, queries_QD, files, k, *rows) for answer, rows in zip(asked, ranges, strict=True)
        ]
    finally:
        for handle in handles:
            ray.kill(handle)
    return merge(found, k)


def _answer(
    answer: Any, queries_QD: FloatArray, files: VectorFiles, k: int, start: int, stop: int
) -> Ranking:
    import ray

    try:
        found: Ranking = ray.get(answer)
    except ray.exceptions.RayActorError as error:
        log.warning("a search actor died; its shard is searched in this process: %s", error)
        return search_shard(queries_QD, files, k, start, stop)
    return found


class _Shard:
    """The actor. It holds nothing: its tiles are mapped while they are searched."""

    def search(self, queries_QD: FloatArray, files: VectorFiles, k: int, start: int, stop: int) -> Ranking:
        """The top k of a shard."""
        return search_shard(queries_QD, files, k, start, stop)
