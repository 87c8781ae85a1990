"""Document retrieval on published collections: BEIR folders, SciFact, Cranfield, Vaswani and CACM.

Passages are encoded block by block, and only the best of each query are kept. nDCG@10, MRR@10, MAP and recall
are those of trec_eval on the run that is written (see `evaluation.trec_runs`), in [0, 1].
"""

import itertools
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from stillhouse.core.artifacts import Workspace, lock_of, locked, sha256_of
from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import fingerprint
from stillhouse.core.roles import DOCUMENT, QUERY
from stillhouse.core.types import Encoder, FloatArray, IntArray
from stillhouse.core.user_files import check_writable, is_file
from stillhouse.corpora.published.judged import PLACES, JudgedCollection, find_collections
from stillhouse.corpora.reading.row_limit import in_blocks
from stillhouse.evaluation.benchmark import About, Benchmark, Options, itemised, opened
from stillhouse.evaluation.finite_encoder import FiniteEncoder, Piecewise
from stillhouse.evaluation.items import Figures, Items, Measured, means, measured
from stillhouse.evaluation.retrieval import unit
from stillhouse.evaluation.search.exact import TILE, Ranking, search_stream
from stillhouse.evaluation.search.index_options import IndexChoice, parse_index
from stillhouse.evaluation.search.indexes import build_index, recall_of_exact, search_index
from stillhouse.evaluation.search.passage_vectors import PassageVectors, vectors_folder, write_vectors
from stillhouse.evaluation.search.sharded import THREADS, search_files
from stillhouse.evaluation.trec_runs import (
    RankedRun,
    Run,
    open_run,
    query_figures,
    require_plain_ids,
    run_figures,
    write_run,
)

NEEDS_DATA = True
MTEB_TASKS = ("SciFact", "NFCorpus", "ArguAna")
FLAGS = {
    "run": {"type": "path", "metavar": "FILE", "help": "write the rankings in TREC form"},
    "from_run": {
        "type": "path",
        "metavar": "FILE",
        "help": "measure this run, in TREC form, instead of a model",
    },
    "split": {"metavar": "NAME", "help": "measure this split instead of dev, such as train"},
    "only": {"metavar": "NAME[,NAME]", "help": "measure these collections alone, by their folders' names"},
    "drop_own_ids": {
        "action": "store_true",
        "help": "a query finds no passage with its own id, unless the pair is judged",
    },
    "search_shards": {
        "type": "int",
        "default": 1,
        "metavar": "N",
        "help": "Ray tasks that share the exact search, one thread each; the result is the same (default 1)",
    },
    "index": {
        "action": "append",
        "default": [],
        "metavar": "KIND[:NAME=VALUE,…]",
        "help": "a FAISS index to measure as well as exact search: flat, hnsw, ivfpq or flat-gpu; repeatable",
    },
    "keep_vectors": {
        "action": "store_true",
        "help": "leave the passages' vectors in the workspace for next time",
    },
}

DEPTH = 1000
BLOCK = 2 * TILE
INDEX_DEPTH = 100
"""Depth to which an index is searched, as a service would. A depth of 1000 would flatter HNSW."""

_BEYOND_INDEX_DEPTH = ("map", "recall@1000")


@dataclass(frozen=True)
class OnDisk:
    """The workspace that keeps passage vectors in its folder ``vectors``, and how they are searched.

    One actor searches in this process. The vectors are removed after use unless ``keep`` is set.
    """

    workspace: Workspace
    actors: int = 1
    indexes: tuple[IndexChoice, ...] = ()
    keep: bool = False


def _on_disk(options: Options) -> OnDisk | None:
    """Return the search over passage vectors that are kept on disk; None where they stay in memory."""
    indexes = tuple(parse_index(text) for text in options.flag("index", []))
    shards, keep = options.flag("search_shards", 1), bool(options.flag("keep_vectors"))
    if options.workspace is None or not (shards != 1 or indexes or keep):
        return None
    return OnDisk(options.workspace, shards, indexes, keep)


def prepare(root: str, options: Options) -> Benchmark:
    """Find the collections, and with ``from_run`` the runs to measure instead of a model."""
    only = list(dict.fromkeys(filter(None, (options.flag("only") or "").split(","))))
    split, own = options.flag("split", ""), bool(options.flag("drop_own_ids"))
    require(not (split and options.final), "--split and --final are not given together", split=split)
    require(not split.startswith("test"), "--final opens the test splits; --split is for others", split=split)
    collections, notes = find_collections(root, final=options.final, split=split, only=only, drop_own_ids=own)
    if not collections:
        raise BadInput(
            f"no retrieval collections under the data root {root!r}. Put folders such as BEIR's "
            f"(corpus.jsonl, queries.jsonl, qrels) in {PLACES[0]}."
        )
    for collection in collections:
        collection.understood().say()
        notes += collection.notes
    if (written := options.flag("run")) is not None:
        check_writable(written, "--run")
        rule = "--run must name a file where several collections are measured"
        require(len(collections) == 1 or is_file(written), rule, run=str(written))
        for collection in collections:
            require_plain_ids(itertools.chain(collection.queries, (each.id for each in collection.stream())))
    from_run, on_disk = options.flag("from_run"), _on_disk(options)
    if from_run is not None:
        collections, runs, more = runs_of(from_run, collections)
        notes += more

    def measure(model: FiniteEncoder) -> Measured:
        figures: Figures = {}
        items: dict[str, Mapping[str, Items]] = {}
        for collection in collections:
            of_indexes: Figures = {}
            if from_run is not None:
                run = runs[collection.name]
            elif on_disk is not None:
                run, of_indexes = rank_on_disk(collection, model, on_disk)
            else:
                run = rank_collection(collection, model)
            if written is not None:
                write_run(run_file(written, collection, single=len(collections) == 1), run)
            own = measured({collection.name: means(query_figures(run, collection.qrels))})
            items |= own.items
            figures |= own.figures
            figures |= {f"{collection.name} {name}": each for name, each in of_indexes.items()}
        return Measured(figures, items)

    known = {f"{each.name}/{path.name}": sha256_of(path) for each in collections for path in each.files}
    sets = {
        each.name: About(
            each.split, fingerprint([known[f"{each.name}/{path.name}"] for path in each.files]), "queries"
        )
        for each in collections
    }
    opens = opened(options, known)
    return itemised(measure, notes, sets=sets, opens=opens, across=False, digits=4, searches=True)


def rank_collection(collection: JudgedCollection, model: Encoder, *, block: int = BLOCK) -> Run:
    """Rank the passages of every query by cosine; vectors of ``block``, whole tiles, are held at a time."""
    queries_QD, encode = _encoded_queries(collection, model), _passage_encoder(collection, model)
    ids: list[str] = []

    def blocks() -> Iterator[FloatArray]:
        for entries in in_blocks(collection.stream(), block):
            ids.extend(entry.id for entry in entries)
            yield unit(encode([entry.text for entry in entries]))

    ranking = search_stream(queries_QD, blocks(), DEPTH + 1, threads=THREADS)
    return RankedRun(collection, ranking, lambda rows: [ids[row] for row in rows], DEPTH)


def rank_on_disk(
    collection: JudgedCollection, model: FiniteEncoder, options: OnDisk
) -> tuple[Run, dict[str, dict[str, float]]]:
    """Rank the passages with their vectors on disk, and measure FAISS indexes over them.

    An interrupted run leaves its vectors; the same command continues from there.

    Returns:
        The exact run, and the figures of each index by its name.
    """
    folder = vectors_folder(options.workspace, collection, model.identity)
    encode = _passage_encoder(collection, model)
    of_indexes: dict[str, dict[str, float]] = {}
    with locked(lock_of(folder)):  # Another command may want the same vectors, and remove them after use.
        files, ids = write_vectors(folder, collection.stream(), lambda texts: unit(encode(texts)))
        queries_QD = _encoded_queries(collection, model)

        def ids_of(rows: IntArray) -> list[str]:
            names: list[str] = ids.take(pa.array(rows)).to_pylist()
            return names

        exact = search_files(queries_QD, files, DEPTH + 1, actors=options.actors)
        if options.indexes:
            of_indexes["exact"] = _time_exact(queries_QD, files)
        for choice in options.indexes:
            ranking, figures = _measure_index(choice, queries_QD, files, exact)
            judged = run_figures(RankedRun(collection, ranking, ids_of, INDEX_DEPTH), collection.qrels)
            kept = {name: value for name, value in judged.items() if name not in _BEYOND_INDEX_DEPTH}
            name = choice.kind if choice.kind not in of_indexes else f"{choice.kind} {len(of_indexes)}"
            of_indexes[name] = kept | figures
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return RankedRun(collection, exact, ids_of, DEPTH), of_indexes


def _passage_encoder(collection: JudgedCollection, model: Encoder) -> Piecewise:
    return Piecewise(model, DOCUMENT, f"encoding {collection.name}", "passages")


def _encoded_queries(collection: JudgedCollection, model: Encoder) -> FloatArray:
    queries = list(collection.queries.values())
    return unit(Piecewise(model, QUERY, f"encoding {collection.name}", "queries", len(queries))(queries))


def _time_exact(queries_QD: FloatArray, files: PassageVectors) -> dict[str, float]:
    started = time.perf_counter()
    search_files(queries_QD, files, INDEX_DEPTH + 1)
    seconds = time.perf_counter() - started
    return {"search_s": seconds, "index_mb": 4 * files.rows * files.dim / 1e6}


def _measure_index(
    choice: IndexChoice, queries_QD: FloatArray, files: PassageVectors, exact: Ranking
) -> tuple[Ranking, dict[str, float]]:
    built = build_index(choice, files)
    found, seconds = search_index(built, queries_QD, INDEX_DEPTH + 1)
    recalls = {f"recall_of_exact@{k}": recall_of_exact(found[1], exact[1], k) for k in (10, INDEX_DEPTH)}
    cost = {"build_s": built.build_s, "search_s": seconds, "index_mb": built.megabytes}
    return found, recalls | cost | {"trained_on": float(built.trained_on)}


def run_file(path: Path, collection: JudgedCollection, *, single: bool) -> Path:
    """Return the file of a collection's run: ``path``, or with its name before the suffix among several."""
    return path if single else path.with_name(f"{path.stem}.{collection.name}{path.suffix}")


def runs_of(
    path: Path, collections: list[JudgedCollection]
) -> tuple[list[JudgedCollection], dict[str, Run], tuple[str, ...]]:
    """Read the runs that exist: the collections that have one, the runs by their names, and notes.

    Raises:
        BadInput: If there is no run, or one is malformed; the message names the line.
    """
    paths = {each.name: run_file(path, each, single=len(collections) == 1) for each in collections}
    found = [each for each in collections if paths[each.name].is_file()]
    if not found:
        names = ", ".join(str(each) for each in paths.values())
        raise BadInput(f"--from-run must name a run, one per collection, but found none of: {names}.")
    opened = {each.name: open_run(paths[each.name], each) for each in found}
    absent = [name for name in paths if name not in opened]
    notes = [f"{name}: the run {paths[name]}, sha256 {sha256_of(paths[name])[:16]}" for name in opened]
    notes += [note for _, own in opened.values() for note in own]
    notes += [f"no run of {', '.join(absent)}: left out"] if absent else []
    return found, {name: run for name, (run, _) in opened.items()}, tuple(notes)
