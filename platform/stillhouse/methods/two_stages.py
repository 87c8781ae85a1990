"""The two stages that most methods have: distillation on unlabelled text, fine-tuning on labelled text.

`Finetuned` is stage 2 of DistilCSE's tables; its defaults are DistilCSE's. IBKD has a fine-tuning of its own:
where its tables compare a method, the experiment files give it IBKD's rate, batch and negatives, so that a
difference between two methods is one of their losses.
"""

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.losses.contrastive import SupervisedInfoNCE
from stillhouse.methods.stages import Layered, optimizer_of, stage_of
from stillhouse.objectives.information_bottleneck import SupervisedBottleneck
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Live, Optimizer, Stage

H = TypeVar("H", bound=Any)


@dataclass(frozen=True)
class Finetuned(Layered):
    """Hyper-parameters of a method with stage 2 of DistilCSE (arXiv:2112.05638, section 4.2 and eq. 7).

    Attributes:
        finetune_learning_rate: Peak learning rate of the fine-tuning stage; the default is that of students
            of 14 M and 110 M parameters, see `BY_SIZE`.
        finetune_batch_size: Global batch size of the fine-tuning stage.
        finetune_temperature: τ of eq. 7, which the paper does not print; the code starts a learnable scale
            at 20.
        finetune_share_negatives: Compare an anchor also with the hard negatives of the others, as in eq. 7;
            in IBKD's eq. 10 it has its own K alone.
    """

    finetune_learning_rate: float = 5e-5
    finetune_batch_size: int = 128
    finetune_temperature: float = 0.05
    finetune_share_negatives: bool = True


FINETUNING_SOURCES: dict[str, tuple[str, ...]] = {
    "finetune_learning_rate": (
        "DistilCSE section 4.2: 5e-5 for 110 M and 14 M, 1e-5 for 52 M",
        "DistilCSE's code: 5e-5",
    ),
    "finetune_batch_size": ("DistilCSE section 4.2", "DistilCSE's code: 128 per GPU"),
    "finetune_temperature": ("not printed; as in the code", "DistilCSE's code: a scale of 20"),
    "finetune_share_negatives": ("DistilCSE eq. 7", "DistilCSE's code"),
}
"""Sources of the presets' values of stage 2, which DistilCSE's tables share."""

BY_SIZE: dict[str, dict[str, float]] = {
    "paper_52m": {"finetune_learning_rate": 1e-5},
    "paper_110m": {"learning_rate": 2e-4},
}
"""What section 4.2 of DistilCSE prints for students of 52 M and 110 M; the preset ``paper`` is for 14 M."""

LEARNING_RATE_SOURCE = "DistilCSE section 4.2: 3e-4 for 52 M and 14 M, 2e-4 for 110 M"


TEXT_SOURCES: dict[str, tuple[str, ...]] = {
    "learning_rate": (LEARNING_RATE_SOURCE,),
    "batch_size": ("DistilCSE section 4.2",),
    **{name: sources[:1] for name, sources in FINETUNING_SOURCES.items()},
    "optimizer": ("DistilCSE section 4.2: Adam",),
    "weight_decay": ("DistilCSE section 4.2: Adam",),
    "warmup": ("not printed; ours",),
    "decay": ("not printed; ours",),
    "clip_norm": ("not printed; ours",),
}
"""Sources in the text alone, for a baseline of DistilCSE's tables without a preset ``repo``."""


def by_size(paper: H) -> dict[str, H]:
    """Return the presets of DistilCSE's three student sizes, made from that of 14 M."""
    return {"paper": paper, **{name: replace(paper, **values) for name, values in BY_SIZE.items()}}


def distilled(
    setting: Setting,
    objective: Spec[Any],
    optimizer: Optimizer,
    *,
    label: str,
    student: Spec[Any],
    batch_size: int,
    epochs: float = 0.0,
    cut: bool = False,
    live: Live | None = None,
    following: Stage | None = None,
) -> Stage:
    """Plan a stage on the unlabelled sentences, column ``text``; the arguments are those of `stage_of`.

    A live teacher takes the place of the stored vectors. The stage continues to train the student and the
    objective of the one that it is ``following``.
    """
    return stage_of(
        setting,
        label=label,
        student=student,
        objective=objective,
        examples=setting[Sentences].examples,
        stores={} if live else {"text": setting[Sentences].store},
        epochs=epochs,
        batch_size=batch_size,
        cut=cut,
        optimizer=optimizer,
        live=live,
        start_from=following,
        keeps_objective=following is not None,
    )


def finetuned(
    setting: Setting,
    before: Stage,
    values: Finetuned,
    *,
    learnable_scale: bool = False,
) -> Stage:
    """Plan the fine-tuning of a stage by supervised InfoNCE, DistilCSE eq. 7.

    If the setting has no labelled text, or no budget for it, the stage itself is returned. The batch is cut
    to the budget. With ``learnable_scale`` 1/τ is trained too.
    """
    if setting.get(Pairs) is None or setting.finetune_budget == 0:
        return before
    nce = spec(
        SupervisedInfoNCE,
        temperature=values.finetune_temperature,
        share_negatives=values.finetune_share_negatives,
        learnable_scale=learnable_scale,
    )
    return supervised(
        setting,
        spec(SupervisedBottleneck, nce=nce, beta=0.0),
        optimizer_of(values, values.finetune_learning_rate),
        student=before.student,
        batch_size=values.finetune_batch_size,
        before=before,
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
    epochs: float = 0.0,
    finetunes: bool = True,
    with_teacher: bool = False,
) -> Stage:
    """Plan a stage on the labelled text: columns ``query``, ``passage`` and, if present, ``negatives``.

    The arguments are those of `stage_of`. The global batch is cut to the budget, which is that of the
    fine-tuning stage, or of the distillation. The stage continues the student of the one ``before``. With
    ``with_teacher`` it also reads the teacher's vectors of the labelled text.
    """
    return stage_of(
        setting,
        label=label,
        student=student,
        objective=objective,
        examples=setting[Pairs].examples,
        stores=setting[Pairs].stores if with_teacher else {},
        epochs=epochs,
        batch_size=batch_size,
        cut=True,
        optimizer=optimizer,
        start_from=before,
        finetunes=finetunes,
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
