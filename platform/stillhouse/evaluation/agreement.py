"""Agreement with the teacher: does the student rank pairs of texts as the teacher does?"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import require
from stillhouse.core.roles import PLAIN
from stillhouse.core.types import Encoder, FloatArray, IntArray, encode_as
from stillhouse.corpora.tables import open_texts
from stillhouse.evaluation.items import FiguresAndItems, Items, Part
from stillhouse.evaluation.metrics import cosines
from stillhouse.evaluation.retrieval import LocalSearch, Search, unit
from stillhouse.teachers.store import open_vectors
from stillhouse.values.data import AnyStore

Ids = npt.NDArray[np.int64]

NEIGHBOURS = 10
POOL = 20_000


class Agreement:
    """Spearman correlation of the student's and the teacher's cosines on pairs of held-out texts, in [-1, 1].

    Half of the pairs are random, and half are a text and one of its 10 nearest neighbours by the teacher:
    random pairs alone are nearly all dissimilar, and say little about the order of similar ones. Both halves
    share their first texts, so that 2000 pairs need at most 2000 encoded texts. Of a store with more than
    20 000 rows, a random 20 000 are used. The pairs depend only on the store, ``pairs`` and ``seed``.

    Figure: ``{name}_spearman_cosine``.

    Args:
        store: The teacher's vectors of texts that are never trained on.
        workspace: Holds the store and its texts.
        pairs: Number of pairs, at most twice the rows.
        seed: Seed for sampling the pairs.
        name: Prefix of the figure's name.
        search: Finds the nearest neighbours; None searches in this process.
        role: Role of the texts, as the teacher embedded them; empty for plain ones. The texts of a mix have
            the roles that it says.
    """

    version: ClassVar[int] = 1
    unless_default: ClassVar[tuple[str, ...]] = ("role",)
    unit: ClassVar[str] = "pairs"

    def __init__(
        self,
        store: AnyStore,
        workspace: Workspace,
        pairs: int = 2000,
        seed: int = 0,
        name: str = "agreement",
        search: Search | None = None,
        role: str = PLAIN,
    ) -> None:
        require(pairs >= 4, "pairs >= 4", pairs=pairs)
        reader = open_vectors(workspace, store)
        require(len(reader) >= 4, "rows of the store >= 4", rows=len(reader))
        self.name = name
        draw = np.random.default_rng(seed)
        rows = np.sort(draw.choice(reader.rows, min(len(reader), POOL), replace=False))
        anchors = draw.choice(len(rows), min(pairs // 2, len(rows)), replace=False)
        vectors = unit(reader.gather(rows))
        near = _neighbours(vectors, anchors, search or LocalSearch(), draw)
        first, second = np.concatenate([anchors, anchors]), np.concatenate([np.roll(anchors, 1), near])

        used, places = np.unique(np.concatenate([first, second]), return_inverse=True)
        self.texts = open_texts(workspace, store.texts)[rows[used]]
        self.roles = _roles(store, role, rows[used])
        self.first, self.second = np.split(places, 2)
        self.teacher = cosines(vectors[first], vectors[second])

    def __call__(self, model: Encoder) -> dict[str, float]:
        """Encode the texts and correlate."""
        return self.itemised(model)[0]

    def counts(self) -> dict[str, int]:
        """Count the pairs."""
        return {self.name: len(self.teacher)}

    def itemised(self, model: Encoder) -> FiguresAndItems:
        """Compute the figure, and return its pairs too."""
        vectors = encode_in_roles(model, self.roles, self.texts)
        student = cosines(vectors[self.first], vectors[self.second])
        items, name = Items((Part(student, self.teacher),), "spearman"), f"{self.name}_spearman_cosine"
        return {name: items.figure()}, {name: items}


def _roles(store: AnyStore, role: str, rows: IntArray) -> list[str]:
    """The role of each of some rows."""
    if not store.roles:
        return [role] * len(rows)
    ends = np.cumsum([count for count, _ in store.roles])
    return [store.roles[part][1] for part in np.searchsorted(ends, rows, side="right")]


def encode_in_roles(model: Encoder, roles: Sequence[str], texts: Sequence[str]) -> FloatArray:
    """Encode texts, each in its role, (N, D)."""
    present = sorted(set(roles))
    if len(present) == 1:
        return encode_as(model, present[0], texts)
    places = [[at for at, each in enumerate(roles) if each == role] for role in present]
    encoded = [
        encode_as(model, role, [texts[at] for at in inside])
        for role, inside in zip(present, places, strict=True)
    ]
    vectors: FloatArray = np.concatenate(encoded)[np.argsort(np.concatenate(places))]
    return vectors


def _neighbours(vectors_NE: FloatArray, anchors: Ids, search: Search, draw: np.random.Generator) -> Ids:
    """Draw one of the nearest other rows of every anchor."""
    depth = min(NEIGHBOURS, len(vectors_NE) - 1)
    _, found = search.search(vectors_NE, vectors_NE[anchors], depth + 1)
    # The anchor itself is usually first, but an equal vector may come before it or displace it.
    itself = found == anchors[:, None]
    itself[~itself.any(axis=1), -1] = True
    others: Ids = found[~itself].reshape(len(anchors), depth)
    return others[np.arange(len(anchors)), draw.integers(depth, size=len(anchors))]
