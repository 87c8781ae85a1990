"""CRD: contrastive representation distillation, a baseline of IBKD's tables.

Tian et al., Contrastive Representation Distillation, ICLR 2020, arXiv:1910.10699.

    distil     L = −E_pos[log h(t, s)] − N · E_neg[log(1 − h(t, s))]      §3.2 there
    finetune   supervised InfoNCE, where labelled text is given

Deviations: N negatives come from the batch and a bank of earlier teacher vectors with row ids (the published
code keeps a buffer over the whole data set, and adds the loss with the sides exchanged). ``repo`` estimates
the critic's constant from the first batch, as that code does; the equation has none.
"""

from dataclasses import dataclass, replace

from stillhouse.core.errors import require
from stillhouse.core.identity import spec
from stillhouse.objectives.contrasts import RepresentationContrast
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Optimizer, Stage
from stillhouse.recipes.two_stages import distilled, finetuned, student_of

PAPER = "Tian et al., Contrastive Representation Distillation, ICLR 2020, arXiv:1910.10699"
PRUNABLE_FROM = "crd"


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched.

    Attributes:
        learning_rate: At its highest.
        batch_size: Global batch.
        temperature: τ of the critic.
        dim: Of the space in which the critic compares.
        estimated: The critic's constant Z is estimated from the first batch; else it is 1.
        bank_size: Teacher vectors kept as further negatives; 0 is no bank.
        finetune_learning_rate: Of the fine-tuning stage.
        finetune_batch_size: Global batch of the fine-tuning stage.
        finetune_temperature: τ of the fine-tuning stage.
        layers: The teacher's layers that the student keeps; empty takes the setting's student.
        optimizer: ``adam`` or ``adamw``.
        warmup: Share of the steps with a growing learning rate.
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
        """Refuse a bank smaller than a batch."""
        object.__setattr__(self, "layers", tuple(self.layers))
        require(
            self.bank_size == 0 or self.bank_size >= self.batch_size,
            "bank_size >= batch_size",
            bank_size=self.bank_size,
            batch_size=self.batch_size,
            remedy="Raise the bank, lower the batch, or set bank_size=0.",
        )


PRESETS = {"paper": HyperParameters(), "repo": replace(HyperParameters(), estimated=True)}
SOURCES = {
    "temperature": ("the text", "as the text"),
    "dim": ("the text", "as the text"),
    "estimated": ("the equation has no constant", "code: Z of the first batch"),
    "bank_size": ("the text: N negatives", "as the text"),
}
"""Where a preset's value stands: in the text, and in the authors' code."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """The fine-tuning after the distillation; the distillation alone where nothing is labelled."""
    distil = distilled(
        setting,
        spec(
            RepresentationContrast,
            items=setting.sentence_rows,
            temperature=hp.temperature,
            dim=hp.dim,
            estimated=hp.estimated,
            bank_size=hp.bank_size,
        ),
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
