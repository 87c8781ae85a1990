"""A sample of a collection's passages for evaluation during training, and how far its figures deviate.

The pool holds every relevant passage, the nearest passages of each query by the teacher and by TF-IDF, and
random ones. Only irrelevant passages are missing, so a pool's figures are never lower than those of the whole
collection: they are used for selection, and not reported. `calibrate` measures a model on both, once.

TREC builds its pools in the same way, from the top of several systems (Spärck Jones & van Rijsbergen 1975).
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from stillhouse.cluster.leases import make_once
from stillhouse.core.artifacts import Workspace, read_json, read_manifest, write_json
from stillhouse.core.console import say, warn
from stillhouse.core.errors import require
from stillhouse.core.identity import fingerprint
from stillhouse.core.types import Encoder, IntArray
from stillhouse.corpora.tables import (
    open_judgements,
    open_texts,
    sampled_judgements,
    write_collection,
    write_texts,
)
from stillhouse.corpora.tfidf import TfIdf
from stillhouse.evaluation.retrieval import BLOCK, DocSearch, Search, unit
from stillhouse.evaluation.search.exact import search_stream
from stillhouse.teachers.store import open_vectors
from stillhouse.values.data import Collection, Made, TableStore, TextTable

CALIBRATION = "calibration.json"


@dataclass(frozen=True)
class Pool(Made):
    """A pool of a collection. On disk: a manifest that names the sampled collection, and calibrations.

    Attributes:
        collection: The collection to sample.
        queries: Teacher's vectors of its queries.
        passages: Teacher's vectors of its passages.
        random: Number of random passages besides the others; fewer if not enough are left.
        hard: Nearest passages per query by the teacher, and the same number by TF-IDF.
        seed: Seed for sampling the random passages.
    """

    kind: ClassVar[str] = "pools"
    version: ClassVar[int] = 1
    collection: Collection
    queries: TableStore
    passages: TableStore
    random: int
    hard: int = 50
    seed: int = 0
    label: str = field(default="pool", metadata={"identity": False})

    def __post_init__(self) -> None:
        """Check the ranges."""
        require(self.random >= 0, "random >= 0", random=self.random)
        require(self.hard >= 1, "hard >= 1", hard=self.hard)


def build_pool(workspace: Workspace, pool: Pool) -> Collection:
    """Return the sampled collection; build it first if needed, and report what it holds.

    Raises:
        BadInput: If the collection or a store is not finished.
    """
    made = read_manifest(make_once(workspace, pool, lambda _: _reported(_build(workspace, pool))))
    passages = TextTable(sha256=made["passages_sha256"], label=f"{pool.collection.label}-pool")
    return Collection(pool.collection.queries, passages, made["qrels_sha256"], label=passages.label)


def _reported(made: dict[str, Any]) -> dict[str, Any]:
    held = f"{made['passages']:,} of {made['of']:,} passages, {made['positives']:,} relevant"
    near = f"{made['teacher']:,} near by the teacher, {made['tfidf']:,} by TF-IDF"
    say(f"  dev pool: {held}, {near}, {made['random']:,} random; `stillhouse evaluate` calibrates it")
    if made["passages"] == made["of"]:
        warn("The dev pool is the whole collection: take more passages, or leave dev_pool out.")
    return made


def calibrate(
    workspace: Workspace,
    pool: Pool,
    model: Encoder,
    name: str,
    search: Search | None = None,
    *,
    prefix: str = "docsearch",
) -> dict[str, dict[str, float]]:
    """Measure a model on the whole collection and on the pool.

    The result is stored with the pool under ``name``, which says all that determines the model's vectors: a
    model is measured once. The teacher's figures deviate least, since its nearest passages are in the pool.

    Returns:
        Figure to ``full``, ``pool`` and ``ratio`` (full / pool), which is 0 if the pool's figure is 0.
    """
    path = workspace.path(pool) / CALIBRATION
    sampled = build_pool(workspace, pool)
    known: dict[str, Any] = read_json(path) if path.exists() else {}
    if name not in known:
        on_full = DocSearch(pool.collection, workspace, name=prefix, search=search)(model)
        on_pool = DocSearch(sampled, workspace, name=f"{prefix}_pool", search=search)(model)
        pairs = zip(on_full.items(), on_pool.values(), strict=True)
        known[name] = {
            figure: {"full": full, "pool": part, "ratio": full / part if part else 0.0}
            for (figure, full), part in pairs
        }
        write_json(path, known)
    found: dict[str, dict[str, float]] = known[name]
    return found


def _build(workspace: Workspace, pool: Pool) -> dict[str, Any]:
    """Choose the passages and write the sampled collection, which the manifest names."""
    texts = open_texts(workspace, pool.collection.passages)
    judgements = open_judgements(workspace, pool.collection)
    qrels_N3 = np.asarray(judgements.qrels_N3)
    relevant = qrels_N3[:, 2] > 0
    chosen = {
        "positives": np.unique(qrels_N3[relevant & (qrels_N3[:, 1] >= 0), 1]),
        "teacher": _near_by_teacher(workspace, pool, np.unique(qrels_N3[relevant, 0])),
        "tfidf": _near_by_words(workspace, pool, np.unique(qrels_N3[relevant, 0])),
    }
    rest = np.setdiff1d(np.arange(len(texts)), np.concatenate(list(chosen.values())))
    draw = np.random.default_rng([pool.seed, int(fingerprint(pool.collection), 16)])
    chosen["random"] = draw.choice(rest, min(pool.random, len(rest)), replace=False)
    rows = np.unique(np.concatenate(list(chosen.values())))
    # The texts of a table are distinct already; without deduplication every row keeps its position.
    label = f"{pool.collection.label}-pool"
    passages = write_texts(workspace, label, texts[rows], deduplicate=False)
    sampled = write_collection(
        workspace, label, pool.collection.queries, passages, sampled_judgements(judgements, rows)
    )
    return {
        "passages_sha256": passages.sha256,
        "qrels_sha256": sampled.sha256,
        "passages": len(rows),
        "of": len(texts),
        **{name: len(each) for name, each in chosen.items()},
    }


def _near_by_teacher(workspace: Workspace, pool: Pool, query_rows: IntArray) -> IntArray:
    """Find the nearest passages by the teacher; rows without a teacher's vector are skipped."""
    queries, passages = open_vectors(workspace, pool.queries), open_vectors(workspace, pool.passages)
    query_rows = np.intersect1d(query_rows, queries.rows)
    if len(query_rows) == 0:
        return np.empty(0, np.int64)
    blocks = (
        unit(passages.gather(passages.rows[at : at + BLOCK])) for at in range(0, len(passages.rows), BLOCK)
    )
    _, places = search_stream(unit(queries.gather(query_rows)), blocks, pool.hard)
    return np.unique(passages.rows[places])


def _near_by_words(workspace: Workspace, pool: Pool, query_rows: IntArray) -> IntArray:
    passages = open_texts(workspace, pool.collection.passages)
    queries = open_texts(workspace, pool.collection.queries)[query_rows]
    index = TfIdf(passages)
    scores, rows = index.nearest(queries, min(pool.hard, len(passages)))
    return np.unique(rows[scores > 0])
