"""What a preset makes of its stages, flat and literal: for tests that state every value of every preset."""

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stillhouse.core.identity import Spec
from stillhouse.methods import load_method
from stillhouse.objectives.information_bottleneck import SupervisedBottleneck
from stillhouse.search.space import load_space
from stillhouse.values.setting import Setting

ROOT = Path(__file__).resolve().parents[1]
OPTIMIZER = ("learning_rate", "name", "weight_decay", "warmup", "decay", "clip_norm")
NOT_OURS = ("base", "layers", "attention", "pretrained", "seed", "words")
"""Arguments of a student that the setting gives."""


def stage_arguments(name: str, preset: str, setting: Setting) -> dict[str, dict[str, Any]]:
    """The arguments of every stage of a preset's plan, by its label; nested specs have dotted names."""
    method = load_method(name)
    stages = method.plan(method.PRESETS[preset], setting).chain()
    return {
        stage.label: {
            "batch_size": stage.batch_size,
            "budget": stage.budget,
            **{field: getattr(stage.optimizer, field) for field in OPTIMIZER},
            "objective": stage.objective.target.__name__,
            **_objective(stage.objective),
            **{
                f"student.{key}": value
                for key, value in _flat(stage.student, "", defaults=False)
                if key.partition(".")[0] not in NOT_OURS
            },
        }
        for stage in stages
    }


def _flat(value: Spec[Any], prefix: str, *, defaults: bool) -> Iterator[tuple[str, Any]]:
    parameters = inspect.signature(value.target).parameters.values() if defaults else ()
    bound = {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}
    for key, item in {**bound, **value.kwargs}.items():
        if isinstance(item, Spec):
            yield from _flat(item, f"{prefix}{key}.", defaults=defaults)
        else:
            yield f"{prefix}{key}", item


def _objective(value: Spec[Any]) -> dict[str, Any]:
    """The arguments of an objective, defaults included; of a bottleneck of weight 0 only the weight."""
    arguments = dict(_flat(value, "", defaults=True))
    if value.target is SupervisedBottleneck and arguments["beta"] == 0:
        return {key: item for key, item in arguments.items() if key == "beta" or key.startswith("nce.")}
    return arguments


def grid(name: str, section: str = "space") -> dict[str, Any]:
    """A section of a search space as plain values: tuples of choices, or (low, high, {step, log})."""
    space = load_space(ROOT / "search_spaces" / f"{name}.yaml", space=section)
    return {key: _plain(domain) for key, domain in space.domains.items()}


def first(name: str, section: str = "space") -> Mapping[str, Any] | None:
    """The first point of a method's search space; nothing may be fixed beside it."""
    space = load_space(ROOT / "search_spaces" / f"{name}.yaml", space=section)
    assert space.fixed == {}
    return space.first


def _plain(domain: Any) -> Any:
    if hasattr(domain, "choices"):
        return domain.choices
    extra = {key: value for key, value in vars(domain).items() if key not in ("low", "high")}
    return (domain.low, domain.high, extra)
