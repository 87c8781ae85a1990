"""DistilCSE: contrastive knowledge distillation (CKD) of sentence embeddings, then contrastive fine-tuning.

Gao et al., DistilCSE: Effective Knowledge Distillation For Contrastive Sentence Embeddings, arXiv:2112.05638.

    ckd        L = InfoNCE(M s, t; bank)     eq. 4 with the memory bank of eq. 5 and the projection of eq. 6
    finetune   L = InfoNCE_sup(s, s⁺, s⁻)    eq. 7, with the hard negatives of the whole batch

``bank_size = 0`` uses the other teacher vectors of the batch alone: IBKD's ablation without HSIC (Table 4).

Deviations. The bank is one for all ranks, fed by the gathered batch (the authors keep one a rank), it holds a
row once, and the anchor's own text in it is no negative: a bank as large as the corpus holds every anchor's
positive. Vectors of teacher and student are pooled as the teacher pools, where the authors take [CLS] after
the pooler on both sides. The teacher is in evaluation mode; the authors' code leaves its dropout on, for
which the paper gives no reason, and a store holds one vector a text. M is dropped after the distillation as
in their code, unless ``keep_projection`` makes it the student's last layer.
"""

from dataclasses import dataclass, replace

from stillhouse.core.errors import require
from stillhouse.core.identity import spec
from stillhouse.objectives.contrasts import ContrastiveDistillation
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Optimizer, Stage
from stillhouse.recipes.two_stages import distilled, finetuned, student_of

PAPER = (
    "Gao et al., DistilCSE: Effective Knowledge Distillation For Contrastive Sentence Embeddings, "
    "arXiv:2112.05638"
)
PRUNABLE_FROM = "ckd"


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched; defaults are §5.1 of the paper for its small students.

    Attributes:
        learning_rate: At its highest.
        batch_size: Global batch.
        temperature: τ of eq. 4.
        learnable_scale: Train 1/τ too.
        bank_size: Teacher vectors kept as further negatives; 0 is no bank.
        keep_projection: M (eq. 6) stays the student's last layer; else it is dropped after the distillation.
        finetune_learning_rate: Of the fine-tuning stage.
        finetune_batch_size: Global batch of the fine-tuning stage.
        finetune_temperature: τ of eq. 7.
        layers: The teacher's layers that the student keeps; empty takes the setting's student.
        optimizer: ``adam`` or ``adamw``.
        decay: ``linear``, ``cosine`` or ``constant``, of the learning rate after its warm-up.
        warmup: Share of the steps with a growing learning rate.
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
        """Refuse a bank smaller than a batch."""
        object.__setattr__(self, "layers", tuple(self.layers))
        require(
            self.bank_size == 0 or self.bank_size >= self.batch_size,
            "bank_size >= batch_size",
            bank_size=self.bank_size,
            batch_size=self.batch_size,
            remedy="Raise the bank, lower the batch, or set bank_size=0.",
        )


PRESETS = {
    "paper": HyperParameters(),
    "repo": replace(HyperParameters(), temperature=0.37, learnable_scale=True, decay="cosine"),
}


SOURCES = {
    "learning_rate": ("section 5.1, 52 M and 14 M students", "as the text"),
    "batch_size": ("section 5.1", "code: 512 a GPU"),
    "temperature": ("not printed; ours", "code: a learnable scale from e¹"),
    "learnable_scale": ("not printed; ours", "code"),
    "bank_size": ("section 5.1", "code: one queue a rank"),
    "keep_projection": ("not printed; ours", "code: dropped when saved"),
    "finetune_learning_rate": ("section 5.1", "as the text"),
    "finetune_batch_size": ("section 5.1", "as the text"),
    "finetune_temperature": ("not printed; ours (SimCSE's)", "code: a learnable scale from 20"),
    "optimizer": ("not printed; ours", "code: betas (.9, .98), which are not taken over"),
    "decay": ("not printed; ours", "code"),
    "warmup": ("not printed; ours", "code: 10 % of one epoch"),
}
"""Where a preset's value stands: in the text, and in the authors' code."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """The fine-tuning after the distillation; the distillation alone where nothing is labelled."""
    # A bank is multiplied in the precision of the student's own products.
    bank = {"bank_size": hp.bank_size, "bank_precision": setting.autocast} if hp.bank_size else {}
    kept = {"projection": setting.teacher_dim} if hp.keep_projection else {}
    distil = distilled(
        setting,
        spec(
            ContrastiveDistillation,
            temperature=hp.temperature,
            learnable_scale=hp.learnable_scale,
            **bank,
            projection=False if hp.keep_projection else None,
        ),
        Optimizer(hp.learning_rate, name=hp.optimizer, warmup=hp.warmup, decay=hp.decay),
        label="ckd",
        student=student_of(setting, hp.layers, **kept),
        batch_size=hp.batch_size,
    )
    return finetuned(
        setting,
        distil,
        Optimizer(hp.finetune_learning_rate, name=hp.optimizer, warmup=hp.warmup, decay=hp.decay),
        batch_size=hp.finetune_batch_size,
        temperature=hp.finetune_temperature,
        share_negatives=True,
    )
