"""MSE: the student's vector is regressed on the teacher's; the baseline of every paper here.

    distil     L = ‖M s − t‖² / E      (DistilCSE eq. 2 and 3; no M if the dimensions agree)
    finetune   L = InfoNCE_sup(s, s⁺, s⁻)      DistilCSE eq. 7, if labelled text is given

The presets are those of DistilCSE's tables, by the size of the student: ``paper`` (14 M parameters),
``paper_52m`` and ``paper_110m``; ``repo`` is what its code runs. M is dropped after the distillation, unless
``keep_projection`` makes it the student's last layer. The budget counts sentences. To compare with a method
of two stages, give both the same amount of work.
"""

from dataclasses import dataclass, replace

from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.losses.regression import MSE
from stillhouse.methods.stages import both_normalized, learnt_map, optimizer_of, student_of
from stillhouse.methods.two_stages import (
    FINETUNING_SOURCES,
    LEARNING_RATE_SOURCE,
    Finetuned,
    by_size,
    distilled,
    finetuned,
)
from stillhouse.objectives.matching import Regression
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

PAPER = "a regression on the teacher's vectors, the baseline of the papers (no paper of its own)"
PRUNABLE_FROM = "mse"
needs = (Sentences, Pairs.optional)
BASELINE = None
"""It is a baseline itself."""


@dataclass(frozen=True)
class HyperParameters(Finetuned):
    """Hyper-parameters that may be searched.

    Attributes:
        learning_rate: Peak learning rate.
        batch_size: Global batch size.
        bias: Whether M, which exists only if the dimensions differ, has a bias; a kept M has none.
        keep_projection: Keep M as the student's last layer instead of dropping it after the distillation, so
            that the student's vectors are in the teacher's space; it is then there also if the dimensions
            agree.
        finetune_learnable_scale: Train 1/τ in the fine-tuning stage too.
    """

    learning_rate: float = 3e-4
    batch_size: int = 512
    bias: bool = False
    keep_projection: bool = False
    finetune_learnable_scale: bool = False


PRESETS = {
    **by_size(HyperParameters()),
    "repo": replace(
        HyperParameters(),
        learning_rate=2e-4,
        bias=True,
        finetune_learnable_scale=True,
        warmup=0.005,
        decay="cosine",
        clip_norm=0.0,
    ),
}


SOURCES = {
    "learning_rate": (LEARNING_RATE_SOURCE, "DistilCSE's code: 2e-4, 12 layers"),
    "batch_size": ("DistilCSE section 4.2", "code: 512 per GPU"),
    **FINETUNING_SOURCES,
    "bias": ("eq. 3 has none", "code"),
    "keep_projection": ("not printed; ours", "DistilCSE's code: dropped when saved"),
    "finetune_learnable_scale": ("not printed; ours", "code"),
    "optimizer": ("DistilCSE section 4.2: Adam", "code: AdamW without decay, which is Adam"),
    "weight_decay": ("DistilCSE section 4.2: Adam", "code: AdamW's default there, 0"),
    "warmup": ("not printed; ours", "code: 10 % of the first of 20 epochs"),
    "decay": ("not printed; ours", "code"),
    "clip_norm": ("not printed; ours", "code: none in stage 1; 1 in stage 2, not adopted"),
}
"""Source of each preset's value: in the text, and in the authors' code."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the distillation and, if there is labelled text, the fine-tuning."""
    student = student_of(setting, hp.layers, keep_projection=hp.keep_projection)
    mse = spec(MSE, **learnt_map(keep_projection=hp.keep_projection, bias=hp.bias))
    distil = distilled(
        setting,
        spec(Regression, mse=mse, normalize=both_normalized(setting, student)),
        optimizer_of(hp, hp.learning_rate),
        label="mse",
        student=student,
        batch_size=hp.batch_size,
    )
    return finetuned(setting, distil, hp, learnable_scale=hp.finetune_learnable_scale)
