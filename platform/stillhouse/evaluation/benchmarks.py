"""The field's published benchmarks by name, each from files under a data root to figures for a table.

A suite is prepared before it is run: its files are read and checked while nothing has been encoded yet. Sets
with a dev and a test split are measured on dev; ``final`` opens the test splits. STS2017 has no other split
than test. Sets that were published as one whole (Tatoeba, Cranfield, MR, …) are measured either way.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stillhouse.artifacts import sha256_of
from stillhouse.corpora.judged import PLACES, find_collections
from stillhouse.corpora.sentence_tasks import BY_CLASS, TASKS, read_tasks, task_files
from stillhouse.corpora.sentence_tasks import PLACES as TRANSFER
from stillhouse.errors import BadInput, nearest, require
from stillhouse.evaluation.bitexts import FOLDERS as BITEXTS
from stillhouse.evaluation.bitexts import find_bitexts, measure_bitext, sha256_of_bitexts
from stillhouse.evaluation.cost import cost as measure_cost
from stillhouse.evaluation.crosslingual_sts import (
    FOLDERS,
    CrossLingualSTS,
    crosslingual_sets,
    resolve_crosslingual_sts,
)
from stillhouse.evaluation.geometry import alignment, effective_rank, random_pair_cosine, uniformity
from stillhouse.evaluation.judged_search import rank_collection, run_figures, write_run
from stillhouse.evaluation.retrieval_suite import OnDisk, rank_on_disk, run_file, runs_of
from stillhouse.evaluation.sts import SETS, STS, resolve_sts
from stillhouse.evaluation.transfer import measure_task
from stillhouse.spec import fingerprint
from stillhouse.types import Encoder

Figures = dict[str, dict[str, float]]
"""Set to figure to value."""

_PRINTED = {"STSB": "STS-B", "SICK": "SICK-R"}
_POSITIVE_ABOVE = 4.0
_TRANSLATED = {"sts2017": "STS2017", "extended": "STS2017-extended", "stsb": "STS-B"}


@dataclass(frozen=True)
class Options:
    """How a suite is run.

    Attributes:
        final: Open the test splits.
        run: Where the rankings of ``retrieval`` are written in TREC form; None writes none.
        from_run: A run that ``retrieval`` measures in the place of a model.
        on_disk: Where ``retrieval`` keeps vectors, and what searches them; None keeps them in memory.
    """

    final: bool = False
    run: Path | None = None
    from_run: Path | None = None
    on_disk: OnDisk | None = None


@dataclass(frozen=True)
class Benchmark:
    """A suite whose files are there.

    Attributes:
        measure: Encodes and measures.
        notes: What is missing or was left out, a sentence each.
        opens: Fingerprint of the test sets that this opens; empty where there are none.
        across: Whether the table has a column a set, as the papers print STS, or a line a set.
        digits: Behind the point, in the table.
    """

    measure: Callable[[Any], Figures]
    notes: tuple[str, ...] = ()
    opens: str = ""
    across: bool = True
    digits: int = 2


def sts(root: str, options: Options) -> Benchmark:
    """STS12-16, STS-B, SICK-R in the papers' order: Spearman × 100 *all*, *mean*, *wmean*; Avg of *all*."""
    split = "test" if options.final else "dev"
    data = resolve_sts(root, split)
    evaluator = STS(data)

    def measure(model: Encoder) -> Figures:
        flat = evaluator(model)
        figures: Figures = {}
        for name in data.sets:
            all_ = f"sts_{name.lower()}_spearman_cosine"
            found = {"all": all_, "mean": f"{all_}_mean", "wmean": f"{all_}_wmean"}
            kept = {kind: 100 * flat[key] for kind, key in found.items() if key in flat}
            figures[_PRINTED.get(name, name)] = kept
        figures["Avg"] = {"all": float(np.mean([each["all"] for each in figures.values()]))}
        return figures

    missing = [_PRINTED.get(name, name) for name in SETS[split] if name not in data.sets]
    return Benchmark(measure, _missing(f"{split} files of", missing, "sts/senteval"), _opened(options, data))


def xsts(root: str, options: Options) -> Benchmark:
    """STS2017, and STS-B with the sides in two languages: Spearman × 100."""
    wanted = (
        (("sts2017", "test"), ("extended", "test"), ("stsb", "test")) if options.final else (("stsb", "dev"),)
    )
    there = [each for each in wanted if crosslingual_sets(root, *each)]
    require(
        bool(there),
        "STS files of several languages lie under the data root",
        root=root,
        remedy=f"Put them into {' or '.join(FOLDERS[layout][0] for layout, _ in wanted)} there.",
    )
    data = {layout: resolve_crosslingual_sts(root, layout, split) for layout, split in there}
    evaluators = {_TRANSLATED[layout]: CrossLingualSTS(each) for layout, each in data.items()}

    def measure(model: Encoder) -> Figures:
        return {
            name: {
                figure.removeprefix("xsts_").removesuffix("_spearman_cosine_x100"): value
                for figure, value in evaluator(model).items()
            }
            for name, evaluator in evaluators.items()
        }

    notes = [
        f"no {split} files of {_TRANSLATED[layout]}: they would lie in {FOLDERS[layout][0]}"
        for layout, split in wanted
        if (layout, split) not in there
    ]
    return Benchmark(measure, tuple(notes), _opened(options, *data.values()))


def translation(root: str, options: Options) -> Benchmark:
    """Tatoeba, 1000 sentences of LASER and the test sets of OPUS-MT: accuracy × 100 both ways."""
    sets = find_bitexts(root)
    require(
        bool(sets),
        "Tatoeba files lie under the data root",
        root=root,
        remedy=f"Put them into {' or '.join(folders[0] for folders in BITEXTS.values())} there.",
    )
    for each in sets.values():
        each.read()

    def measure(model: Encoder) -> Figures:
        figures = {name: measure_bitext(each, model) for name, each in sets.items()}
        for layout in BITEXTS:
            own = [value for name, value in figures.items() if name.startswith(f"{layout}.")]
            if len(own) > 1:
                figures[f"{layout}.avg"] = {key: float(np.mean([v[key] for v in own])) for key in own[0]}
        return figures

    return Benchmark(measure, (), _opened(options, sha256_of_bitexts(sets)), across=False)


def retrieval(root: str, options: Options) -> Benchmark:
    """BEIR folders, SciFact, Cranfield, Vaswani and CACM: nDCG@10, MRR@10, MAP and recall in [0, 1]."""
    collections = find_collections(root, final=options.final)
    require(
        bool(collections),
        f"retrieval collections with {'test' if options.final else 'dev or train'} judgements are there",
        root=root,
        remedy=f"Put folders such as BEIR's (corpus.jsonl, queries.jsonl, qrels) into {PLACES[0]} there.",
    )

    notes = tuple(note for collection in collections for note in collection.notes)
    if options.from_run is not None:
        collections, runs, more = runs_of(options.from_run, collections)
        notes += more

    def measure(model: Encoder) -> Figures:
        figures: Figures = {}
        for collection in collections:
            beside: Figures = {}
            if options.from_run is not None:
                run = runs[collection.name]
            elif options.on_disk is not None:
                run, beside = rank_on_disk(collection, model, options.on_disk)
            else:
                run = rank_collection(collection, model)
            if options.run is not None:
                write_run(run_file(options.run, collection, alone=len(collections) == 1), run)
            figures[collection.name] = run_figures(run, collection.qrels)
            figures |= {f"{collection.name} {name}": each for name, each in beside.items()}
        return figures

    known = {f"{each.name}/{path.name}": sha256_of(path) for each in collections for path in each.files}
    return Benchmark(measure, notes, _opened(options, known), across=False, digits=4)


def transfer(root: str, options: Options) -> Benchmark:
    """SentEval's tasks in the papers' order: accuracy × 100, of MRPC F1 too; with the test sets Avg."""
    files = {task: task_files(root, task, final=options.final) for task in TASKS}
    there = {task: paths for task, paths in files.items() if paths}
    require(
        bool(there),
        "SentEval's transfer tasks lie under the data root",
        root=root,
        remedy=f"Put its folders (MR, CR, SUBJ, MPQA, SST, TREC, MRPC) into {TRANSFER[0]} there.",
    )
    data = {task: read_tasks(task, paths) for task, paths in there.items()}

    def measure(model: Encoder) -> Figures:
        figures = {task: measure_task(task, splits, model) for task, splits in data.items()}
        reached = [each.get("accuracy", np.nan) for each in figures.values()]
        average = {"Avg": {"accuracy": float(np.mean(reached))}}
        return figures | (average if options.final else {})

    missing = [task for task in TASKS if task not in there]
    paths = [path for splits in there.values() for each in splits.values() for path in each]
    known = {path.name: sha256_of(path) for path in paths}
    opens = _opened(options, known) if any(task not in BY_CLASS for task in there) else ""
    return Benchmark(measure, _missing("files of", missing, TRANSFER[0]), opens)


def geometry(root: str, options: Options) -> Benchmark:
    """Of STS-B: alignment of its pairs above 4, and uniformity, effective rank, mean cosine of its texts."""
    data = resolve_sts(root, "test" if options.final else "dev", ("STSB",))
    ((pairs,), row_of) = (lambda read: (read.sets["STSB"], read.row_of))(STS(data))
    positive = [(row_of[a], row_of[b]) for a, b, gold in pairs if gold > _POSITIVE_ABOVE]
    require(bool(positive), "STS-B has pairs with a score above 4", root=root)
    first, second = (np.array(side) for side in zip(*positive, strict=True))

    def measure(model: Encoder) -> Figures:
        vectors = np.asarray(model.encode(list(row_of)))
        figures = {
            "alignment": alignment(vectors[first], vectors[second]),
            "uniformity": uniformity(vectors),
            "effective_rank": effective_rank(vectors),
            "random_pair_cosine": random_pair_cosine(vectors),
        }
        return {"STS-B": figures}

    return Benchmark(measure, (), _opened(options, data), digits=4)


def cost(root: str, options: Options) -> Benchmark:
    """What the model costs on this machine, and megabytes of an index of a million of its vectors."""

    def measure(model: Any) -> Figures:
        figures = measure_cost(model, getattr(model, "student", model))
        dim = np.asarray(model.encode(["a text"])).shape[1]
        per_vector = {"float32": 4 * dim, "float16": 2 * dim, "int8": dim, "binary": -(-dim // 8)}
        return {
            "model": {**figures, "dimension": float(dim)},
            "index_mb_per_million": {kind: float(size) for kind, size in per_vector.items()},
        }

    return Benchmark(measure)


Suite = Callable[[str, Options], Benchmark]

SUITES: dict[str, Suite] = {
    "sts": sts,
    "xsts": xsts,
    "translation": translation,
    "retrieval": retrieval,
    "transfer": transfer,
    "geometry": geometry,
    "cost": cost,
}
NEED_NO_DATA = ("cost",)


def suites_named(names: str) -> tuple[str, ...]:
    """The suites of a list such as ``sts,geometry``, in its order, each once.

    Raises:
        BadInput: An unknown one, with the near ones.
    """
    wanted = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    require(bool(wanted), f"--suite names some of {', '.join(SUITES)}", suite=names)
    for name in wanted:
        if name not in SUITES:
            raise BadInput(f"`{name}` is no suite. {nearest(name, list(SUITES))}")
    return wanted


def _opened(options: Options, *data: object) -> str:
    return fingerprint(data) if options.final else ""


def _missing(what: str, names: Iterable[str], folder: str) -> tuple[str, ...]:
    listed = ", ".join(names)
    return (f"no {what} {listed}: they would lie in {folder}",) if listed else ()
