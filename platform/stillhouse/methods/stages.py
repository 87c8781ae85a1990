"""The two stages that most methods have: distillation on unlabelled text, fine-tuning on labelled text."""

from collections.abc import Sequence
from typing import Any

from stillhouse.methods.bottlenecks import SupervisedBottleneck
from stillhouse.plan import AllRows, Examples, Live, Optimizer, Setting, Stage
from stillhouse.spec import Spec, spec


def student_of(setting: Setting, layers: Sequence[int], **changes: Any) -> Spec[Any]:
    """The setting's student, with other layers and arguments where they are given."""
    chosen = {"layers": tuple(layers)} if layers else {}
    return setting.student.replace(**chosen, **changes) if chosen or changes else setting.student


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
