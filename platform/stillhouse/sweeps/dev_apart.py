"""Trials that a dev split tells apart: paired comparisons on the items of the figure that selects."""

from collections.abc import Mapping, Sequence

from stillhouse.evaluation.items import Items
from stillhouse.evaluation.paired import Paired, compare_items
from stillhouse.search.records import TrialRecord
from stillhouse.search.trial import Context
from stillhouse.sweeps.verdict import NOT_APART, WORSE, word_of
from stillhouse.training.dev_items import items_of


def against_best(records: Sequence[TrialRecord], best: TrialRecord, context: Context) -> dict[int, Paired]:
    """Compare the other trials with the best one; those of which no items were kept are left out."""
    reference = _items(best, context)
    others = {record.number: _items(record, context) for record in records if record is not best}
    if reference is None:
        return {}
    return {number: compare_items(items, reference) for number, items in others.items() if items is not None}


def apart_lines(best: TrialRecord, against: Mapping[int, Paired]) -> list[str]:
    """Say which trials are not told apart from the best one, with the differences and their intervals."""
    lines = []
    for word, said in ((NOT_APART, "not told apart from"), (WORSE, "worse than")):
        ranked = sorted(against.items(), key=lambda one: -one[1].difference)
        shown = [f"{number} ({_interval(one)})" for number, one in ranked if word_of(one) == word]
        if shown:
            lines.append(f"{said} trial {best.number} on dev: {', '.join(shown)}")
    if lines:
        count = next(iter(against.values())).items
        lines.append(
            f"differences with 95 % intervals over the {count:,} items of dev, which chose trial "
            f"{best.number}; other seeds are not in them"
        )
    return lines


def _items(record: TrialRecord, context: Context) -> Items | None:
    plan = context.planned(record.hyper_parameters)
    if plan is None or not record.values:
        return None
    return items_of(context.workspace.path(plan), record.values[0])


def _interval(one: Paired) -> str:
    if one.low is None or one.high is None:
        return f"{one.difference:+.4f}, no interval"
    return f"{one.difference:+.4f}, {one.low:+.4f} to {one.high:+.4f}, p = {one.p:.2g}"
