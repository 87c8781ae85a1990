"""MSE: the student's vector is regressed on the teacher's; the baseline of every paper here.

    distil     L = ‖M s − t‖² / E      (DistilCSE eq. 2 and 3; no M if the dimensions agree)
    finetune   supervised InfoNCE, if labelled text is given

The budget counts sentences. To compare with a method of two stages, give both the same amount of work.
"""

from dataclasses import dataclass

from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.objectives.matching import Regression
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Optimizer, Stage
from stillhouse.recipes.stages import student_of
from stillhouse.recipes.two_stages import distilled, finetuned

PAPER = "a regression on the teacher's vectors, the baseline of the papers (no paper of its own)"
PRUNABLE_FROM = "mse"
needs = (Sentences, Pairs.optional)


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched.

    Attributes:
        learning_rate: Peak learning rate.
        batch_size: Global batch size.
        finetune_learning_rate: Peak learning rate of the fine-tuning stage.
        finetune_batch_size: Global batch size of the fine-tuning stage.
        finetune_temperature: τ of the fine-tuning stage.
        layers: Layers of the base model that the student keeps; empty uses the setting's student.
        optimizer: ``adam`` or ``adamw``.
        warmup: Fraction of the steps with a rising learning rate.
    """

    learning_rate: float = 1e-4
    batch_size: int = 128
    finetune_learning_rate: float = 3e-5
    finetune_batch_size: int = 128
    finetune_temperature: float = 0.05
    layers: tuple[int, ...] = ()
    optimizer: str = "adamw"
    warmup: float = 0.1

    def __post_init__(self) -> None:
        """Make the layers hashable: read from a file, they are a list."""
        object.__setattr__(self, "layers", tuple(self.layers))


PRESETS = {"paper": HyperParameters(), "repo": HyperParameters()}


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the distillation and, if there is labelled text, the fine-tuning."""
    distil = distilled(
        setting,
        spec(Regression),
        Optimizer(hp.learning_rate, name=hp.optimizer, warmup=hp.warmup),
        label="mse",
        student=student_of(setting, hp.layers),
        batch_size=hp.batch_size,
    )
    return finetuned(
        setting,
        distil,
        Optimizer(hp.finetune_learning_rate, name=hp.optimizer, warmup=hp.warmup),
        batch_size=hp.finetune_batch_size,
        temperature=hp.finetune_temperature,
    )
