"""The suite of document retrieval on judged collections."""

from collections.abc import Mapping

from stillhouse.core.artifacts import sha256_of
from stillhouse.core.errors import require
from stillhouse.corpora.published.judged import PLACES, find_collections
from stillhouse.evaluation.benchmarks.common import Benchmark, Figures, Options, itemised, opened
from stillhouse.evaluation.benchmarks.judged_search import query_figures, rank_collection, write_run
from stillhouse.evaluation.benchmarks.retrieval_options import rank_on_disk, run_file, runs_of
from stillhouse.evaluation.finite_encoder import Checked
from stillhouse.evaluation.items import Items, Measured, means, measured


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

    def measure(model: Checked) -> Measured:
        figures: Figures = {}
        items: dict[str, Mapping[str, Items]] = {}
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
            own = measured({collection.name: means(query_figures(run, collection.qrels))})
            items |= own.items
            figures |= own.figures | {f"{collection.name} {name}": each for name, each in beside.items()}
        return Measured(figures, items)

    known = {f"{each.name}/{path.name}": sha256_of(path) for each in collections for path in each.files}
    return itemised(measure, notes, opens=opened(options, known), across=False, digits=4)
