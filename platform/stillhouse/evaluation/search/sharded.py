"""Exact search over vectors on disk, spread over Ray tasks; the result does not depend on their number.

Shards are whole tiles. Each task maps its own and computes with a fixed number of threads, and the results
are merged by descending score and ascending id. As explained in `evaluation.search.exact`, this gives the
bits of the unsharded result.
"""

from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import FloatArray
from stillhouse.evaluation.search.exact import Ranking, merge, search_stream, shards
from stillhouse.evaluation.search.passage_vectors import PassageVectors

THREADS = 1
"""Threads of every shard, also of a single one: only the number of shards varies, and it changes no bit."""


def search_shard(queries_QD: FloatArray, files: PassageVectors, k: int, start: int, stop: int) -> Ranking:
    """Find the top k of the rows from ``start``, the first of a tile, to ``stop``; a task calls this."""
    return search_stream(queries_QD, files.blocks(start, stop), k, start, threads=THREADS)


def search_files(queries_QD: FloatArray, files: PassageVectors, k: int, *, actors: int = 1) -> Ranking:
    """Find the top k of all passages.

    Args:
        queries_QD: Query vectors of length 1, like the passages.
        files: The passages.
        k: Depth of the ranking.
        actors: Number of Ray tasks, one shard each; 1 searches in this process. Ray must be running.

    Raises:
        BadInput: If the dimensions differ, a vector is not finite, or a task's node cannot see a file.
    """
    require(actors >= 1, "actors >= 1", actors=actors)
    if queries_QD.shape[1] != files.dim:
        raise BadInput(
            f"queries must have the dimension of the passages, {files.dim}, but have {queries_QD.shape[1]}."
        )
    if actors == 1:
        return search_shard(queries_QD, files, k, 0, files.rows)
    import ray

    task = ray.remote(search_shard).options(num_cpus=0, max_retries=2, scheduling_strategy="SPREAD")
    queries = ray.put(queries_QD)
    found = [task.remote(queries, files, k, start, stop) for start, stop in shards(files.rows, actors)]
    return merge(ray.get(found), k)
