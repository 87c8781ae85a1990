"""Running a suite: build its evaluators, measure an encoder, merge the figures."""

import inspect
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput, nearest
from stillhouse.core.identity import Spec, fingerprint
from stillhouse.core.types import (
    CountedEvaluator,
    Encoder,
    Evaluator,
    Scorer,
    ScorerEvaluator,
    SplitEvaluator,
)
from stillhouse.evaluation.items import ItemisedEvaluator, Items
from stillhouse.evaluation.retrieval import DocSearch, Search
from stillhouse.values.stage import DevSuite, TestSuite

BUILT_AT_MOST = 8

# Trials evaluate often, and building an evaluator means reading texts and finding neighbours. A trial process
# is reused, so its evaluators are cached by fingerprint, workspace and search; the least recently used is
# dropped.
_built: OrderedDict[tuple[str, str], tuple[Search | None, Evaluator]] = OrderedDict()


def run_suite(
    suite: DevSuite | TestSuite, encoder: Encoder, workspace: Workspace, search: Search | None = None
) -> dict[str, float]:
    """Measure an encoder and return the figures; see `measure_suite`."""
    return measure_suite(suite, encoder, workspace, search)[0]


def measure_suite(
    suite: DevSuite | TestSuite, encoder: Encoder, workspace: Workspace, search: Search | None = None
) -> tuple[dict[str, float], dict[str, Items]]:
    """Measure an encoder and return the figures with their items.

    Returns:
        The figures of all evaluators, and the items of those that have them. In a test suite, evaluators of
        scores are skipped for a model without scores, such as an untuned teacher.

    Raises:
        BadInput: If two evaluators return a figure of the same name, a dev suite holds a test set, or a dev
            suite does not return the figure that it selects by.
    """
    figures: dict[str, float] = {}
    items: dict[str, Items] = {}
    for each in suite.evaluators:
        evaluator = _evaluator(each, workspace, search)
        scores = isinstance(evaluator, ScorerEvaluator)
        if isinstance(suite, TestSuite) and scores and not isinstance(encoder, Scorer):
            continue
        if isinstance(suite, DevSuite) and isinstance(evaluator, SplitEvaluator) and evaluator.split != "dev":
            raise BadInput(
                f"a dev suite may only hold dev sets, but {each} is of the split {evaluator.split}."
            )
        if isinstance(evaluator, ItemisedEvaluator):
            own_figures, own_items = evaluator.itemised(encoder)
        else:
            own_figures, own_items = evaluator(encoder), {}
        repeated = sorted(set(own_figures) & set(figures))
        if repeated:
            raise BadInput(
                f"every figure of a suite needs a name of its own, but {', '.join(repeated)} comes from two "
                "evaluators. Give one of them another `name`."
            )
        figures |= own_figures
        items |= own_items
    if isinstance(suite, DevSuite) and suite.select not in figures:
        raise BadInput(
            f"a suite must return the figure that it selects by, but `{suite.select}` is not among its "
            f"{len(figures)} figures. {nearest(suite.select, list(figures))}"
        )
    return figures, items


def run_asymmetric(
    suite: DevSuite | TestSuite, encoder: Encoder, workspace: Workspace, search: Search | None = None
) -> dict[str, float]:
    """Measure an encoder's queries among the teacher's documents, where a suite searches them.

    Nothing but queries is encoded. The teacher's own figures of asymmetric search are those of its search.
    """
    figures: dict[str, float] = {}
    for each in suite.evaluators:
        evaluator = _evaluator(each, workspace, search)
        if isinstance(evaluator, DocSearch):
            figures |= evaluator.asymmetric(encoder)[0]
    return figures


def figure_facts(
    suite: DevSuite | TestSuite, workspace: Workspace, search: Search | None = None
) -> dict[str, dict[str, Any]]:
    """Say what the figures of a suite are computed from.

    Returns:
        The start of the figures' names to ``what`` (the evaluator's first line of documentation), ``split``,
        ``count``, ``unit`` and ``data``, a hash of what is measured on; see `fact_of`.
    """
    facts: dict[str, dict[str, Any]] = {}
    for each in suite.evaluators:
        evaluator = _evaluator(each, workspace, search)
        if isinstance(evaluator, CountedEvaluator):
            what = (inspect.getdoc(type(evaluator)) or "").partition("\n")[0]
            default = "dev" if isinstance(suite, DevSuite) else "test"
            split = evaluator.split if isinstance(evaluator, SplitEvaluator) else default
            for start, count in evaluator.counts().items():
                counted = {"count": count, "unit": evaluator.unit, "data": fingerprint(each)}
                facts[start] = {"what": what, "split": split, **counted}
    return facts


def fact_of(figure: str, facts: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Find what `figure_facts` says of a figure, by the longest start of its name; empty if nothing."""
    starts = [start for start in facts if figure.startswith(start)]
    return facts[max(starts, key=len)] if starts else {}


def _evaluator(evaluator: Spec[Any], workspace: Workspace, search: Search | None) -> Evaluator:
    key = (fingerprint(evaluator), str(workspace.root.resolve()))
    cached = _built.get(key)
    if cached is None or cached[0] is not search:
        cached = _built[key] = (search, evaluator.build(workspace=workspace, search=search))
    _built.move_to_end(key)
    while len(_built) > BUILT_AT_MOST:
        _built.popitem(last=False)
    return cached[1]
