"""HPD: homomorphic projective distillation, a baseline of IBKD's tables.

Zhao et al., Compressing Sentence Representation for Semantic Retrieval via Homomorphic Projective
Distillation, Findings of ACL 2022, arXiv:2203.07687.

    distil     L = ‖tanh(W s + b) − P t‖² / d'     P: PCA of the teacher's vectors to d' dimensions
    finetune   supervised InfoNCE, if labelled text is given

The dense layer with tanh stays in the student. P is fitted to the first 40 000 vectors of the store before
the first step: centred (``paper``: the text calls it PCA), or not (``repo``: the published code).
"""

from dataclasses import dataclass, replace

from stillhouse.core.errors import require
from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.objectives.matching import ProjectedRegression
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Optimizer, Stage
from stillhouse.recipes.stages import student_of
from stillhouse.recipes.two_stages import distilled, finetuned

PAPER = (
    "Zhao et al., Compressing Sentence Representation for Semantic Retrieval via Homomorphic Projective "
    "Distillation, Findings of ACL 2022, arXiv:2203.07687"
)
PRUNABLE_FROM = "hpd"
needs = (Sentences, Pairs.optional)


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched.

    Attributes:
        learning_rate: Peak learning rate.
        batch_size: Global batch size.
        dim: Dimension d' of the student's vectors.
        centred: Subtract the mean before fitting P.
        finetune_learning_rate: Peak learning rate of the fine-tuning stage.
        finetune_batch_size: Global batch size of the fine-tuning stage.
        finetune_temperature: τ of the fine-tuning stage.
        layers: Layers of the base model that the student keeps; empty uses the setting's student.
        optimizer: ``adam`` or ``adamw``.
        warmup: Fraction of the steps with a rising learning rate.
    """

    learning_rate: float = 1e-4
    batch_size: int = 256
    dim: int = 128
    centred: bool = True
    finetune_learning_rate: float = 3e-5
    finetune_batch_size: int = 128
    finetune_temperature: float = 0.05
    layers: tuple[int, ...] = ()
    optimizer: str = "adamw"
    warmup: float = 0.1

    def __post_init__(self) -> None:
        """Check the dimension."""
        object.__setattr__(self, "layers", tuple(self.layers))
        require(self.dim >= 1, "dim >= 1", dim=self.dim)


PRESETS = {"paper": HyperParameters(), "repo": replace(HyperParameters(), centred=False)}
SOURCES = {
    "learning_rate": ("not printed; as in the code", "code"),
    "batch_size": ("not printed; as in the code", "code"),
    "dim": ("the text", "code"),
    "centred": ("PCA, as in the text", "code: no centring"),
    "optimizer": ("not printed; as in the code", "code"),
    "warmup": ("not printed; ours", "code: 1000 steps; here a fraction"),
}
"""Source of each preset's value: in the text, and in the authors' code."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the distillation and, if there is labelled text, the fine-tuning."""
    student = student_of(setting, hp.layers, projection=hp.dim, projection_activation="tanh", normalize=False)
    distil = distilled(
        setting,
        spec(ProjectedRegression, centred=hp.centred),
        Optimizer(hp.learning_rate, name=hp.optimizer, warmup=hp.warmup),
        label="hpd",
        student=student,
        batch_size=hp.batch_size,
    )
    return finetuned(
        setting,
        distil,
        Optimizer(hp.finetune_learning_rate, name=hp.optimizer, warmup=hp.warmup),
        batch_size=hp.finetune_batch_size,
        temperature=hp.finetune_temperature,
    )
