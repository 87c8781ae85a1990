"""The two stages that most methods have: distillation on unlabelled text, fine-tuning on labelled text."""

from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.losses.contrastive import SupervisedInfoNCE
from stillhouse.objectives.information_bottleneck import SupervisedBottleneck
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Live, Optimizer, Stage
from stillhouse.recipes.stages import stage_of


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
    """Plan a stage on the unlabelled sentences, column ``text``.

    Args:
        setting: Data, budget, dev suite.
        objective: The objective to minimise.
        optimizer: The optimiser and its schedule.
        label: Name of the stage.
        student: The student to train.
        batch_size: Global batch size.
        budget: Examples; 0 takes the setting's.
        live: A live teacher, instead of the stored vectors.
    """
    return stage_of(
        setting,
        label=label,
        student=student,
        objective=objective,
        examples=setting[Sentences].examples,
        stores={} if live else {"text": setting[Sentences].store},
        budget=budget or setting.distil_budget,
        batch_size=batch_size,
        optimizer=optimizer,
        live=live,
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
    """Plan the fine-tuning of a stage by supervised InfoNCE (DistilCSE eq. 7, IBKD eq. 10 without HSIC).

    If the setting has no labelled text, or no budget for it, the stage itself is returned.

    Args:
        setting: Data, budget, dev suite.
        before: The stage to fine-tune.
        optimizer: The optimiser and its schedule.
        batch_size: Global batch size, cut to the budget.
        temperature: τ.
        share_negatives: An anchor is also compared with the hard negatives of the others.
    """
    if setting.get(Pairs) is None or setting.finetune_budget == 0:
        return before
    nce = spec(SupervisedInfoNCE, temperature=temperature, share_negatives=share_negatives)
    objective = spec(SupervisedBottleneck, nce=nce, beta=0.0)
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
    """Plan a stage on the labelled text: columns ``query``, ``passage`` and, if present, ``negatives``.

    Args:
        setting: Data with labelled text, budget, dev suite.
        objective: The objective to minimise.
        optimizer: The optimiser and its schedule.
        student: The student to train.
        batch_size: Global batch size, cut to the budget.
        label: Name of the stage.
        before: The stage whose student it continues to train.
        with_teacher: Also read the teacher's vectors of the labelled text.
    """
    return stage_of(
        setting,
        label=label,
        student=student,
        objective=objective,
        examples=setting[Pairs].examples,
        stores=setting[Pairs].stores if with_teacher else {},
        budget=setting.finetune_budget,
        batch_size=min(batch_size, setting.finetune_budget),
        optimizer=optimizer,
        start_from=before,
    )


def check_bank(*, bank_size: int, batch_size: int) -> None:
    """Refuse a memory bank that cannot hold a batch.

    Raises:
        BadInput: The bank is smaller than the batch.
    """
    require(
        bank_size == 0 or bank_size >= batch_size,
        "bank_size >= batch_size",
        bank_size=bank_size,
        batch_size=batch_size,
        remedy="Raise bank_size, lower batch_size, or set bank_size=0 to disable the bank.",
    )
