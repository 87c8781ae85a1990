"""The queries of a collection: read or made, measured with, and kept out of the text to train on."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stillhouse.core.identity import spec
from stillhouse.core.roles import ASYMMETRIC, DOCUMENT
from stillhouse.corpora.search_task import SearchTask, TaskFiles, read_task
from stillhouse.corpora.synthetic_task import Sizes, synthetic_task
from stillhouse.evaluation.retrieval import DocSearch
from stillhouse.experiments.kinds.collection import SEARCH, SIZES, SearchCollection
from stillhouse.experiments.search_pool import pooled_dev
from stillhouse.experiments.sources_read import collection_read
from stillhouse.values.data import Collection, TableStore, TextTable

if TYPE_CHECKING:
    from stillhouse.evaluation.pool import Pool
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


def files_of(choice: SearchCollection) -> TaskFiles:
    """Return where the splits of a folder are."""
    division = (choice.test_share, choice.seed)
    return TaskFiles(choice.path, choice.dev, choice.test, *division, drop_own_ids=choice.drop_own_ids)


def measure_search(
    context: "Preparation", dev: Collection, test: Collection, pool: "Pool | None", name: str, metric: str
) -> None:
    """Register search: on dev in the pool, if there is one, and on test among all passages.

    Args:
        context: The suites to add to.
        dev: All dev queries and passages.
        test: The locked test queries and passages.
        pool: The pool that dev queries search.
        name: Prefix of the figures' names.
        metric: What selects, such as ``ndcg@10``.
    """
    asymmetric = asymmetric_search(context.experiment)

    def documents(
        collection: Collection, embed: Callable[[TextTable, str], TableStore]
    ) -> dict[str, TableStore]:
        return {"documents": embed(collection.passages, DOCUMENT)} if asymmetric else {}

    on_dev = f"{name}_pool" if pool else name
    by_teacher = documents(dev, context.embedded)
    # Whoever only measures a model may never open the test split, so its passages are not embedded yet.
    by_teacher_on_test = documents(test, context.embedded if context.training else context.store)
    context.measure(
        ASYMMETRIC if asymmetric else SEARCH,
        f"{on_dev}_{f'{ASYMMETRIC}_' if asymmetric else ''}cosine_{metric}",
        dev=lambda: spec(
            DocSearch,
            collection=pooled_dev(context.workspace, pool) if pool else dev,
            name=on_dev,
            **by_teacher,
            **({"index": index} if (index := context.experiment.selection.approximate) else {}),
        ),
        test=spec(DocSearch, collection=test, name=name, **by_teacher_on_test),
    )


def asymmetric_search(experiment: "Experiment") -> bool:
    """Return whether queries also search passages that the teacher has embedded."""
    return experiment.selection.by == ASYMMETRIC
