"""CRD: contrastive representation distillation, a baseline of IBKD's tables.

Tian et al., Contrastive Representation Distillation, ICLR 2020, arXiv:1910.10699.

    distil     L = −E_pos[log h(t, s)] − N · E_neg[log(1 − h(t, s))]      §3.2
    finetune   L = InfoNCE_sup(s, s⁺, s⁻)      DistilCSE eq. 7, if labelled text is given

Deviations: the N negatives come from the batch and from a bank of earlier teacher vectors with row ids (the
published code keeps a buffer over the whole data set, and adds the loss with the sides exchanged). ``repo``
estimates the constant of the critic from the first batch, as that code does; the equation has none. The
paper distils image classifiers: what it does not say of sentences is IBKD's (Table 1, STS, and section
4.3), in whose tables CRD is a baseline.
"""

from dataclasses import dataclass, replace

from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.losses.crd import CRD
from stillhouse.losses.memory import MemoryBank
from stillhouse.objectives.contrasts import RepresentationContrast
from stillhouse.recipes.stages import optimizer_of, student_of
from stillhouse.recipes.two_stages import (
    FINETUNING,
    FINETUNING_SOURCES,
    check_bank,
    distilled,
    finetuned,
)
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

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
        optimizer: ``adam`` or ``adamw``, which needs a weight decay.
        weight_decay: Weight decay; decoupled for ``adamw``, an L2 term for ``adam``.
        warmup: Fraction of the steps with a rising learning rate.
        decay: Shape of the learning rate after its warm-up: ``linear``, ``cosine`` or ``constant``.
        clip_norm: Maximum gradient norm; 0 disables clipping.
    """

    learning_rate: float = 1e-4
    batch_size: int = 256
    temperature: float = 0.07
    dim: int = 128
    estimated: bool = False
    bank_size: int = 16384
    finetune_learning_rate: float = FINETUNING.learning_rate
    finetune_batch_size: int = FINETUNING.batch_size
    finetune_temperature: float = FINETUNING.temperature
    layers: tuple[int, ...] = ()
    optimizer: str = "adam"
    weight_decay: float = 0.0
    warmup: float = 0.1
    decay: str = "linear"
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        """Check the size of the bank."""
        object.__setattr__(self, "layers", tuple(self.layers))
        check_bank(bank_size=self.bank_size, batch_size=self.batch_size)


PRESETS = {"paper": HyperParameters(), "repo": replace(HyperParameters(), estimated=True)}
SOURCES = {
    "learning_rate": ("IBKD Table 1, STS", "as in the text"),
    "batch_size": ("IBKD Table 1, STS", "as in the text"),
    "temperature": ("the text", "as in the text"),
    "dim": ("the text", "as in the text"),
    "estimated": ("the equation has no constant", "code: Z of the first batch"),
    "bank_size": ("the text: N negatives", "as in the text"),
    **FINETUNING_SOURCES,
    "optimizer": ("IBKD section 4.3: Adam", "as in the text"),
    "weight_decay": ("IBKD section 4.3: Adam", "as in the text"),
    "warmup": ("not printed; ours", "as in the text"),
    "decay": ("not printed; ours", "as in the text"),
    "clip_norm": ("not printed; ours", "as in the text"),
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
        optimizer_of(hp, hp.learning_rate),
        label="crd",
        student=student_of(setting, hp.layers),
        batch_size=hp.batch_size,
    )
    return finetuned(setting, distil, hp)
