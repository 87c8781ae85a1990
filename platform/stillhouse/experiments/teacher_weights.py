"""The weights of several teachers as hyper-parameters, which every method that reads their vectors has.

``teacher_weight_2`` is the weight of the second teacher, relative to the others', in a search space and with
``--set``. A teacher whose weight is not named keeps the experiment's.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from stillhouse.core.errors import require
from stillhouse.experiments.experiment import Experiment
from stillhouse.values.data import shares_of
from stillhouse.values.setting import Setting

_NAME = re.compile(r"teacher_weight_([1-9][0-9]*)")


def is_weight(name: str) -> bool:
    """Return whether a hyper-parameter is the weight of a teacher."""
    return _NAME.fullmatch(name) is not None


def weights_of(setting: Setting) -> dict[str, float]:
    """The experiment's own weights, by the names that a search space has for them; none of one teacher."""
    given = enumerate(setting.teacher.given, start=1)
    return {f"teacher_weight_{number}": weight for number, weight in given}


def without_weights(values: Mapping[str, Any]) -> dict[str, Any]:
    """The hyper-parameters that are the method's own."""
    return {name: value for name, value in values.items() if not is_weight(name)}


def with_weights(hyper_parameters: type, names: Iterable[str]) -> type:
    """A method's dataclass of hyper-parameters, with a field for each of the names that is a weight.

    It declares the type and the default of a weight for those who read a search space.
    """
    weights = [(name, float, dataclasses.field(default=1.0)) for name in names if is_weight(name)]
    if not weights:
        return hyper_parameters
    name = hyper_parameters.__name__
    return dataclasses.make_dataclass(name, weights, bases=(hyper_parameters,), frozen=True)


def weighted(setting: Setting, values: Mapping[str, Any]) -> Setting:
    """The setting with the weights that hyper-parameters name; the same where they name none.

    Raises:
        BadInput: A weight is negative, all are 0, or there is no such teacher.
    """
    if not any(map(is_weight, values)):
        return setting
    return setting.weighted(shares_of(_replaced(setting.teacher.given or (1.0,), values)))


def weighted_experiment(experiment: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment with the weights that hyper-parameters name; see `weighted`."""
    if not any(map(is_weight, values)):
        return experiment
    choice = experiment.teacher
    weights = _replaced([member.weight for member in choice.each], values)
    members = tuple(
        dataclasses.replace(member, weight=weight)
        for member, weight in zip(choice.each, weights, strict=True)
    )
    return dataclasses.replace(experiment, teacher=dataclasses.replace(choice, members=members))


def _replaced(own: Iterable[float], values: Mapping[str, Any]) -> list[float]:
    """Weights in which those that are named have other values."""
    weights = list(own)
    for name, value in values.items():
        if found := _NAME.fullmatch(name):
            number = int(found[1])
            require(
                1 < len(weights) >= number,
                f"{name} must name one of several teachers",
                teachers=len(weights),
                remedy="Teachers are counted from 1, in the order of the experiment's list.",
            )
            weights[number - 1] = float(value)
    return weights
