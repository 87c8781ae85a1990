"""CRD: contrastive representation distillation, a baseline of IBKD's tables.

Tian et al., Contrastive Representation Distillation, ICLR 2020, arXiv:1910.10699.

    distil     L = −E_pos[log h(t, s)] − N · E_neg[log(1 − h(t, s))]      §3.2
    finetune   supervised InfoNCE, if labelled text is given

Deviations: the N negatives come from the batch and from a bank of earlier teacher vectors with row ids (the
published code keeps a buffer over the whole data set, and adds the loss with the sides exchanged). ``repo``
estimates the constant of the critic from the first batch, as that code does; the equation has none.
"""

from dataclasses import dataclass, replace

from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.losses.crd import CRD
from stillhouse.losses.memory import MemoryBank
from stillhouse.objectives.contrasts import RepresentationContrast
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Optimizer, Stage
from stillhouse.recipes.stages import student_of
from stillhouse.recipes.two_stages import check_bank, distilled, finetuned

PAPER = "Tian et al., Contrastive Representation Distillation, ICLR 2020, arXiv:1910.10699"
PRUNABLE_FROM = "crd"
needs = (Sentences, Pairs.optional)


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched.

    Attributes:
        learning_rate: Peak learning rate.
        batch_size: Global batch size.
        temperature: τ of the critic.
        dim: Dimension of the space in which the critic compares.
        estimated: Whether the critic's constant Z is estimated from the first batch; otherwise Z = 1.
        bank_size: Number of teacher vectors kept as further negatives; 0 disables the bank.
        finetune_learning_rate: Peak learning rate of the fine-tuning stage.
        finetune_batch_size: Global batch size of the fine-tuning stage.
        finetune_temperature: τ of the fine-tuning stage.
        layers: Layers of the base model that the student keeps; empty uses the setting's student.
        optimizer: ``adam`` or ``adamw``.
        warmup: Fraction of the steps with a rising learning rate.
    """

    learning_rate: float = 1e-4
    batch_size: int = 128
    temperature: float = 0.07
    dim: int = 128
    estimated: bool = False
    bank_size: int = 16384
    finetune_learning_rate: float = 3e-5
    finetune_batch_size: int = 128
    finetune_temperature: float = 0.05
    layers: tuple[int, ...] = ()
    optimizer: str = "adamw"
    warmup: float = 0.1

    def __post_init__(self) -> None:
        """Check the size of the bank."""
        object.__setattr__(self, "layers", tuple(self.layers))
        check_bank(bank_size=self.bank_size, batch_size=self.batch_size)


PRESETS = {"paper": HyperParameters(), "repo": replace(HyperParameters(), estimated=True)}
SOURCES = {
    "temperature": ("the text", "as in the text"),
    "dim": ("the text", "as in the text"),
    "estimated": ("the equation has no constant", "code: Z of the first batch"),
    "bank_size": ("the text: N negatives", "as in the text"),
}
"""Source of each preset's value: in the text, and in the authors' code."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the distillation and, if there is labelled text, the fine-tuning."""
    crd = spec(
        CRD,
        items=setting[Sentences].rows,
        temperature=hp.temperature,
        dim=hp.dim,
        estimated=hp.estimated,
    )
    bank = spec(MemoryBank, size=hp.bank_size) if hp.bank_size else None
    distil = distilled(
        setting,
        spec(RepresentationContrast, crd=crd, bank=bank),
        Optimizer(hp.learning_rate, name=hp.optimizer, warmup=hp.warmup),
        label="crd",
        student=student_of(setting, hp.layers),
        batch_size=hp.batch_size,
    )
    return finetuned(
        setting,
        distil,
        Optimizer(hp.finetune_learning_rate, name=hp.optimizer, warmup=hp.warmup),
        batch_size=hp.finetune_batch_size,
        temperature=hp.finetune_temperature,
    )
