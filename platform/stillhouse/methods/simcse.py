"""SimCSE-style supervised training without a teacher: what labelled text alone gives the small model.

Gao et al., SimCSE: Simple Contrastive Learning of Sentence Embeddings, EMNLP 2021, arXiv:2104.08821; the
baseline of IBKD's tables, and DistilCSE's starting point (§5.3: export its student, and give that folder as
``--student``).

    simcse     L = InfoNCE_sup(s, s⁺, s⁻)    eq. 5 there: an anchor against all positives and hard negatives

Deviations: vectors are pooled as the setting's student pools, and SimCSE's MLP over [CLS] is left out: an
export without it is what the other methods' students are compared with.
"""

from dataclasses import dataclass, replace

from stillhouse.core.identity import spec
from stillhouse.objectives.bottleneck import SupervisedBottleneck
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Optimizer, Stage
from stillhouse.recipes.two_stages import student_of, supervised

PAPER = "Gao et al., SimCSE: Simple Contrastive Learning of Sentence Embeddings, EMNLP 2021, arXiv:2104.08821"
PRUNABLE_FROM = "simcse"
NEEDS = ("query", "passage")


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched.

    Attributes:
        learning_rate: At its highest.
        batch_size: Global batch.
        temperature: τ.
        layers: The base model's layers that the student keeps; empty takes the setting's student.
        optimizer: ``adam`` or ``adamw``.
        warmup: Share of the steps with a growing learning rate.
    """

    learning_rate: float = 5e-5
    batch_size: int = 512
    temperature: float = 0.05
    layers: tuple[int, ...] = ()
    optimizer: str = "adamw"
    warmup: float = 0.1

    def __post_init__(self) -> None:
        """Layers read from a file are a list."""
        object.__setattr__(self, "layers", tuple(self.layers))


PRESETS = {"paper": HyperParameters(), "repo": replace(HyperParameters(), warmup=0.0)}


SOURCES = {
    "learning_rate": ("appendix A there", "code: 5e-5"),
    "batch_size": ("appendix A there", "code: 512"),
    "temperature": ("section 3 there", "code: 0.05"),
    "warmup": ("not printed; ours", "code: none"),
}
"""Where a preset's value stands: in the text, and in the authors' code."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """One stage, on the labelled text."""
    return supervised(
        setting,
        spec(SupervisedBottleneck, temperature=hp.temperature, beta=0.0, share_negatives=True),
        Optimizer(hp.learning_rate, name=hp.optimizer, warmup=hp.warmup),
        student=student_of(setting, hp.layers),
        batch_size=hp.batch_size,
        label="simcse",
    )
