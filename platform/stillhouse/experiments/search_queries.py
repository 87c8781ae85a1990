"""The queries of a collection: read or made, measured with, and kept out of the text to train on."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.identity import spec
from stillhouse.core.roles import ASYMMETRIC, DOCUMENT, QUERY
from stillhouse.corpora.reading.ingest import SMALL_BYTES
from stillhouse.corpora.search_task import SearchTask, TaskFiles, check_task, read_task
from stillhouse.corpora.synthetic_task import Sizes, synthetic_task
from stillhouse.evaluation.pool import Pool
from stillhouse.evaluation.retrieval import DocSearch
from stillhouse.evaluation.search.index_options import parse_index
from stillhouse.evaluation.search.indexes import check_index
from stillhouse.experiments.data_kind import Measure, Reader
from stillhouse.experiments.kinds.collection import METRICS, SEARCH, SIZES, SearchCollection, SearchData
from stillhouse.experiments.selection import WITHOUT_FAISS
from stillhouse.experiments.sentence_tables import read_options
from stillhouse.experiments.sources_read import collection_read
from stillhouse.values.data import Collection, TableStore, TextTable

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation


class SearchReader(Reader[SearchCollection, SearchData]):
    """The reader of a search collection."""

    def check(self, experiment: "Experiment") -> None:
        """Refuse an index that FAISS here lacks, and a folder whose queries or judgements cannot be used."""
        if (index := experiment.selection.index) not in WITHOUT_FAISS:
            check_index(parse_index(index))
        if self.kind.path:
            check_task(self.files)

    def at_hand(self, context: "Preparation") -> bool:
        """Return whether the folder is small."""
        files = (file for file in Path(self.kind.path).expanduser().rglob("*") if file.is_file())
        return not self.kind.path or sum(file.stat().st_size for file in files) <= SMALL_BYTES

    def sketch(self, experiment: "Experiment") -> SearchData:
        """Collections that are not there."""
        texts = TextTable("placeholder")
        nothing = Collection(texts, texts, "placeholder")
        return SearchData(nothing, nothing)

    def measured(self, context: "Preparation") -> dict[str, list[TextTable]]:
        """The queries, and the passages that are judged."""
        search = context.get(SearchCollection)
        if search is None:
            return {}
        everything = [table for part in (search.dev, search.test) for table in (part.queries, part.passages)]
        return {SEARCH: everything if search.held_out is None else [search.held_out]}

    def measures(self, context: "Preparation") -> tuple[Measure]:
        """Search: on dev in the pool, if there is one, and on test among all passages."""
        search = context.get(SearchCollection)
        assert search is not None, "a collection is always there"
        asymmetric, selection = asymmetric_search(context.experiment), context.experiment.selection
        on_dev = f"{search.name}_pool" if search.pool else search.name
        own = self.kind.path or self.kind.synthetic
        metric = self.kind.metric or (METRICS[0] if own else METRICS[1])

        def documents(collection: Collection) -> dict[str, TableStore]:
            return {"documents": context.store(collection.passages, DOCUMENT)} if asymmetric else {}

        measure = Measure(
            ASYMMETRIC if asymmetric else SEARCH,
            f"{on_dev}_{f'{ASYMMETRIC}_' if asymmetric else ''}cosine_{metric}",
            dev=spec(
                DocSearch,
                collection=search.pool or search.dev,
                name=on_dev,
                **documents(search.dev),
                **({"index": selection.approximate} if selection.approximate else {}),
            ),
            test=spec(DocSearch, collection=search.test, name=search.name, **documents(search.test)),
        )
        return (measure,)

    def prepare(self, context: "Preparation") -> SearchData:
        """Read the collections, and name the pool that dev queries search, if there is one."""
        task, pool = self._task(context), None
        dev, test = (task.dev, task.test) if task else (context.pydocs.dev, context.pydocs.test)
        if self.kind.dev_pool:
            queries, passages = context.store(dev.queries, QUERY), context.store(dev.passages, DOCUMENT)
            pool = Pool(dev, queries, passages, self.kind.dev_pool)
        return SearchData(dev, test, pool, self.kind.name, task.held_out if task else None)

    def _task(self, context: "Preparation") -> SearchTask | None:
        """Read the queries of a folder, or make synthetic ones; None for those of ``pydocs``."""
        kind = self.kind
        source: Any = context.experiment.source
        if kind.path:
            task = read_task(context.workspace, self.files, refresh=context.refresh)
        elif kind.synthetic:
            task = synthetic_task(
                context.workspace,
                source.corpus,
                read_options(source, context),
                unit=kind.synthetic,
                sizes=Sizes(*(getattr(kind, name) for name in SIZES)),
                seed=kind.seed,
                refresh=context.refresh,
            )
        else:
            return None
        context.facts |= {"collection": task.summary}
        if task.notes:
            context.facts |= {"collection_notes": "; ".join(task.notes)}
        collection_read(context.workspace, kind.path or source.corpus, task).say()
        return task

    @property
    def files(self) -> TaskFiles:
        """Where the splits of a folder are."""
        kind = self.kind
        division = (kind.test_share, kind.seed)
        return TaskFiles(kind.path, kind.dev, kind.test, *division, drop_own_ids=kind.drop_own_ids)


def asymmetric_search(experiment: "Experiment") -> bool:
    """Return whether queries also search passages that the teacher has embedded."""
    return experiment.selection.by == ASYMMETRIC
