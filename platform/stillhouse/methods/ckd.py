"""DistilCSE: contrastive knowledge distillation (CKD) of sentence embeddings, then contrastive fine-tuning.

Gao et al., DistilCSE: Effective Knowledge Distillation For Contrastive Sentence Embeddings, arXiv:2112.05638.

    ckd        L = InfoNCE(M s, t; bank)     eq. 4 with the memory bank of eq. 5 and the projection of eq. 6
    finetune   L = InfoNCE_sup(s, s⁺, s⁻)    eq. 7, with the hard negatives of the whole batch

With ``bank_size = 0`` the negatives are the other teacher vectors of the batch alone: IBKD's ablation
without HSIC (Table 4). The settings are those of section 4.2, by the size of the student: ``paper`` (14 M
parameters), ``paper_52m`` and ``paper_110m``; ``repo`` is what the authors' scripts run, for 12 layers.

Deviations. There is one bank for all ranks, fed by the gathered batch (the authors keep one per rank), it
holds a row once, and the anchor's own text in it is not a negative: a bank as large as the corpus holds
every anchor's positive. The student pools as the teacher does; the authors take [CLS] after the pooler on
both sides, which is ``teacher.pooling=pooler`` here. The teacher is in evaluation mode; the authors' code
leaves its dropout on, for which the paper gives no reason, and a store holds one vector per text. M is
dropped after the distillation, as in their code, unless ``keep_projection`` makes it the student's last
layer. Their code warms up over a tenth of the first epoch of each stage (of 20 and of 5); ``repo`` has one
fraction for both.
"""

from dataclasses import dataclass, replace

from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.losses.contrastive import InfoNCE
from stillhouse.losses.memory_bank import MemoryBank
from stillhouse.methods.stages import learnt_map, optimizer_of, student_of
from stillhouse.methods.two_stages import (
    FINETUNING_SOURCES,
    LEARNING_RATE_SOURCE,
    Finetuned,
    by_size,
    check_bank,
    distilled,
    finetuned,
)
from stillhouse.objectives.contrasts import ContrastiveDistillation
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

PAPER = (
    "Gao et al., DistilCSE: Effective Knowledge Distillation For Contrastive Sentence Embeddings, "
    "arXiv:2112.05638"
)
PRUNABLE_FROM = "ckd"
needs = (Sentences, Pairs.optional)


@dataclass(frozen=True)
class HyperParameters(Finetuned):
    """Hyper-parameters; defaults are those of section 4.2 for students of 14 M parameters.

    Attributes:
        learning_rate: Peak learning rate.
        batch_size: Global batch size.
        temperature: τ of eq. 4.
        learnable_scale: Train 1/τ too.
        bank_size: Number of teacher vectors kept as further negatives; 0 disables the bank.
        bias: Whether M, which exists only if the dimensions differ, has a bias; a kept M has none.
        keep_projection: Keep M (eq. 6) as the student's last layer instead of dropping it after the
            distillation; it is then there also if the dimensions agree.
        finetune_learnable_scale: Train 1/τ of eq. 7 too.
    """

    learning_rate: float = 3e-4
    batch_size: int = 512
    temperature: float = 0.05
    learnable_scale: bool = False
    bank_size: int = 65536
    bias: bool = False
    keep_projection: bool = False
    finetune_learnable_scale: bool = False

    def __post_init__(self) -> None:
        """Check the size of the bank."""
        check_bank(bank_size=self.bank_size, batch_size=self.batch_size)


PRESETS = {
    **by_size(HyperParameters()),
    "repo": replace(
        HyperParameters(),
        learning_rate=2e-4,
        temperature=0.367879,
        learnable_scale=True,
        bias=True,
        finetune_learnable_scale=True,
        warmup=0.005,
        decay="cosine",
    ),
}


SOURCES = {
    "learning_rate": (LEARNING_RATE_SOURCE, "code: 2e-4, 12 layers"),
    "batch_size": ("section 4.2", "code: 512 per GPU"),
    "temperature": ("not printed; ours", "code: a learnable scale from e¹"),
    "learnable_scale": ("not printed; ours", "code"),
    "bank_size": ("section 4.2", "code: one queue per rank"),
    "bias": ("eq. 6 has none", "code"),
    "keep_projection": ("not printed; ours", "code: dropped when saved"),
    **FINETUNING_SOURCES,
    "finetune_learnable_scale": ("not printed; ours", "code"),
    "optimizer": (
        "section 4.2: Adam",
        "code: AdamW without decay, which is Adam; betas (.9, .98) not adopted",
    ),
    "weight_decay": ("section 4.2: Adam", "code: AdamW's default there, 0"),
    "warmup": ("not printed; ours", "code: 10 % of the first of 20 epochs"),
    "decay": ("not printed; ours", "code"),
    "clip_norm": ("not printed; ours", "code"),
}
"""Source of each preset's value: in the text, and in the authors' code."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the distillation and, if there is labelled text, the fine-tuning."""
    nce = spec(
        InfoNCE,
        similarity="cosine",
        temperature=hp.temperature,
        learnable_scale=hp.learnable_scale,
        **learnt_map(keep_projection=hp.keep_projection, bias=hp.bias),
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
    return finetuned(setting, distil, hp, learnable_scale=hp.finetune_learnable_scale)
