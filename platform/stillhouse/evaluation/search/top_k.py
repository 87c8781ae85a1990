"""The top k of a stream of scores, with ties broken by id; used by exact search.

A score and its id are held in one integer, the key, which sorts by descending score, then ascending id:

    key = order(score) * 2**32 + (2**32 - 1 - id)
"""

import numpy as np
import torch
from torch import Tensor

MAX_ID = 2**32 - 1
_MAGNITUDE = 2**31 - 1
_NONE = -(2**63)


def _order(scores: Tensor) -> Tensor:
    """Map float32 scores to int32 in the same order; both zeros become 0."""
    bits = scores.view(torch.int32)
    return torch.where(bits >= 0, bits, -(bits & _MAGNITUDE))


def scores_of(keys: Tensor) -> Tensor:
    """Extract the float32 scores of keys."""
    order = (keys >> 32).to(torch.int32)
    return torch.where(order >= 0, order, -order ^ -(2**31)).view(torch.float32)


def keys_of(scores: Tensor, ids: Tensor) -> Tensor:
    """Make keys from float32 scores and ids, which broadcast."""
    return (_order(scores).long() << 32) | (MAX_ID - ids)


def ids_of(keys: Tensor) -> Tensor:
    """Extract the int64 ids of keys."""
    return MAX_ID - (keys & MAX_ID)


class Top:
    """The top k keys of a block of queries. Candidates are collected, and cut when there are many."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.first: list[Tensor] = []
        self.first_id = 0
        self.found: list[Tensor] = []
        self.width = 0
        self.lowest: Tensor | None = None

    def add(self, scores: Tensor, first_id: int) -> None:
        """Add a tile. Later tiles have higher ids, so only scores above the k-th enter."""
        if self.lowest is not None:
            self._enter(scores > self.lowest, scores, first_id)
            return
        # With several k scores collected first, the k-th is closer to the final one, so fewer enter later.
        self.first_id = first_id if not self.first else self.first_id
        self.first.append(scores)
        if sum(each.shape[1] for each in self.first) >= 4 * self.k:
            self._begin()

    def _begin(self) -> None:
        scores, self.first = torch.cat(self.first, dim=1), []
        if scores.shape[1] <= self.k:
            self.take(keys_of(scores, torch.arange(self.first_id, self.first_id + scores.shape[1])))
            return
        least = scores.topk(self.k, sorted=False).values.amin(dim=1, keepdim=True)
        self._enter(scores >= least, scores, self.first_id)

    def _enter(self, entering: Tensor, scores: Tensor, first_id: int) -> None:
        # NumPy finds the few hits among many misses several times faster than torch.
        hits = torch.from_numpy(np.flatnonzero(entering.numpy()))
        if len(hits) == 0:
            return
        query, column = hits // scores.shape[1], hits % scores.shape[1]
        counts = torch.bincount(query, minlength=len(scores))
        place = torch.arange(len(query)) - (counts.cumsum(0) - counts)[query]
        keys = torch.full((len(scores), int(counts.max())), _NONE)
        keys[query, place] = keys_of(scores[query, column], first_id + column)
        self.take(keys)

    def take(self, keys: Tensor) -> None:
        """Add the keys of one tile."""
        self.found.append(keys)
        self.width += keys.shape[1]
        if self.width >= (self.k if self.lowest is None else 2 * self.k):
            self._cut()

    def keys(self) -> Tensor:
        """Return the top k keys, best first; fewer if there were fewer passages."""
        if self.first:
            self._begin()
        self._cut()
        return self.found[0].sort(dim=1, descending=True).values

    def _cut(self) -> None:
        keys = torch.cat(self.found, dim=1)
        keys = keys.topk(min(self.k, keys.shape[1]), dim=1, sorted=False).values
        self.found, self.width = [keys], keys.shape[1]
        if self.width == self.k:
            self.lowest = scores_of(keys.amin(dim=1, keepdim=True))
