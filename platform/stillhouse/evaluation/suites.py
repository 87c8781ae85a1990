"""Run a suite: build its evaluators, measure an encoder, merge the figures."""

from collections import OrderedDict
from typing import Any

from stillhouse.artifacts import Workspace
from stillhouse.errors import BadInput, nearest, require
from stillhouse.evaluation.retrieval import Search
from stillhouse.plan import DevSuite, TestSuite
from stillhouse.spec import Spec, fingerprint
from stillhouse.types import Encoder, Evaluator

BUILT_AT_MOST = 8

# Trials evaluate often, and building means reading texts and finding neighbours. A trial process is reused,
# so its evaluators are kept, by what they are and what they search with; the least recently used one goes.
_built: OrderedDict[tuple[str, str], tuple[Search | None, Evaluator]] = OrderedDict()


def run_suite(
    suite: DevSuite | TestSuite, encoder: Encoder, workspace: Workspace, search: Search | None = None
) -> dict[str, float]:
    """Measure an encoder.

    Args:
        suite: What is measured.
        encoder: What it is measured on.
        workspace: Where collections and stores lie.
        search: A `SearchPool`; None searches in this process.

    Returns:
        The figures of all evaluators. Those of a test suite that ask for scores are left out for a model
        that has none, such as an untuned teacher.

    Raises:
        BadInput: Two evaluators give a figure of the same name, a dev suite holds a test set, or the figure
            that a dev suite selects by is not among them.
    """
    figures: dict[str, float] = {}
    for each in suite.evaluators:
        evaluator = _evaluator(each, workspace, search)
        if isinstance(suite, TestSuite) and not _can_answer(encoder, evaluator):
            continue
        if isinstance(suite, DevSuite):
            split = getattr(evaluator, "split", "dev")
            require(split == "dev", "a dev suite holds dev sets only", evaluator=each, split=split)
        found = evaluator(encoder)
        twice = sorted(set(found) & set(figures))
        require(
            not twice,
            "every figure of a suite has a name of its own",
            twice=twice,
            remedy="Give one of the evaluators another `name`.",
        )
        figures.update(found)
    if isinstance(suite, DevSuite) and suite.select not in figures:
        raise BadInput(
            f"a suite must give the figure that it selects by, but `{suite.select}` is not among its "
            f"{len(figures)}. {nearest(suite.select, list(figures))}"
        )
    return figures


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
