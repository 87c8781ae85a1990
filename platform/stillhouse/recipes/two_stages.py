"""The two stages that most methods have: distillation on unlabelled text, fine-tuning on labelled text."""

import inspect
from collections.abc import Sequence
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.objectives.bottleneck import SupervisedBottleneck
from stillhouse.plan.data import AllRows, Examples
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Live, Optimizer, Stage
from stillhouse.students.transformer import TransformerStudent


def student_of(setting: Setting, layers: Sequence[int], **changes: Any) -> Spec[Any]:
    """The setting's student, with other layers and arguments where they are given.

    Raises:
        BadInput: A student of its kind has no such argument.
    """
    chosen = {"layers": tuple(layers)} if layers else {}
    return changed(setting.student, **chosen, **changes)


def changed(student: Spec[Any], **changes: Any) -> Spec[Any]:
    """A student with other arguments.

    Raises:
        BadInput: A student of its kind has no such argument.
    """
    missing = sorted(set(changes) - set(inspect.signature(student.target).parameters))
    require(
        not missing,
        "the kind of student has what the method sets",
        student=getattr(student.target, "__name__", ""),
        lacks=missing,
        remedy="Take another method or hyper-parameter, or another --student-kind.",
    )
    return student.replace(**changes) if changes else student


def require_transformer(student: Spec[Any], rule: str) -> None:
    """Refuse a student of another kind, for a method that has no use for it.

    Raises:
        BadInput: It is no `TransformerStudent`.
    """
    name, remedy = getattr(student.target, "__name__", ""), "Leave --student-kind out."
    require(student.target is TransformerStudent, rule, student=name, remedy=remedy)


def distilled(
    setting: Setting,
    objective: Spec[Any],
    optimizer: Optimizer,
    *,
    label: str,
    student: Spec[Any],
    batch_size: int,
    budget: int = 0,
    live: Live | None = None,
) -> Stage:
    """A stage on the unlabelled sentences, column ``text``.

    Args:
        setting: Data, budget, dev suite.
        objective: What is minimised.
        optimizer: How the weights move.
        label: Of the stage.
        student: What is trained.
        batch_size: Global batch.
        budget: Examples; 0 takes the setting's.
        live: A teacher that runs along, in place of the stored vectors.
    """
    budget = budget or setting.distil_budget
    return Stage(
        label=label,
        student=student,
        objective=objective,
        examples=setting.texts or Examples(columns={"text": setting.sentences.texts}, origin=AllRows()),
        stores={} if live else {"text": setting.sentences},
        budget=budget,
        batch_size=batch_size,
        optimizer=optimizer,
        live=live,
        evaluate_every=budget // setting.evaluations,
        **setting.common(),
    )


def finetuned(
    setting: Setting,
    before: Stage,
    optimizer: Optimizer,
    *,
    batch_size: int,
    temperature: float,
    share_negatives: bool = False,
) -> Stage:
    """The stage before, fine-tuned by supervised InfoNCE (DistilCSE eq. 7, IBKD eq. 10 without HSIC).

    The same stage where the setting has no labelled text, or no budget for it.

    Args:
        setting: Data, budget, dev suite.
        before: What it goes on from.
        optimizer: How the weights move.
        batch_size: Global batch; no more than the budget is taken.
        temperature: τ.
        share_negatives: An anchor sees the hard negatives of the others too.
    """
    if setting.labelled is None or setting.finetune_budget == 0:
        return before
    objective = spec(SupervisedBottleneck, temperature=temperature, beta=0.0, share_negatives=share_negatives)
    return supervised(
        setting, objective, optimizer, student=before.student, batch_size=batch_size, before=before
    )


def supervised(
    setting: Setting,
    objective: Spec[Any],
    optimizer: Optimizer,
    *,
    student: Spec[Any],
    batch_size: int,
    label: str = "finetune",
    before: Stage | None = None,
    with_teacher: bool = False,
) -> Stage:
    """A stage on the labelled text, columns ``query``, ``passage`` and, where there are any, ``negatives``.

    Args:
        setting: Data with labelled text, budget, dev suite.
        objective: What is minimised.
        optimizer: How the weights move.
        student: What is trained.
        batch_size: Global batch; no more than the budget is taken.
        label: Of the stage.
        before: The stage whose student it goes on from.
        with_teacher: Read the teacher's vectors of the labelled text too.
    """
    assert setting.labelled is not None, "a method that needs labelled text says so before it plans"
    return Stage(
        label=label,
        student=student,
        objective=objective,
        examples=setting.labelled,
        stores=dict(setting.labelled_stores) if with_teacher else {},
        budget=setting.finetune_budget,
        batch_size=min(batch_size, setting.finetune_budget),
        optimizer=optimizer,
        evaluate_every=setting.finetune_budget // setting.evaluations,
        start_from=before,
        **setting.common(),
    )
