"""A sample of a collection's passages for evaluation during training, and how far its figures are off.

The pool holds every relevant passage, the passages nearest to each query by the teacher and by TF-IDF, and
random ones. All that is relevant is there and some that is not is missing, so a pool's figures are never
lower than the whole's: they steer, and are not reported. `calibrate` measures a model on both, once.

TREC builds its pools likewise, from the top of several systems (Spärck Jones & van Rijsbergen 1975).
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from stillhouse.core.artifacts import Workspace, locked, read_json, read_manifest, write_json, write_manifest
from stillhouse.core.errors import require
from stillhouse.core.identity import canonical, fingerprint
from stillhouse.core.types import Encoder, IntArray
from stillhouse.evaluation.retrieval import DocSearch, Search, unit
from stillhouse.evaluation.search.exact import search
from stillhouse.plan.data import Collection, Named, Store, TextTable

CALIBRATION = "calibration.json"
NAME = "docsearch_pool"


@dataclass(frozen=True)
class Pool(Named):
    """A pool of a collection. On disk: a manifest that names the sampled collection, and calibrations.

    Attributes:
        collection: What is sampled.
        queries: Teacher's vectors of its queries.
        passages: Teacher's vectors of its passages.
        random: Random passages beside the others; fewer where so many are not left.
        hard: Nearest passages a query by the teacher, and as many by TF-IDF.
        seed: Of the random passages.
    """

    kind: ClassVar[str] = "pools"
    version: ClassVar[int] = 1
    collection: Collection
    queries: Store
    passages: Store
    random: int
    hard: int = 50
    seed: int = 0
    label: str = field(default="pool", metadata={"identity": False})

    def __post_init__(self) -> None:
        """Check the ranges."""
        require(self.random >= 0, "random >= 0", random=self.random)
        require(self.hard >= 1, "hard >= 1", hard=self.hard)


def build_pool(workspace: Workspace, pool: Pool) -> Collection:
    """The sampled collection; it is put together if nobody has yet.

    Args:
        workspace: Where the collection and both stores are.
        pool: What to sample.

    Raises:
        BadInput: What it is sampled from is not there.
    """
    folder = workspace.path(pool)
    with locked(folder.with_suffix(".lock")):
        if not workspace.finished(pool):
            _build(workspace, pool)
    made = read_manifest(folder)
    passages = TextTable(sha256=made["passages_sha256"], label=f"{pool.collection.label}-pool")
    return Collection(pool.collection.queries, passages, made["qrels_sha256"], label=passages.label)


def calibrate(
    workspace: Workspace, pool: Pool, model: Encoder, name: str, search: Search | None = None
) -> dict[str, dict[str, float]]:
    """Every figure of a model on the whole collection and on the pool, and the first over the second.

    Args:
        workspace: Where the pool is; what is found is kept there, and a model of that name is measured once.
        pool: A pool.
        model: Any; the teacher's own figures differ least, since its nearest passages are in the pool.
        name: All that decides the model's vectors.
        search: What ranks; None searches in this process.

    Returns:
        Figure to ``full``, ``pool`` and ``ratio``, which is 0 where the pool's figure is.
    """
    path = workspace.path(pool) / CALIBRATION
    sampled = build_pool(workspace, pool)
    known: dict[str, Any] = read_json(path) if path.exists() else {}
    if name not in known:
        on_full = DocSearch(pool.collection, workspace, search=search)(model)
        on_pool = DocSearch(sampled, workspace, name=NAME, search=search)(model)
        pairs = zip(on_full.items(), on_pool.values(), strict=True)
        known[name] = {
            figure: {"full": full, "pool": part, "ratio": full / part if part else 0.0}
            for (figure, full), part in pairs
        }
        write_json(path, known)
    found: dict[str, dict[str, float]] = known[name]
    return found


def _build(workspace: Workspace, pool: Pool) -> None:
    from stillhouse.corpora.tables import open_qrels, open_texts, write_collection, write_texts

    texts = open_texts(workspace, pool.collection.passages)
    qrels_N3 = np.asarray(open_qrels(workspace, pool.collection))
    relevant = qrels_N3[:, 2] > 0
    chosen = {
        "positives": np.unique(qrels_N3[relevant, 1]),
        "teacher": _near_by_teacher(workspace, pool, np.unique(qrels_N3[relevant, 0])),
        "tfidf": _near_by_words(workspace, pool, np.unique(qrels_N3[relevant, 0])),
    }
    rest = np.setdiff1d(np.arange(len(texts)), np.concatenate(list(chosen.values())))
    draw = np.random.default_rng([pool.seed, int(fingerprint(pool.collection), 16)])
    chosen["random"] = draw.choice(rest, min(pool.random, len(rest)), replace=False)
    rows = np.unique(np.concatenate(list(chosen.values())))
    # Texts of a table differ already; leaving none out keeps row and place together.
    label = f"{pool.collection.label}-pool"
    passages = write_texts(workspace, label, texts[rows], deduplicate=False)
    kept_N3 = qrels_N3[np.isin(qrels_N3[:, 1], rows)].copy()
    kept_N3[:, 1] = np.searchsorted(rows, kept_N3[:, 1])
    sampled = write_collection(workspace, label, pool.collection.queries, passages, kept_N3)
    made = {
        "passages_sha256": passages.sha256,
        "qrels_sha256": sampled.sha256,
        "passages": len(rows),
        "of": len(texts),
        **{name: len(each) for name, each in chosen.items()},
        "plan": canonical(pool),
    }
    write_manifest(workspace.path(pool), made)


def _near_by_teacher(workspace: Workspace, pool: Pool, asked: IntArray) -> IntArray:
    """Rows without a teacher's vector are near to nothing."""
    from stillhouse.teachers.store import open_store

    queries, passages = open_store(workspace, pool.queries), open_store(workspace, pool.passages)
    asked = np.intersect1d(asked, queries.rows)
    if len(asked) == 0:
        return np.empty(0, np.int64)
    vectors_NE = unit(passages.gather(passages.rows))
    _, places = search(unit(queries.gather(asked)), vectors_NE, pool.hard)
    return np.unique(passages.rows[places])


def _near_by_words(workspace: Workspace, pool: Pool, asked: IntArray) -> IntArray:
    from stillhouse.corpora.tables import open_texts
    from stillhouse.corpora.tfidf import TfIdf

    passages = open_texts(workspace, pool.collection.passages)
    queries = open_texts(workspace, pool.collection.queries)[asked]
    index = TfIdf(passages[np.arange(len(passages))])
    scores, rows = index.nearest(queries, min(pool.hard, len(passages)))
    return np.unique(rows[scores > 0])
