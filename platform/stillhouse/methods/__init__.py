"""Methods: one paper, one file. A method is found by its file name and is a module with five names.

`HyperParameters`
    A frozen dataclass: what may be searched, each with a default and a range check.
`plan(hp, setting)`
    The last `Stage` of the method; the stages before it are reached through ``start_from``.
`PRESETS`
    Name to `HyperParameters`: ``paper`` follows the text, ``repo`` what the authors' code does.
`PAPER`
    What a model card cites.
`PRUNABLE_FROM`
    Label of the first stage whose evaluations a scheduler may stop a trial on.

`SOURCES`
    Hyper-parameter to where its value stands: in the text, in the authors' code; may be left out.

A method that cannot do without labelled text also has ``NEEDS``, the columns of it that it reads; one that
wants translations has ``NEEDS_PARALLEL``, one whose student reads word vectors ``NEEDS_WORDS``, one that
learns a task ``NEEDS_TASK``, one that ranks the candidates of claims ``NEEDS_CLAIMS``. One that asks more of
the models than that they load has ``check(hp, student, teacher)``: it refuses them before any work. A sweep
compares with ``BASELINE``, the hyper-parameters that make a method its own baseline, where a method has it;
else with the MSE student.
"""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.core.identity import Spec, spec
from stillhouse.plan.data import AllRows, Examples, Model, RankingTask, Store, TextTable
from stillhouse.plan.setting import LabelledTask, Setting
from stillhouse.plan.stage import DevSuite, Stage
from stillhouse.students.backbone import checked_layers
from stillhouse.students.recurrent import checked_repeats


class Method(Protocol):
    """The contract of a method's module."""

    __name__: str
    HyperParameters: type[Any]
    PRESETS: dict[str, Any]
    PAPER: str
    PRUNABLE_FROM: str

    def plan(self, hp: Any, setting: Setting) -> Stage:
        """The method's last stage."""
        ...


def known_methods() -> list[str]:
    """The names of all methods: the files of this package that have a plan."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return sorted(name for name in names if hasattr(importlib.import_module(f"{__name__}.{name}"), "plan"))


def load_method(name: str) -> Method:
    """The method of that name.

    Raises:
        BadInput: There is none; the near ones are listed.
    """
    known = known_methods()
    if name not in known:
        raise BadInput(f"a method must be one of ours, but got {name!r}. {nearest(name, known)}")
    return importlib.import_module(f"{__name__}.{name}")


def hyper_parameters(method: Method, values: dict[str, Any], preset: str = "paper") -> Any:
    """A method's hyper-parameters: a preset with some values changed.

    Raises:
        BadInput: An unknown preset or name, or a value out of range.
    """
    if preset not in method.PRESETS:
        raise BadInput(f"a preset must exist, but got {preset!r}. {nearest(preset, list(method.PRESETS))}")
    check_names(method, values)
    try:
        return dataclasses.replace(method.PRESETS[preset], **values)
    except TypeError as error:
        raise BadInput(
            f"a hyper-parameter's value must be of its type, but got {values!r}: {error}."
        ) from None


def check_names(method: Method, names: Iterable[str]) -> None:
    """Refuse a name that is no hyper-parameter of the method.

    Raises:
        BadInput: The first such name; the near ones are listed.
    """
    known = [field.name for field in dataclasses.fields(method.HyperParameters)]
    for name in names:
        if name not in known:
            raise BadInput(f"`{name}` is no hyper-parameter of this method. {nearest(name, known)}")


@dataclass(frozen=True)
class PresetValue:
    """A hyper-parameter in both presets, and where each value comes from."""

    name: str
    paper: Any
    paper_source: str
    repo: Any
    repo_source: str

    @property
    def differs(self) -> bool:
        """Whether the code does something else than the text."""
        return bool(self.paper != self.repo)


def presets(method: Method) -> list[PresetValue]:
    """Every hyper-parameter of a method as its presets have it, side by side."""
    told: dict[str, tuple[str, str]] = getattr(method, "SOURCES", {})
    paper, repo = method.PRESETS["paper"], method.PRESETS["repo"]
    values = []
    for field in dataclasses.fields(method.HyperParameters):
        text, code = told.get(field.name, ("ours", "ours"))
        ours, theirs = getattr(paper, field.name), getattr(repo, field.name)
        values.append(PresetValue(field.name, ours, text, theirs, code))
    return values


def check_data(
    method: Method,
    columns: Iterable[str],
    *,
    parallel: bool = False,
    words: bool = False,
    task: bool = False,
    claims: bool = False,
) -> None:
    """Refuse to train without the labelled or parallel text, or the word vectors, that a method needs.

    Args:
        method: What would train.
        columns: Of the labelled text that there is; none where there is none.
        parallel: Whether there is parallel text.
        words: Whether there are word vectors.
        task: Whether there is a task with labels, and a budget for it.
        claims: Whether there are claims.

    Raises:
        BadInput: A column is missing.
    """
    name, wants_claims = method.__name__.rpartition(".")[2], getattr(method, "NEEDS_CLAIMS", False)
    require(
        claims or not wants_claims,
        f"{name} is given claims with candidate documents",
        claims="",
        remedy="Give --claims with a folder of FEVER.",
    )
    require(
        wants_claims or not claims,
        f"{name} reads sentences, and --claims puts claims in their place",
        method=name,
        remedy="Leave --claims out, or train retrieval_kd.",
    )
    require(
        task or not getattr(method, "NEEDS_TASK", False),
        f"{method.__name__.rpartition('.')[2]} is given a task with labels",
        task="",
        remedy="Give --task and --task-root, and a budget with --finetune-budget.",
    )
    require(
        words or not getattr(method, "NEEDS_WORDS", False),
        f"{method.__name__.rpartition('.')[2]} is given word vectors, or a task whose words are counted",
        words="",
        remedy="Give --words with a file of vectors such as GloVe's, or --task and --task-root.",
    )
    require(
        parallel or not getattr(method, "NEEDS_PARALLEL", False),
        f"{method.__name__.rpartition('.')[2]} is given sentences with their translations",
        columns=["text"],
        needs=["source", "target"],
        remedy="Give them with --parallel, such as --parallel de=pairs.tsv.",
    )
    needed, there = getattr(method, "NEEDS", ()), tuple(columns)
    require(
        set(needed) <= set(there),
        f"{method.__name__.rpartition('.')[2]} is given labelled text with the columns {', '.join(needed)}",
        columns=list(there),
        remedy="Give it with --labelled, and a budget with --finetune-budget; pydocs brings its own pairs.",
    )


def probe(method: Method, hp: Any, *, layers: int, setting: Setting | None = None) -> None:
    """Plan and build the objectives with placeholder data, so that a bad value is refused before any work.

    Args:
        method: What plans.
        hp: Its hyper-parameters.
        layers: Of the model that the student starts from.
        setting: Placeholders for the kinds of data that there are; None has all kinds.

    Raises:
        BadInput: A value that a stage, an optimiser or a loss refuses, or a layer past the model.
    """
    for stage in method.plan(hp, setting or placeholder()).chain():
        stage.objective.build(student_dim=4, teacher_dim=4)
        check_student(stage.student, layers)


def check_student(student: Spec[Any], layers: int) -> None:
    """Refuse layers or a recurrent unit that the model does not have.

    Raises:
        BadInput: A layer past the model, or a unit that does not divide its depth.
    """
    if student.kwargs.get("layers"):
        checked_layers(student.kwargs["layers"], layers)
    if "unit" in student.kwargs:
        checked_repeats(student.kwargs["unit"], student.kwargs.get("repeats"), layers)


def placeholder(
    *,
    labelled: bool = True,
    task: LabelledTask | None = None,
    student: Spec[Any] | None = None,
    cross_encoder: Model | None = None,
) -> Setting:
    """A setting of data that is not there, to plan with.

    Args:
        labelled: Whether there is labelled text.
        task: What `placeholder_task` gives; None for no task.
        student: What is trained; None is some transformer.
        cross_encoder: A published teacher of pairs; None where there is none.
    """
    from stillhouse.students.transformer import TransformerStudent

    teacher, texts = Model("placeholder"), TextTable("placeholder")
    pairs = Examples({"query": texts, "passage": texts}, AllRows())
    return Setting(
        teacher=teacher,
        student=student or spec(TransformerStudent, base=teacher, layers=(0,)),
        sentences=Store(texts, teacher),
        dev=DevSuite((), select=""),
        distil_budget=1 << 40,
        sentence_rows=1 << 40,
        labelled=pairs if labelled else None,
        labelled_stores=dict.fromkeys(pairs.columns, Store(texts, teacher)) if labelled else {},
        teacher_dim=4,
        parallel=Examples({"source": texts, "target": texts}, AllRows()),
        parallel_store=Store(texts, teacher),
        finetune_budget=1 << 40,
        words=teacher,
        task=task,
        ranking=RankingTask(
            Examples({"claim": texts, "documents": texts}, AllRows()),
            DevSuite((), select=""),
            rows=1 << 40,
            cross_encoder=cross_encoder,
        ),
    )


def placeholder_task(*, pair: bool, classes: int, augmented: bool) -> LabelledTask:
    """A task of data that is not there.

    Args:
        pair: Whether its texts come in pairs.
        classes: C.
        augmented: Whether there are varied rows.
    """
    texts, nothing = TextTable("placeholder"), DevSuite((), select="")
    rows = Examples(dict.fromkeys(("text", "other") if pair else ("text",), texts), AllRows())
    return LabelledTask(
        rows,
        classes,
        nothing,
        augmented=rows if augmented else None,
        untuned=nothing if pair and classes == 2 else None,
    )
