"""SimCSE-style supervised training without a teacher: what labelled text alone gives the small model.

Gao et al., SimCSE: Simple Contrastive Learning of Sentence Embeddings, EMNLP 2021, arXiv:2104.08821; the
baseline of IBKD's tables, and the starting point of DistilCSE (§5.3: export its student and pass that folder
as ``--student``).

    simcse     L = InfoNCE_sup(s, s⁺, s⁻)    eq. 5: an anchor against all positives and hard negatives

Deviations: vectors are pooled as the setting's student pools them, and SimCSE's MLP over [CLS] is left out:
the students of the other methods are compared with an export that has no such layer.
"""

from dataclasses import dataclass, replace

from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.losses.contrastive import SupervisedInfoNCE
from stillhouse.objectives.information_bottleneck import SupervisedBottleneck
from stillhouse.recipes.stages import optimizer_of, student_of
from stillhouse.recipes.two_stages import supervised
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

PAPER = "Gao et al., SimCSE: Simple Contrastive Learning of Sentence Embeddings, EMNLP 2021, arXiv:2104.08821"
PRUNABLE_FROM = "simcse"
needs = (Pairs,)


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched.

    Attributes:
        learning_rate: Peak learning rate.
        batch_size: Global batch size.
        temperature: τ.
        layers: Layers of the base model that the student keeps; empty uses the setting's student.
        optimizer: ``adam`` or ``adamw``, which needs a weight decay.
        weight_decay: Weight decay; decoupled for ``adamw``, an L2 term for ``adam``.
        warmup: Fraction of the steps with a rising learning rate.
        decay: Shape of the learning rate after its warm-up: ``linear``, ``cosine`` or ``constant``.
        clip_norm: Maximum gradient norm; 0 disables clipping.
    """

    learning_rate: float = 5e-5
    batch_size: int = 512
    temperature: float = 0.05
    layers: tuple[int, ...] = ()
    optimizer: str = "adam"
    weight_decay: float = 0.0
    warmup: float = 0.1
    decay: str = "linear"
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        """Make the layers hashable: read from a file, they are a list."""
        object.__setattr__(self, "layers", tuple(self.layers))


PRESETS = {"paper": HyperParameters(), "repo": replace(HyperParameters(), warmup=0.0)}


SOURCES = {
    "learning_rate": ("appendix A", "code: 5e-5"),
    "batch_size": ("appendix A", "code: 512"),
    "temperature": ("section 3", "code: 0.05"),
    "optimizer": ("not printed; as in the code", "code: AdamW without decay, which is Adam"),
    "weight_decay": ("not printed; as in the code", "code: AdamW's default in its trainer, 0"),
    "warmup": ("not printed; ours", "code: none"),
    "decay": ("not printed; as in the code", "code"),
    "clip_norm": ("not printed; as in the code", "code: the default of its trainer"),
}
"""Source of each preset's value: in the text, and in the authors' code."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan one stage on the labelled text."""
    nce = spec(SupervisedInfoNCE, temperature=hp.temperature, share_negatives=True)
    return supervised(
        setting,
        spec(SupervisedBottleneck, nce=nce, beta=0.0),
        optimizer_of(hp, hp.learning_rate),
        student=student_of(setting, hp.layers),
        batch_size=hp.batch_size,
        label="simcse",
    )
