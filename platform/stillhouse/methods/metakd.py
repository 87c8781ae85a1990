"""MetaKD, adapted: a teacher whose head learns together with the student, on labelled text.

Pan et al., Meta-KD: A Meta Knowledge Distillation Framework for Language Model Compression across Domains,
ACL 2021, arXiv:2012.01266; a baseline of DistilCSE.

    metakd     L = InfoNCE_sup(g(t), g(t⁺), g(t⁻)) + β · ‖M s − g(t)‖² / E

This is an adaptation. The published MetaKD trains a meta-teacher over several domains of a classification
task; DistilCSE applies it to sentence embeddings without giving the form. Here the body of the teacher is the
store, its head g (linear, starting at the identity) learns the contrastive task of the labelled text, and the
student follows the head as it is at each step, without a gradient back into it.
"""

from dataclasses import dataclass

from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.losses.contrastive import SupervisedInfoNCE
from stillhouse.objectives.contrasts import MetaDistillation
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Optimizer, Stage
from stillhouse.recipes.stages import student_of
from stillhouse.recipes.two_stages import supervised

PAPER = (
    "after Pan et al., Meta-KD: A Meta Knowledge Distillation Framework for Language Model Compression "
    "across Domains, ACL 2021, arXiv:2012.01266 (an adaptation to sentence embeddings)"
)
PRUNABLE_FROM = "metakd"
needs = (Pairs,)


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched.

    Attributes:
        learning_rate: Peak learning rate of student and head.
        batch_size: Global batch size.
        temperature: τ of the head's task.
        beta: Weight of the student's regression.
        layers: Layers of the base model that the student keeps; empty uses the setting's student.
        optimizer: ``adam`` or ``adamw``.
        warmup: Fraction of the steps with a rising learning rate.
    """

    learning_rate: float = 1e-4
    batch_size: int = 128
    temperature: float = 0.05
    beta: float = 1.0
    layers: tuple[int, ...] = ()
    optimizer: str = "adamw"
    warmup: float = 0.1

    def __post_init__(self) -> None:
        """Make the layers hashable: read from a file, they are a list."""
        object.__setattr__(self, "layers", tuple(self.layers))


PRESETS = {"paper": HyperParameters(), "repo": HyperParameters()}


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan one stage on the labelled text and the teacher's vectors of it."""
    task = spec(SupervisedInfoNCE, temperature=hp.temperature, share_negatives=True)
    return supervised(
        setting,
        spec(MetaDistillation, task=task, beta=hp.beta),
        Optimizer(hp.learning_rate, name=hp.optimizer, warmup=hp.warmup),
        student=student_of(setting, hp.layers),
        batch_size=hp.batch_size,
        label="metakd",
        with_teacher=True,
    )
