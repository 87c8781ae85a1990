"""Methods: one paper, one file. A method is found by its file name and is a module with these names.

`HyperParameters`
    A frozen dataclass: what may be searched, each with a default and a range check.
`needs`
    The kinds of data that its plan reads, such as ``(Sentences, Pairs.optional)``.
`plan(hp, setting)`
    The last `Stage` of the method; the stages before it are reached through ``start_from``.
`PRESETS`
    Name to `HyperParameters`: ``paper`` follows the text, further ones other settings of the text, and
    ``repo``, where code is known and differs, what the authors' code does.
`PAPER`
    What a model card cites.
`PRUNABLE_FROM`
    Label of the first stage whose evaluations a scheduler may stop a trial on.

Optional names:

`SOURCES`
    Hyper-parameter to where its value stands: in the text, and in the authors' code if there is a preset
    ``repo``.
`NEGATIVES`
    Number of hard negatives that are mined per pair (K) where the experiment states none.
`DISTILS_PAIRS`
    Whether a stage before the fine-tuning reads the labelled text, which is then needed without a budget
    for it.
`check(hp, student, teacher)`
    Refuses models that the method cannot use, before any work.
`check_given(given, setting)`
    Refuses hyper-parameters that were given by name, rather than by a preset, and have no effect on the data.
`BUDGET`
    Examples of its stages, ``distil`` and ``finetune``, where the experiment states none.
`BASELINE`
    What a sweep of the method is compared with (`methods.baselines`), if it is not the MSE student; None for
    a method that is a baseline itself.
"""

import dataclasses
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.core.modules import load_module, module_names
from stillhouse.core.other_words import in_our_words
from stillhouse.experiments.budget import Budget
from stillhouse.experiments.data_kind import data_kinds
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.shares import cut
from stillhouse.experiments.teacher_weights import is_weight, without_weights
from stillhouse.students.backbone import checked_layers
from stillhouse.students.recurrent import checked_repeats
from stillhouse.values.data import teachers_in
from stillhouse.values.kinds import DataNeed, Kind, needed
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage


class Method(Protocol):
    """The contract of a method's module."""

    __name__: str
    HyperParameters: type[Any]
    PRESETS: dict[str, Any]
    PAPER: str
    PRUNABLE_FROM: str
    needs: tuple[type[Kind[Any]] | DataNeed, ...]

    def plan(self, hp: Any, setting: Setting) -> Stage:
        """Plan the method's last stage."""
        ...


def known_methods() -> list[str]:
    """The names of all methods: the files of this package that have a plan."""
    names = module_names(__path__)
    return [name for name in names if hasattr(importlib.import_module(f"{__name__}.{name}"), "plan")]


def load_method(name: str) -> Method:
    """Import a method.

    Raises:
        BadInput: There is none of that name; the near ones are listed.
    """
    method: Method = load_module(__name__, known_methods(), name, "method")
    return method


def name_of(method: Method) -> str:
    """A method's name, such as ``ibkd``."""
    return method.__name__.rpartition(".")[2]


def hyper_parameters(method: Method, values: dict[str, Any], preset: str = "paper") -> Any:
    """A method's hyper-parameters: a preset with some values changed; weights of teachers are none of them.

    Raises:
        BadInput: An unknown preset or name, or a value out of range.
    """
    if preset not in method.PRESETS:
        raise BadInput(f"unknown preset {preset!r}. {nearest(preset, list(method.PRESETS))}")
    check_names(method, values)
    try:
        named = without_weights(values).items()
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in named}
        return dataclasses.replace(method.PRESETS[preset], **given)
    except TypeError as error:
        raise BadInput(
            f"a hyper-parameter's value must be of its type, but got {values!r}: {error}."
        ) from None


def fields_of(method: Method) -> "list[dataclasses.Field[Any]]":
    """A method's hyper-parameters, its own before those that it shares with other methods."""
    classes = method.HyperParameters.__mro__
    order = [name for each in classes for name in vars(each).get("__annotations__", {})]
    return sorted(dataclasses.fields(method.HyperParameters), key=lambda field: order.index(field.name))


def check_names(method: Method, names: Iterable[str]) -> None:
    """Refuse a name that no hyper-parameter of the method has.

    Raises:
        BadInput: The first such name; the near ones are listed.
    """
    known = [field.name for field in fields_of(method)]
    for name in names:
        if name not in known and not is_weight(name):
            hint = in_our_words(name, known) or nearest(name, known)
            raise BadInput(f"{name_of(method)} has no hyper-parameter `{name}`. {hint}")


def with_defaults(method: Method, experiment: Experiment) -> Experiment:
    """The experiment with the method's own budgets and number of hard negatives, where it states none.

    Raises:
        BadInput: The experiment's rule of mining does not leave that many.
    """
    budget = experiment.budget.settled(**getattr(method, "BUDGET", {}))
    experiment = dataclasses.replace(experiment, budget=budget)
    pairs, own = experiment.get(Pairs), getattr(method, "NEGATIVES", None)
    changes: dict[str, Any] = {}
    if pairs is not None and own is not None and pairs.negatives is None and pairs.mined is None:
        changes["mined"] = own
    if pairs is not None and getattr(method, "DISTILS_PAIRS", False):
        changes["distilled"] = True
    if not changes:
        return experiment
    others = tuple(kind for kind in experiment.data if kind.key != Pairs.key)
    return dataclasses.replace(experiment, data=(*others, dataclasses.replace(pairs, **changes)))


def kinds_read(method: Method, hp: Any, experiment: Experiment, setting: Setting) -> set[str]:
    """Name the kinds of data that a plan reads: a method's own, and those that its dev suite measures with.

    The setting is what `WithTeacher.sketch` gives for the experiment.
    """
    measured = any(stage.dev == setting.dev for stage in method.plan(hp, setting).chain())
    needs = {need.kind.key for need in needed(method.needs)}
    return {kind.key for kind in experiment.kinds if measured or kind.is_source or kind.key in needs}


@dataclass(frozen=True)
class PresetValue:
    """A hyper-parameter's values by preset, and where the text and the authors' code state them.

    The source in code is empty without a preset ``repo``.
    """

    name: str
    values: dict[str, Any]
    text_source: str
    code_source: str = ""

    @property
    def differs(self) -> bool:
        """True if the code differs from the text."""
        return bool(self.values.get("repo", self.values["paper"]) != self.values["paper"])

    def as_json(self) -> dict[str, Any]:
        """The value and its source by preset, as ``--json`` writes them."""
        sources = {
            f"{preset}_source": self.code_source if preset == "repo" else self.text_source
            for preset in self.values
        }
        return {"name": self.name, **self.values, **sources, "differs": self.differs}


def distinct_presets(method: Method) -> dict[str, Any]:
    """A method's presets, without those that equal an earlier one."""
    found: dict[str, Any] = {}
    for name, values in method.PRESETS.items():
        if values not in found.values():
            found[name] = values
    return found


def presets(method: Method) -> list[PresetValue]:
    """Every hyper-parameter of a method as its presets have it, side by side."""
    sources: dict[str, tuple[str, ...]] = getattr(method, "SOURCES", {})
    shown = distinct_presets(method)
    values = []
    for field in fields_of(method):
        text, *code = sources.get(field.name, ("ours", "ours"))
        given = {name: getattr(hp, field.name) for name, hp in shown.items()}
        values.append(PresetValue(field.name, given, text, code[0] if code and "repo" in shown else ""))
    return values


def preset_rows(method: Method) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of the table of a method's presets with their sources."""
    shown = list(distinct_presets(method))
    texts = [name for name in shown if name != "repo"]
    header = ["hyper-parameter", *texts, "from", *(["repo", "from"] if "repo" in shown else [])]
    rows = []
    for value in presets(method):
        row = [value.name, *(_shown(value.values[name]) for name in texts), value.text_source]
        rows.append(row + ([_shown(value.values["repo"]), value.code_source] if "repo" in shown else []))
    return header, rows


def _shown(value: Any) -> str:
    return "none" if value == () else f"{value:g}" if isinstance(value, float) else str(value)


def check_needs(method: Method, experiment: Experiment) -> None:
    """Refuse an experiment without the data that a method reads.

    Raises:
        BadInput: A kind of data is missing; the message says how to give it.
    """
    available, kinds = experiment.available(), data_kinds()
    for need in needed(method.needs):
        kind = kinds[need.kind.key]
        require(
            not need.required or kind.key in available,
            f"{name_of(method)} must be given {kind.title}",
            data=sorted(available),
            remedy=kind.remedy,
        )


def probe(method: Method, hp: Any, setting: Setting, *, layers: int) -> None:
    """Plan and build the objectives, so that a bad value is refused before any work.

    The setting is what `WithTeacher.sketch` gives: the data need not exist. ``layers`` is the number of
    layers of the model that the student starts from.

    Raises:
        BadInput: A value that a stage, an optimiser or a loss refuses, a layer past the model, or a recurrent
            unit that does not divide its depth.
    """
    for stage in method.plan(hp, setting).chain():
        _check_runnable(method, stage)
        stage.objective.build(student_dim=4, teacher_dim=4)
        given = stage.student.kwargs
        if given.get("layers"):
            checked_layers(given["layers"], layers)
        if "unit" in given:
            checked_repeats(given["unit"], given.get("repeats"), layers)


def _check_runnable(method: Method, stage: Stage) -> None:
    """Refuse a stage that runs or trains several teachers, or one that is there by its vectors alone."""
    run = [stage.student, *([stage.live.model] if stage.live is not None else [])]
    vectors = [teacher for each in run for teacher in teachers_in(each) if teacher.checkpoint is None]
    require(
        not vectors,
        f"{name_of(method)} runs or trains the teacher in its stage {stage.label}, so it must be one model",
        teacher=", ".join(each.name for each in vectors),
        remedy="Name a model (teacher.name) alone, or take ibkd, ckd or mse, which read vectors.",
    )


def check_fraction(method: Method, hp: object, setting: Setting, budget: Budget) -> None:
    """Refuse a share of rows that a method does not train on.

    The setting has all of the data; what `WithTeacher.sketch` gives will do.

    Raises:
        BadInput: The plan is the same at every share.
    """
    changes = method.plan(hp, cut(setting, budget)).fingerprint != method.plan(hp, setting).fingerprint
    require(
        budget.fraction == 1 or changes,
        f"--fraction-of must name rows that {name_of(method)} trains on here",
        fraction_of=budget.fraction_of,
        remedy="Take --fraction-of all, or give the rows (--labelled, --task).",
    )
