"""Comparison of an export with its stage: on texts that were not trained on, and by the dev figure."""

from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput
from stillhouse.corpora.tables import sample_of
from stillhouse.evaluation.suites import run_suite
from stillhouse.reports.model_card import DevChange
from stillhouse.training.facts import COMPARED, DEV, read_facts
from stillhouse.training.rebuild import from_plain

_TEXTS = 64
_LONGEST = 8192
"""Words of a long text at most: a model without any limit, such as a table, cuts nothing."""
_ALWAYS = (
    "A man is playing a guitar.",
    "Return the eigenvalues of a symmetric matrix in ascending order.",
    "Ünïcödé, 漢字 and 🙂 are cut into pieces in the same way.",
)


def compared_texts(stage: Path, max_length: int) -> list[str]:
    """Return the texts that an export is compared on: held-out ones, and two that are longer than its limit.

    A stage without held-out texts has those that it was trained on. The limit is in tokens. Both long texts
    have different beginnings and ends.
    """
    table = from_plain(read_facts(stage).get(COMPARED))
    workspace = Workspace(stage.parent.parent)
    known = table is not None and workspace.finished(table)
    texts = [*_ALWAYS, *(sample_of(workspace, table, _TEXTS)[1] if known else ())]
    words = " ".join(texts).split()
    count = min(max_length, _LONGEST) + 8
    many = words * -(-count // len(words))
    return [*texts, " ".join(many[:count]), " ".join(many[::-1][:count])]


def dev_change(stage: Path, trained: Any, exported: Any) -> DevChange | None:
    """Measure the dev figure that selected a stage's student for it and for its export; None without one."""
    suite = from_plain(read_facts(stage).get(DEV))
    if suite is None or not suite.evaluators:
        return None
    workspace = Workspace(stage.parent.parent)
    try:
        before, after = (
            run_suite(suite, encoder, workspace)[suite.select] for encoder in (trained, exported)
        )
    except BadInput as error:
        say(f"  note: the dev figure of the export was not measured: {error}")
        return None
    return DevChange(suite.select, before, after)
