"""DistilCSE: contrastive knowledge distillation (CKD) of sentence embeddings, then contrastive fine-tuning.

Gao et al., DistilCSE: Effective Knowledge Distillation For Contrastive Sentence Embeddings, arXiv:2112.05638.

    ckd        L = InfoNCE(M s, t; bank)     eq. 4 with the memory bank of eq. 5 and the projection of eq. 6
    finetune   L = InfoNCE_sup(s, s⁺, s⁻)    eq. 7, with the hard negatives of the whole batch

With ``bank_size = 0`` the negatives are the other teacher vectors of the batch alone: IBKD's ablation without
HSIC (Table 4).

Deviations. There is one bank for all ranks, fed by the gathered batch (the authors keep one per rank), it
holds a row once, and the anchor's own text in it is not a negative: a bank as large as the corpus holds every
anchor's positive. Vectors of teacher and student are pooled as the teacher pools, while the authors take
[CLS] after the pooler on both sides. The teacher is in evaluation mode; the authors' code leaves its dropout
on, for which the paper gives no reason, and a store holds one vector per text. M is dropped after the
distillation, as in their code, unless ``keep_projection`` makes it the student's last layer.
"""

from dataclasses import dataclass, replace

from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.losses.contrastive import InfoNCE
from stillhouse.losses.memory import MemoryBank
from stillhouse.objectives.contrasts import ContrastiveDistillation
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Stage
from stillhouse.recipes.stages import optimizer_of, student_of
from stillhouse.recipes.two_stages import check_bank, distilled, finetuned

PAPER = (
    "Gao et al., DistilCSE: Effective Knowledge Distillation For Contrastive Sentence Embeddings, "
    "arXiv:2112.05638"
)
PRUNABLE_FROM = "ckd"
needs = (Sentences, Pairs.optional)


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched; defaults are those of §5.1 for the small students.

    Attributes:
        learning_rate: Peak learning rate.
        batch_size: Global batch size.
        temperature: τ of eq. 4.
        learnable_scale: Train 1/τ too.
        bank_size: Number of teacher vectors kept as further negatives; 0 disables the bank.
        keep_projection: Keep M (eq. 6) as the student's last layer instead of dropping it after the
            distillation.
        finetune_learning_rate: Peak learning rate of the fine-tuning stage.
        finetune_batch_size: Global batch size of the fine-tuning stage.
        finetune_temperature: τ of eq. 7.
        layers: Layers of the base model that the student keeps; empty uses the setting's student.
        optimizer: ``adam`` or ``adamw``.
        decay: Shape of the learning rate after its warm-up: ``linear``, ``cosine`` or ``constant``.
        warmup: Fraction of the steps with a rising learning rate.
    """

    learning_rate: float = 3e-4
    batch_size: int = 512
    temperature: float = 0.05
    learnable_scale: bool = False
    bank_size: int = 65536
    keep_projection: bool = False
    finetune_learning_rate: float = 5e-5
    finetune_batch_size: int = 128
    finetune_temperature: float = 0.05
    layers: tuple[int, ...] = ()
    optimizer: str = "adamw"
    decay: str = "linear"
    warmup: float = 0.1

    def __post_init__(self) -> None:
        """Check the size of the bank."""
        object.__setattr__(self, "layers", tuple(self.layers))
        check_bank(bank_size=self.bank_size, batch_size=self.batch_size)


PRESETS = {
    "paper": HyperParameters(),
    "repo": replace(HyperParameters(), temperature=0.37, learnable_scale=True, decay="cosine"),
}


SOURCES = {
    "learning_rate": ("section 5.1, 52 M and 14 M students", "as in the text"),
    "batch_size": ("section 5.1", "code: 512 per GPU"),
    "temperature": ("not printed; ours", "code: a learnable scale from e¹"),
    "learnable_scale": ("not printed; ours", "code"),
    "bank_size": ("section 5.1", "code: one queue per rank"),
    "keep_projection": ("not printed; ours", "code: dropped when saved"),
    "finetune_learning_rate": ("section 5.1", "as in the text"),
    "finetune_batch_size": ("section 5.1", "as in the text"),
    "finetune_temperature": ("not printed; ours (SimCSE's)", "code: a learnable scale from 20"),
    "optimizer": ("not printed; ours", "code: betas (.9, .98), not adopted here"),
    "decay": ("not printed; ours", "code"),
    "warmup": ("not printed; ours", "code: 10 % of one epoch"),
}
"""Source of each preset's value: in the text, and in the authors' code."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the distillation and, if there is labelled text, the fine-tuning."""
    nce = spec(
        InfoNCE,
        similarity="cosine",
        temperature=hp.temperature,
        learnable_scale=hp.learnable_scale,
        projection=False if hp.keep_projection else None,
    )
    # The bank is multiplied in the precision of the student's own products.
    bank = spec(MemoryBank, size=hp.bank_size, precision=setting.autocast) if hp.bank_size else None
    distil = distilled(
        setting,
        spec(ContrastiveDistillation, nce=nce, bank=bank),
        optimizer_of(hp, hp.learning_rate),
        label="ckd",
        student=student_of(setting, hp.layers, keep_projection=hp.keep_projection),
        batch_size=hp.batch_size,
    )
    return finetuned(
        setting,
        distil,
        optimizer_of(hp, hp.finetune_learning_rate),
        batch_size=hp.finetune_batch_size,
        temperature=hp.finetune_temperature,
        share_negatives=True,
    )
