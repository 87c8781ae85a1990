"""Hard negatives: for every (query, passage) pair the passages nearest to the query by the teacher."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stillhouse.artifacts import Workspace, locked, replacing, write_manifest
from stillhouse.errors import require
from stillhouse.plan import Examples, Mined
from stillhouse.spec import canonical
from stillhouse.types import IntArray

COLUMN = "negatives"
QUERY_TILE, PASSAGE_TILE = 256, 16384


def build_mined(workspace: Workspace, examples: Examples, *, device: str = "cpu") -> None:
    """Mine the negatives of examples whose origin is `Mined`, if nobody has yet; others who want it wait.

    Pairs for which the rule leaves fewer than K negatives, or without a teacher vector, are left out and
    counted in the manifest.

    Args:
        workspace: Where the pairs and both stores are.
        examples: What to build; beside ``query`` and ``passage`` it has the column ``negatives``.
        device: Where the products are computed.

    Raises:
        BadInput: No pair has enough negatives, or what it is mined from is not there.
    """
    if workspace.finished(examples):
        return
    rule = examples.origin
    assert isinstance(rule, Mined), "only mined examples are mined"
    wanted = {"query", "passage", COLUMN}
    require(
        set(examples.columns) == wanted,
        f"mined examples have the columns {wanted}",
        got=list(examples.columns),
    )
    folder = workspace.path(examples)
    with locked(folder.with_suffix(".lock")):
        if not workspace.finished(examples):
            _build(workspace, examples, rule, folder, device)


def _build(workspace: Workspace, examples: Examples, rule: Mined, folder: Path, device: str) -> None:
    from stillhouse.corpora.tables import open_rows
    from stillhouse.teachers.store import open_store

    pairs = open_rows(workspace, rule.pairs)
    queries, passages = open_store(workspace, rule.queries), open_store(workspace, rule.passages)
    known = np.isin(pairs["query"], queries.rows) & np.isin(pairs["passage"], passages.rows)
    query, passage = np.asarray(pairs["query"])[known], np.asarray(pairs["passage"])[known]
    candidates = np.sort(passages.rows)
    vectors_NE = _unit(passages.gather(candidates)).to(device)
    parts = []
    for start in range(0, len(query), QUERY_TILE):
        chosen = slice(start, start + QUERY_TILE)
        queries_QE = _unit(queries.gather(query[chosen])).to(device)
        positives = known_positives(query[chosen], query, np.searchsorted(candidates, passage))
        own = torch.from_numpy(np.searchsorted(candidates, passage[chosen])).to(device)
        parts.append(nearest(queries_QE, vectors_NE, own, positives, rule).cpu().numpy())
    found = np.concatenate(parts) if parts else np.empty((0, rule.negatives), dtype=np.int64)
    enough = (found >= 0).all(axis=1)
    require(
        bool(enough.any()),
        "some pair has K hard negatives",
        negatives=rule.negatives,
        passages=len(candidates),
        pairs=len(query),
        remedy="Ask for fewer negatives, raise the margin, or give more passages.",
    )
    arrays = {"query": query[enough], "passage": passage[enough], COLUMN: candidates[found[enough]]}
    for name, array in arrays.items():
        with replacing(folder / f"{name}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, array.astype(np.int64))
    dropped = {"without_vector": int((~known).sum()), "too_few_negatives": int((~enough).sum())}
    write_manifest(folder, {"rows": int(enough.sum()), "dropped": dropped, "plan": canonical(examples)})


def known_positives(tile: IntArray, query: IntArray, passage: IntArray) -> tuple[IntArray, IntArray]:
    """Every passage that answers a query of the tile, in any pair: none of them may be a negative.

    Args:
        tile: Query ids.
        query: Query id of every pair.
        passage: Candidate index of every pair.

    Returns:
        Position in the tile, and candidate index, of each.
    """
    order = np.argsort(query, kind="stable")
    first = np.searchsorted(query[order], tile, side="left")
    count = np.searchsorted(query[order], tile, side="right") - first
    where = np.repeat(np.arange(len(tile)), count)
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return where, passage[order][np.repeat(first, count) + offset]


def nearest(
    queries_QE: Tensor,
    passages_NE: Tensor,
    own_Q: Tensor,
    positives: tuple[IntArray, IntArray],
    rule: Mined,
) -> Tensor:
    """The K nearest passages that the rule allows.

    Ranks count from 1 and leave the query's positives out. The first ``rule.first - 1`` of them are skipped,
    then those whose cosine is not below ``rule.margin`` times the positive's.

    Args:
        queries_QE: Unit vectors.
        passages_NE: Unit vectors of the candidates.
        own_Q: Candidate index of each query's positive.
        positives: What `known_positives` returns.
        rule: K, first rank and margin.

    Returns:
        (Q, K) candidate indices by falling cosine; -1 where there are not enough.
    """
    limit_Q1 = rule.margin * (queries_QE * passages_NE[own_Q]).sum(dim=1, keepdim=True)
    skipped = max(0, rule.first - 1)
    top = _Top(len(queries_QE), skipped, queries_QE.device)
    allowed = _Top(len(queries_QE), rule.negatives + skipped, queries_QE.device)
    row, column = (torch.from_numpy(ids).to(queries_QE.device) for ids in positives)
    for start in range(0, len(passages_NE), PASSAGE_TILE):
        cosine_QN = queries_QE @ passages_NE[start : start + PASSAGE_TILE].T
        here = (column >= start) & (column < start + PASSAGE_TILE)
        cosine_QN[row[here], column[here] - start] = -torch.inf
        top.add(cosine_QN, start)
        allowed.add(cosine_QN.masked_fill(cosine_QN >= limit_Q1, -torch.inf), start)
    repeated = (allowed.ids[:, :, None] == top.ids[:, None, :]).any(dim=2)
    allowed.cosines[repeated] = -torch.inf
    best, place = allowed.cosines.topk(rule.negatives, dim=1)
    return allowed.ids.gather(1, place).masked_fill(best == -torch.inf, -1)


class _Top:
    """The best of all tiles so far."""

    def __init__(self, rows: int, depth: int, device: torch.device) -> None:
        self.depth = depth
        self.cosines = torch.full((rows, depth), -torch.inf, device=device)
        self.ids = torch.full((rows, depth), -1, dtype=torch.int64, device=device)

    def add(self, cosine_QN: Tensor, start: int) -> None:
        if self.depth == 0:
            return
        cosines, ids = cosine_QN.topk(min(self.depth, cosine_QN.shape[1]), dim=1)
        both = torch.cat([self.cosines, cosines], dim=1)
        self.cosines, place = both.topk(self.depth, dim=1)
        self.ids = torch.cat([self.ids, ids + start], dim=1).gather(1, place)


def _unit(vectors: object) -> Tensor:
    return functional.normalize(torch.as_tensor(vectors, dtype=torch.float32), dim=-1)
