"""The suite of document retrieval on judged collections."""

from pathlib import Path

from stillhouse.artifacts import sha256_of
from stillhouse.corpora.judged import PLACES, JudgedCollection, find_collections
from stillhouse.errors import require
from stillhouse.evaluation.benchmarks.common import Benchmark, Options, itemised, opened
from stillhouse.evaluation.items import Items, Measured, means, measured
from stillhouse.evaluation.judged_search import query_figures, rank_collection, write_run
from stillhouse.types import Encoder


def retrieval(root: str, options: Options) -> Benchmark:
    """BEIR folders, SciFact, Cranfield, Vaswani and CACM: nDCG@10, MRR@10, MAP and recall in [0, 1]."""
    collections = find_collections(root, final=options.final)
    require(
        bool(collections),
        f"retrieval collections with {'test' if options.final else 'dev or train'} judgements are there",
        root=root,
        remedy=f"Put folders such as BEIR's (corpus.jsonl, queries.jsonl, qrels) into {PLACES[0]} there.",
    )

    def measure(model: Encoder) -> Measured:
        items: dict[str, dict[str, Items]] = {}
        for collection in collections:
            run = rank_collection(collection, model)
            if options.run is not None:
                write_run(_run_file(options.run, collection, alone=len(collections) == 1), run)
            items[collection.name] = means(query_figures(run, collection.qrels))
        return measured(items)

    notes = tuple(note for collection in collections for note in collection.notes)
    known = {f"{each.name}/{path.name}": sha256_of(path) for each in collections for path in each.files}
    return itemised(measure, notes, opens=opened(options, known), across=False, digits=4)


def _run_file(path: Path, collection: JudgedCollection, *, alone: bool) -> Path:
    """The file as given; of several collections each has its name before the ending."""
    return path if alone else path.with_name(f"{path.stem}.{collection.name}{path.suffix}")
