"""HPD: homomorphic projective distillation, a baseline of IBKD's tables.

Zhao et al., Compressing Sentence Representation for Semantic Retrieval via Homomorphic Projective
Distillation, Findings of ACL 2022, arXiv:2203.07687.

    distil     L = ‖tanh(W s + b) − P t‖² / d'     P: PCA of the teacher's vectors to d' dimensions
    finetune   L = InfoNCE_sup(s, s⁺, s⁻)      DistilCSE eq. 7, if labelled text is given

The dense layer with tanh stays in the student. P is fitted to the first 40 000 vectors of the store before
the first step, by PCA, which subtracts their mean. ``paper`` projects t minus the mean (the text calls it
PCA), ``repo`` projects t itself, as the published code does. IBKD's tables fine-tune HPD without printing
how; here as DistilCSE's.
"""

from dataclasses import dataclass, replace

from stillhouse.core.errors import require
from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.methods.stages import optimizer_of, student_of
from stillhouse.methods.two_stages import FINETUNING_SOURCES, Finetuned, distilled, finetuned
from stillhouse.objectives.matching import ProjectedRegression
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

PAPER = (
    "Zhao et al., Compressing Sentence Representation for Semantic Retrieval via Homomorphic Projective "
    "Distillation, Findings of ACL 2022, arXiv:2203.07687"
)
PRUNABLE_FROM = "hpd"
needs = (Sentences, Pairs.optional)


@dataclass(frozen=True)
class HyperParameters(Finetuned):
    """Hyper-parameters that may be searched.

    Attributes:
        learning_rate: Peak learning rate.
        batch_size: Global batch size.
        dim: Dimension d' of the student's vectors.
        centred: Subtract the mean of the teacher's vectors before they are projected. P is fitted around
            the mean in both cases.
    """

    learning_rate: float = 1e-4
    batch_size: int = 256
    dim: int = 128
    centred: bool = True
    optimizer: str = "adamw"
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        """Check the dimension."""
        require(self.dim >= 1, "dim >= 1", dim=self.dim)


PRESETS = {"paper": HyperParameters(), "repo": replace(HyperParameters(), centred=False)}
SOURCES = {
    "learning_rate": ("not printed; as in the code", "code"),
    "batch_size": ("not printed; as in the code", "code"),
    "dim": ("the text", "code"),
    "centred": ("PCA, as in the text", "code: components of a PCA, applied without its mean"),
    **FINETUNING_SOURCES,
    "optimizer": ("not printed; as in the code", "code"),
    "weight_decay": ("not printed; as in the code", "code: the default of its trainer"),
    "warmup": ("not printed; ours", "code: 1000 steps; here a fraction"),
    "decay": ("not printed; as in the code", "code"),
    "clip_norm": ("not printed; as in the code", "code: the default of its trainer"),
}
"""Source of each preset's value: in the text, and in the authors' code."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the distillation and, if there is labelled text, the fine-tuning."""
    student = student_of(setting, hp.layers, projection=hp.dim, projection_activation="tanh", normalize=False)
    distil = distilled(
        setting,
        spec(ProjectedRegression, centred=hp.centred),
        optimizer_of(hp, hp.learning_rate),
        label="hpd",
        student=student,
        batch_size=hp.batch_size,
    )
    return finetuned(setting, distil, hp)
