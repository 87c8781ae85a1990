"""The queries of a collection: read or made, measured with, and kept out of the text to train on."""

from typing import TYPE_CHECKING, Any

from stillhouse.core.identity import spec
from stillhouse.core.roles import ASYMMETRIC, DOCUMENT, QUERY
from stillhouse.corpora.search_task import SearchTask, TaskFiles, read_task
from stillhouse.corpora.synthetic_task import Sizes, synthetic_task
from stillhouse.evaluation.pool import Pool
from stillhouse.evaluation.retrieval import DocSearch
from stillhouse.experiments.data_kind import Measure
from stillhouse.experiments.kinds.collection import SEARCH, SIZES, SearchCollection, SearchData
from stillhouse.experiments.sources_read import collection_read
from stillhouse.values.data import Collection, TableStore

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation


def task_of(context: "Preparation", choice: SearchCollection) -> SearchTask | None:
    """Read the queries of a folder, or make synthetic ones; None for those of ``pydocs``."""
    source: Any = context.experiment.source
    if choice.path:
        task = read_task(context.workspace, files_of(choice), refresh=context.refresh)
    elif choice.synthetic:
        task = synthetic_task(
            context.workspace,
            source.corpus,
            source.read_options(context),
            unit=choice.synthetic,
            sizes=Sizes(*(getattr(choice, name) for name in SIZES)),
            seed=choice.seed,
            refresh=context.refresh,
        )
    else:
        return None
    context.facts |= {"collection": task.summary}
    if task.notes:
        context.facts |= {"collection_notes": "; ".join(task.notes)}
    collection_read(context.workspace, choice.path or source.corpus, task).say()
    return task


def search_data(context: "Preparation", choice: SearchCollection) -> SearchData:
    """Read the collections, and name the pool that dev queries search, if there is one."""
    task, pool = task_of(context, choice), None
    dev, test = (task.dev, task.test) if task else (context.pydocs().dev, context.pydocs().test)
    if choice.dev_pool:
        queries, passages = context.store(dev.queries, QUERY), context.store(dev.passages, DOCUMENT)
        pool = Pool(dev, queries, passages, choice.dev_pool)
    return SearchData(dev, test, pool, choice.name, task.held_out if task else None)


def files_of(choice: SearchCollection) -> TaskFiles:
    """Return where the splits of a folder are."""
    division = (choice.test_share, choice.seed)
    return TaskFiles(choice.path, choice.dev, choice.test, *division, drop_own_ids=choice.drop_own_ids)


def search_measure(context: "Preparation", metric: str) -> Measure:
    """Search: on dev in the pool, if there is one, and on test among all passages.

    Args:
        context: Has the collections, and names the teacher's vectors of their passages.
        metric: What selects, such as ``ndcg@10``.
    """
    search = context.get(SearchCollection)
    assert search is not None, "a collection is always there"
    asymmetric, selection = asymmetric_search(context.experiment), context.experiment.selection
    on_dev = f"{search.name}_pool" if search.pool else search.name

    def documents(collection: Collection) -> dict[str, TableStore]:
        return {"documents": context.store(collection.passages, DOCUMENT)} if asymmetric else {}

    return Measure(
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


def asymmetric_search(experiment: "Experiment") -> bool:
    """Return whether queries also search passages that the teacher has embedded."""
    return experiment.selection.by == ASYMMETRIC
