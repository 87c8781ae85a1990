"""What ``--suite retrieval`` does beyond one process: vectors on the disk, indexes, runs of others."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress
from stillhouse.core.errors import require
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.corpora.published.judged import JudgedCollection
from stillhouse.evaluation.benchmarks.judged_search import DEPTH, Run, as_run, open_run, run_figures
from stillhouse.evaluation.finite_encoder import Checked
from stillhouse.evaluation.retrieval import unit
from stillhouse.evaluation.search.exact import Ranking
from stillhouse.evaluation.search.indexes import IndexChoice, build_index, recall_of_exact, search_index
from stillhouse.evaluation.search.sharded import search_files
from stillhouse.evaluation.search.vector_files import VectorFiles, vectors_folder, write_vectors

INDEX_DEPTH = 100
"""How deep an index is searched: what a service asks for. A depth of 1000 would make HNSW look as good."""

_TOO_DEEP = ("map", "recall@1000")


@dataclass(frozen=True)
class OnDisk:
    """Where passage vectors are kept, and what searches them.

    Attributes:
        workspace: Vectors lie on its shelf ``vectors`` while a collection is measured.
        actors: Ray actors of the exact search; 1 searches in this process.
        indexes: Measured beside exact search.
        keep: Leave the vectors there for the next command.
    """

    workspace: Workspace
    actors: int = 1
    indexes: tuple[IndexChoice, ...] = ()
    keep: bool = False


def rank_on_disk(
    collection: JudgedCollection, model: Checked, how: OnDisk
) -> tuple[Run, dict[str, dict[str, float]]]:
    """The exact run, and the figures of each index by its name.

    An interrupted run leaves the vectors that it has; the same command goes on from there.
    """
    folder = vectors_folder(how.workspace, collection, model.identity)
    progress, done = Progress(f"encoding {collection.name}", "passages"), 0

    def encode(texts: list[str]) -> FloatArray:
        nonlocal done
        done += len(texts)
        progress(done, None)
        return unit(model.encode(texts))

    files, ids = write_vectors(folder, collection.stream(), encode)
    queries_QD = unit(model.encode(list(collection.queries.values())))

    def ids_of(rows: IntArray) -> list[str]:
        names: list[str] = ids.take(pa.array(rows)).to_pylist()
        return names

    exact = search_files(queries_QD, files, DEPTH + 1, actors=how.actors)
    run = as_run(collection, exact, ids_of, DEPTH)
    beside = _exact_row(queries_QD, files) if how.indexes else {}
    for choice in how.indexes:
        found, figures = _measured(choice, queries_QD, files, exact)
        judged = run_figures(as_run(collection, found, ids_of, INDEX_DEPTH), collection.qrels)
        kept = {name: value for name, value in judged.items() if name not in _TOO_DEEP}
        beside[choice.kind if choice.kind not in beside else f"{choice.kind} {len(beside)}"] = kept | figures
    if not how.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return run, beside


def _exact_row(queries_QD: FloatArray, files: VectorFiles) -> dict[str, dict[str, float]]:
    started = time.perf_counter()
    search_files(queries_QD, files, INDEX_DEPTH + 1)
    seconds = time.perf_counter() - started
    return {"exact": {"search_s": seconds, "index_mb": 4 * files.rows * files.dim / 1e6}}


def _measured(
    choice: IndexChoice, queries_QD: FloatArray, files: VectorFiles, exact: Ranking
) -> tuple[Ranking, dict[str, float]]:
    built = build_index(choice, files)
    found, seconds = search_index(built, queries_QD, INDEX_DEPTH + 1)
    recalls = {f"recall_of_exact@{k}": recall_of_exact(found[1], exact[1], k) for k in (10, INDEX_DEPTH)}
    cost = {"build_s": built.build_s, "search_s": seconds, "index_mb": built.megabytes}
    return found, recalls | cost | {"trained_on": float(built.trained_on)}


def run_file(path: Path, collection: JudgedCollection, *, alone: bool) -> Path:
    """The file as given; of several collections each has its name before the ending."""
    return path if alone else path.with_name(f"{path.stem}.{collection.name}{path.suffix}")


def runs_of(
    path: Path, collections: list[JudgedCollection]
) -> tuple[list[JudgedCollection], dict[str, Run], tuple[str, ...]]:
    """The runs that there are, read and checked: their collections, the runs by name, and notes.

    Raises:
        BadInput: There is none, or one is malformed, with its line.
    """
    paths = {each.name: run_file(path, each, alone=len(collections) == 1) for each in collections}
    there = [each for each in collections if paths[each.name].is_file()]
    names = ", ".join(str(each) for each in paths.values())
    require(bool(there), "--from-run names a run, of several collections one each", looked_for=names)
    opened = {each.name: open_run(paths[each.name], each) for each in there}
    missing = [name for name in paths if name not in opened]
    notes = [note for _, told in opened.values() for note in told]
    notes += [f"no run of {', '.join(missing)}: left out"] if missing else []
    return there, {name: run for name, (run, _) in opened.items()}, tuple(notes)
