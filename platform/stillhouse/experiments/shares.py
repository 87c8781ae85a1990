"""Shares of the training rows: what ``budget.fraction`` leaves of a setting, and how many rows it has."""

import dataclasses
from collections.abc import Iterator

from stillhouse.core.artifacts import Workspace
from stillhouse.corpora.tables import count_rows
from stillhouse.experiments.budget import Budget
from stillhouse.experiments.data_kind import data_kinds
from stillhouse.values.data import Examples, Mined
from stillhouse.values.setting import SentenceData, Setting


def cut(setting: Setting, budget: Budget) -> Setting:
    """The setting with the share of its rows that a budget states.

    A smaller share is part of a larger one. Stores, mined negatives, recorded scores, word vectors, dev and
    test stay as they are, and so do the budgets: a small share is seen more often.
    """
    kinds, data = data_kinds(), {}
    for key, value in setting.data.items():
        rows = kinds[key].counts_as
        fraction = budget.share_of(rows) if rows else 1.0
        data[key] = value.share(fraction) if fraction < 1 else value
    return dataclasses.replace(setting, data=data)


def counted(setting: Setting, workspace: Workspace) -> Setting:
    """The setting with the number of rows of all that stages may read, of which epochs are passes."""
    rows = {
        examples.fingerprint: count_rows(workspace, examples)
        for value in setting.data.values()
        for given in examples_of(value)
        for examples in _made(given, workspace)
    }
    return dataclasses.replace(setting, rows=rows)


def examples_of(value: object) -> Iterator[Examples]:
    """The examples in the prepared form of a kind."""
    if isinstance(value, SentenceData):
        yield value.examples
    elif dataclasses.is_dataclass(value):
        named = (getattr(value, field.name) for field in dataclasses.fields(value))
        yield from (each for each in named if isinstance(each, Examples))


def _made(examples: Examples, workspace: Workspace) -> Iterator[Examples]:
    """The examples, or the pairs that their hard negatives are still to be mined for."""
    unmade = [
        part.origin.pairs
        for part in examples.sources()
        if isinstance(part.origin, Mined) and not workspace.finished(part)
    ]
    yield from unmade or [examples]
