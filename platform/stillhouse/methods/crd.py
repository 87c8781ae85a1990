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
from stillhouse.losses.memory_bank import MemoryBank
from stillhouse.methods.stages import optimizer_of, student_of
from stillhouse.methods.two_stages import (
    FINETUNING_SOURCES,
    Finetuned,
    check_bank,
    distilled,
    finetuned,
)
from stillhouse.objectives.contrasts import RepresentationContrast
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

PAPER = "Tian et al., Contrastive Representation Distillation, ICLR 2020, arXiv:1910.10699"
PRUNABLE_FROM = "crd"
needs = (Sentences, Pairs.optional)


@dataclass(frozen=True)
class HyperParameters(Finetuned):
    """Hyper-parameters that may be searched.

    Attributes:
        learning_rate: Peak learning rate.
        batch_size: Global batch size.
        temperature: τ of the critic.
        dim: Dimension of the space in which the critic compares.
        estimated: Whether the critic's constant Z is estimated from the first batch; otherwise Z = 1.
        bank_size: Number of teacher vectors kept as further negatives; 0 disables the bank.
    """

    learning_rate: float = 1e-4
    batch_size: int = 256
    temperature: float = 0.07
    dim: int = 128
    estimated: bool = False
    bank_size: int = 16384

    def __post_init__(self) -> None:
        """Check the size of the bank."""
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
