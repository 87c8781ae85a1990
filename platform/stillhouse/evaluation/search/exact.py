"""Exact nearest-neighbour search by inner product whose result does not depend on how it is sharded.

The last digits of a matrix product depend on the shape of its operands. Passages are therefore cut into tiles
of `TILE` rows aligned to their global ids, queries into blocks of `QUERY_BLOCK`, and every tile is copied to
memory of its own. Shards of whole tiles, searched anywhere with the same number of threads, then merge to the
bits of the unsharded result. Equal scores are ranked by id, the lower first, also at the cut of the top k.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stillhouse.core.allocation import keep_large_blocks
from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import FloatArray
from stillhouse.evaluation.search.top_k import MAX_ID, Top, ids_of, keys_of, scores_of
from stillhouse.students.cpu.products import LEAST_ROWS, laid_out, linear

TILE = 2048
QUERY_BLOCK = 256

NOTHING_TO_SEARCH = "a search needs queries and passages, but one of them is empty."

Ranking = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]
"""Scores (Q, K) and passage ids (Q, K), best first; K is at most the number of passages."""


def search(
    queries_QD: FloatArray,
    passages_ND: FloatArray,
    k: int,
    first_id: int = 0,
    *,
    threads: int | None = None,
) -> Ranking:
    """Find the k passages with the highest inner product for every query.

    Args:
        queries_QD: Query vectors.
        passages_ND: Passage vectors of any floating type; a memory map is read tile by tile.
        k: Depth of the ranking.
        first_id: The id of the first passage, a multiple of `TILE` for shards that will be merged.
        threads: Number of threads; None keeps torch's current number.

    Returns:
        float32 scores and int64 ids.

    Raises:
        BadInput: If a vector is not finite, or dimensions differ.
    """
    if queries_QD.ndim != 2 or passages_ND.ndim != 2 or queries_QD.shape[1] != passages_ND.shape[1]:
        raise BadInput(
            f"queries and passages must have the same dimension, but have the shapes {queries_QD.shape} and "
            f"{passages_ND.shape}."
        )
    return search_stream(queries_QD, [passages_ND], k, first_id, threads=threads)


def search_stream(
    queries_QD: FloatArray,
    blocks: Iterable[FloatArray],
    k: int,
    first_id: int = 0,
    *,
    threads: int | None = None,
) -> Ranking:
    """Search like `search`, over passages that come in blocks and are never all in memory.

    The blocks come in the order of the ids; every block but the last consists of whole tiles.

    Raises:
        BadInput: As for `search`.
    """
    require(k >= 1, "k >= 1", k=k)
    if not len(queries_QD):
        raise BadInput(NOTHING_TO_SEARCH)
    keep_large_blocks()
    require_finite(queries_QD, "query vectors")
    query_blocks = [
        _copied(queries_QD[at : at + QUERY_BLOCK]) for at in range(0, len(queries_QD), QUERY_BLOCK)
    ]
    best = [Top(k) for _ in query_blocks]
    at = first_id
    # Blocks may be encoded on demand, with all threads: the number of threads is only set for the search.
    for block in _checked(blocks, queries_QD.shape[1]):
        with _threads(threads):
            for start in range(0, len(block), TILE):
                tile = _copied(block[start : start + TILE])
                _search_tile(query_blocks, tile, at, best)
                at += len(tile)
    if at == first_id:
        raise BadInput(NOTHING_TO_SEARCH)
    with _threads(threads):
        return _ranking(torch.cat([top.keys() for top in best]), min(k, at - first_id))


def merge(parts: Sequence[Ranking], k: int) -> Ranking:
    """Merge the top k of rankings over disjoint passages, exactly as if they had been searched together."""
    require(len(parts) > 0, "rankings to merge >= 1", rankings=0)
    keys = [keys_of(torch.tensor(scores), torch.tensor(ids)) for scores, ids in parts]
    together = torch.cat(keys, dim=1)
    depth = min(k, together.shape[1])
    return _ranking(together.topk(depth, dim=1).values, depth)


def shards(passages: int, parts: int) -> list[tuple[int, int]]:
    """Split rows into at most ``parts`` nonempty ranges of whole tiles, as even as tiles allow."""
    tiles = -(-passages // TILE)
    edges = [tiles * part // min(parts, tiles) * TILE for part in range(min(parts, tiles) + 1)]
    return [(start, min(stop, passages)) for start, stop in itertools.pairwise(edges)]


def require_finite(vectors: FloatArray | Tensor, what: str, first_row: int = 0) -> None:
    """Refuse vectors that contain NaN or infinity.

    Raises:
        BadInput: If there are such vectors; the message has the first row and their number.
    """
    tensor = vectors if isinstance(vectors, Tensor) else torch.tensor(np.asarray(vectors))
    if bool(tensor.sum().isfinite()):
        return
    bad = ~torch.isfinite(tensor).all(dim=1)
    if bool(bad.any()):
        row = first_row + int(bad.nonzero()[0])
        raise BadInput(
            f"{what} must be finite, but {int(bad.sum())} contain NaN or infinity, the first in row {row}. "
            "The model has diverged, or its weights are damaged."
        )


def _checked(blocks: Iterable[FloatArray], dim: int) -> Iterator[FloatArray]:
    whole = True
    for block in blocks:
        if block.ndim != 2 or block.shape[1] != dim:
            raise BadInput(
                f"passages must have the dimension of the queries, {dim}, but have the shape {block.shape}."
            )
        assert whole, "every block but the last consists of whole tiles"
        whole = len(block) % TILE == 0
        yield block


def _search_tile(blocks: list[Tensor], tile: Tensor, first_id: int, best: list[Top]) -> None:
    require(0 <= first_id <= MAX_ID - len(tile), "ids < 2**32", first_id=first_id)
    require_finite(tile, "passage vectors", first_id)
    # For few queries, changing the layout of the rows would cost more than the product.
    ready = laid_out(tile) if len(blocks[0]) >= LEAST_ROWS else tile
    for top, queries in zip(best, blocks, strict=True):
        top.add(linear(queries, ready), first_id)


def _copied(rows: FloatArray) -> Tensor:
    # torch aligns its allocations, so the alignment of the source can no longer change a digit.
    return torch.tensor(np.asarray(rows)).to(torch.float32).contiguous()


def _ranking(keys: Tensor, depth: int) -> Ranking:
    keys = keys[:, :depth]
    return scores_of(keys).numpy(), ids_of(keys).numpy()


@contextlib.contextmanager
def _threads(threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if threads in (None, before):
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
