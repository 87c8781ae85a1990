"""Which trial of a study is the best."""

import math

from rows import each_row

from stillhouse.search.records import TrialRecord, best_record


def record(number: int, *values: float, state: str = "COMPLETE") -> TrialRecord:
    return TrialRecord(number, {}, state, values or None, {}, None, 1.0, 64, {}, {})


@each_row(
    ("records", "best"),
    [
        ([record(0, 0.4), record(1, 0.6), record(2, 0.5)], 1),
        ([record(0, 0.4), record(1, 0.9, state="PRUNED"), record(2, 0.8, state="FAIL")], 0),
        ([record(0, math.nan), record(1, 0.1), record(2, math.inf), record(3)], 1),
        ([record(0, 0.5, 20.0), record(1, 0.5, 10.0), record(2, 0.4, 1.0)], 1),
        ([record(0, 0.5, 20.0), record(1, 0.6, 90.0)], 1),
        ([record(0, state="RUNNING"), record(1)], None),
        ([], None),
    ],
)
def test_the_best_trial(records: list[TrialRecord], best: int | None) -> None:
    found = best_record(records)
    assert (found.number if found else None) == best
