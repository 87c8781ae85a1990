"""MSE: the student's vector regressed on the teacher's, the baseline of every paper here.

    distil     L = ‖M s − t‖² / E      (DistilCSE eq. 2 and 3; no M where the dimensions agree)

`examples` counts sentences. Where a method with two stages is compared, the caller gives the budget in the
same unit of work.
"""

from dataclasses import dataclass

from stillhouse.methods.objectives import Regression
from stillhouse.plan import AllRows, Examples, Optimizer, Setting, Stage
from stillhouse.spec import spec

PAPER = "a regression on the teacher's vectors, the baseline of the papers (no paper of its own)"
PRUNABLE_FROM = "mse"


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched.

    Attributes:
        learning_rate: At its highest.
        batch_size: Global batch.
        layers: The teacher's layers that the student keeps; empty takes the setting's student.
        optimizer: ``adam`` or ``adamw``.
        warmup: Share of the steps with a growing learning rate.
    """

    learning_rate: float = 1e-4
    batch_size: int = 128
    layers: tuple[int, ...] = ()
    optimizer: str = "adamw"
    warmup: float = 0.1

    def __post_init__(self) -> None:
        """Layers read from a file are a list."""
        object.__setattr__(self, "layers", tuple(self.layers))


PRESETS = {"paper": HyperParameters(), "repo": HyperParameters()}


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """One stage."""
    return Stage(
        label="mse",
        student=setting.student.replace(layers=hp.layers) if hp.layers else setting.student,
        objective=spec(Regression),
        examples=Examples(columns={"text": setting.sentences.texts}, origin=AllRows()),
        stores={"text": setting.sentences},
        budget=setting.distil_budget,
        batch_size=hp.batch_size,
        optimizer=Optimizer(hp.learning_rate, name=hp.optimizer, warmup=hp.warmup),
        evaluate_every=setting.distil_budget // setting.evaluations,
        **setting.common(),
    )
