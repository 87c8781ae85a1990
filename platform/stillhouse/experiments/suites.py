"""The dev and the test suite of an experiment: retrieval, agreement with the teacher, STS."""

from typing import Any

from stillhouse.core.identity import Spec, spec
from stillhouse.experiments.experiment import SELECTS, Experiment
from stillhouse.plan.data import Collection, Store
from stillhouse.plan.stage import DevSuite, TestSuite


def dev_suite(collection: Collection | None, agreement: Store, wanted: Experiment) -> DevSuite:
    """What steers, and the figure that selects; searching a pool, figures and selection have its name."""
    from stillhouse.evaluation.pool import NAME

    chosen = wanted.select or ("search" if collection else "agreement")
    name = NAME if wanted.dev_pool else "docsearch"
    evaluators = _evaluators(collection, agreement, wanted, "dev", name)
    return DevSuite(evaluators, select=SELECTS[chosen].replace("docsearch", name))


def test_suite(collection: Collection | None, agreement: Store, wanted: Experiment) -> TestSuite:
    """The locked suite; it searches all test passages."""
    return TestSuite(_evaluators(collection, agreement, wanted, "test"))


def _evaluators(
    collection: Collection | None, agreement: Store, wanted: Experiment, split: str, name: str = "docsearch"
) -> tuple[Spec[Any], ...]:
    from stillhouse.evaluation.agreement import Agreement
    from stillhouse.evaluation.retrieval import DocSearch
    from stillhouse.evaluation.sts import STS, resolve_sts

    chosen: list[Spec[Any]] = []
    if collection is not None:
        chosen.append(spec(DocSearch, collection=collection, name=name))
    chosen.append(spec(Agreement, store=agreement, pairs=500))
    if wanted.data_root:
        chosen.append(spec(STS, data=resolve_sts(wanted.data_root, split)))
    return tuple(chosen)
