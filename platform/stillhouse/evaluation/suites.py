"""Run a suite: build its evaluators, measure an encoder, merge the figures."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.core.identity import Spec, fingerprint
from stillhouse.core.types import Encoder, Evaluator
from stillhouse.evaluation.items import Items
from stillhouse.evaluation.retrieval import Search
from stillhouse.plan.stage import DevSuite, TestSuite

BUILT_AT_MOST = 8

Asked = tuple[dict[str, float], dict[str, Items]]
"""Figures, and the items of those that are made of items."""

# Trials evaluate often, and building means reading texts and finding neighbours. A trial process is reused,
# so its evaluators are kept, by what they are and what they search with; the least recently used one goes.
_built: OrderedDict[tuple[str, str], tuple[Search | None, Evaluator]] = OrderedDict()


def run_suite(
    suite: DevSuite | TestSuite, encoder: Encoder, workspace: Workspace, search: Search | None = None
) -> dict[str, float]:
    """Measure an encoder; see `measure_suite`. Returns the figures alone."""
    return _run(suite, encoder, workspace, search, lambda evaluator: (evaluator(encoder), {}))[0]


def measure_suite(
    suite: DevSuite | TestSuite, encoder: Encoder, workspace: Workspace, search: Search | None = None
) -> tuple[dict[str, float], dict[str, Items]]:
    """Measure an encoder.

    Args:
        suite: What is measured.
        encoder: What it is measured on.
        workspace: Where collections and stores lie.
        search: A `SearchPool`; None searches in this process.

    Returns:
        The figures of all evaluators, and the items of those that tell them. Evaluators of a test suite that
        ask for scores are left out for a model that has none, such as an untuned teacher.

    Raises:
        BadInput: Two evaluators give a figure of the same name, a dev suite holds a test set, or the figure
            that a dev suite selects by is not among them.
    """

    def ask(evaluator: Any) -> Asked:
        told: Asked = (
            evaluator.itemised(encoder) if hasattr(evaluator, "itemised") else (evaluator(encoder), {})
        )
        return told

    return _run(suite, encoder, workspace, search, ask)


def _run(
    suite: DevSuite | TestSuite,
    encoder: Encoder,
    workspace: Workspace,
    search: Search | None,
    ask: Callable[[Any], Asked],
) -> Asked:
    figures: dict[str, float] = {}
    items: dict[str, Items] = {}
    for each in suite.evaluators:
        evaluator = _evaluator(each, workspace, search)
        if isinstance(suite, TestSuite) and not _can_answer(encoder, evaluator):
            continue
        if isinstance(suite, DevSuite):
            split = getattr(evaluator, "split", "dev")
            require(split == "dev", "a dev suite holds dev sets only", evaluator=each, split=split)
        found, made_of = ask(evaluator)
        twice = sorted(set(found) & set(figures))
        require(
            not twice,
            "every figure of a suite has a name of its own",
            twice=twice,
            remedy="Give one of the evaluators another `name`.",
        )
        figures.update(found)
        items.update(made_of)
    if isinstance(suite, DevSuite) and suite.select not in figures:
        raise BadInput(
            f"a suite must give the figure that it selects by, but `{suite.select}` is not among its "
            f"{len(figures)}. {nearest(suite.select, list(figures))}"
        )
    return figures, items


def _can_answer(encoder: Encoder, evaluator: Evaluator) -> bool:
    return all(hasattr(encoder, wanted) for wanted in getattr(evaluator, "needs", ()))


def _evaluator(evaluator: Spec[Any], workspace: Workspace, search: Search | None) -> Evaluator:
    key = (fingerprint(evaluator), str(workspace.root.resolve()))
    held = _built.get(key)
    if held is None or held[0] is not search:
        held = _built[key] = (search, evaluator.build(workspace=workspace, search=search))
    _built.move_to_end(key)
    while len(_built) > BUILT_AT_MOST:
        _built.popitem(last=False)
    return held[1]
