"""Shares of the training rows: what ``budget.fraction`` leaves of a setting."""

import dataclasses

from stillhouse.experiments.budget import Budget
from stillhouse.experiments.data_kind import data_kinds
from stillhouse.values.setting import Setting


def cut(setting: Setting, budget: Budget) -> Setting:
    """The setting with the share of its rows that a budget states.

    A smaller share is part of a larger one. Stores, mined negatives, recorded scores, word vectors, dev and
    test stay as they are, and so do the budgets: a small share is seen more often.
    """
    kinds, data = data_kinds(), {}
    for key, value in setting.data.items():
        rows = kinds[key].counts_as
        fraction = budget.share_of(rows) if rows else 1.0
        data[key] = kinds[key].share(value, fraction) if fraction < 1 else value
    return dataclasses.replace(setting, data=data)
