"""LEAF: a regression on the teacher's vectors through an output layer that the student keeps.

Vujanic and Rueckstiess, LEAF: Knowledge Distillation of Text Embedding Models with Teacher-Aligned
Representations, 2025, arXiv:2509.12539.

    leaf       L = ‖W_out s − t‖² + λ_r · relational + λ_c · (1 − cos) + λ_g · spread

The student pools, W_out maps it to the teacher's dimension, and it is normalised if the teacher is; its
vectors are then in the teacher's space, so that documents may be embedded by the teacher and queries by the
student. Only texts and the teacher's vectors are read: neither labels nor hard negatives. There is no
fine-tuning stage, which would lead the student out of that space.

The paper was not at hand when this file was written. What is marked "published" is in its abstract; "to the
best of our knowledge" is what others report of the text. The three further terms are ours and are off by
default: `losses.relational.SimilarityMatrix`, `losses.cosine.CosineDistance`, `losses.relational.SpreadOut`.

Deviations. The paper trains for three cycles of ten epochs, each with a linear decay from 1e-4 to 1e-5, to
the best of our knowledge; here it is one decay to 0 over the budget, or over ``epochs``. The student pools as
its teacher does (the paper: the mean). W_out has no bias: the last layer norm of a transformer has one.
"""

from dataclasses import dataclass

from stillhouse.core.errors import require
from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.methods.stages import Layered, both_normalized, optimizer_of, student_of
from stillhouse.methods.two_stages import distilled
from stillhouse.objectives.alignment import Alignment
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

PAPER = (
    "Vujanic and Rueckstiess, LEAF: Knowledge Distillation of Text Embedding Models with Teacher-Aligned "
    "Representations, arXiv:2509.12539"
)
PRUNABLE_FROM = "leaf"
needs = (Sentences,)


@dataclass(frozen=True)
class HyperParameters(Layered):
    """Hyper-parameters that may be searched.

    Attributes:
        learning_rate: Peak learning rate.
        batch_size: Global batch size.
        epochs: Passes over the text; 0 uses the setting's budget, which is equal for all trials.
        relational_weight: λ_r, of the batch's matrix of cosines, fitted to the teacher's; 0 leaves it out.
        cosine_weight: λ_c, of 1 − cos to the teacher's vector; 0 leaves it out. Where both sides have length
            1, the regression is twice this term.
        spread_weight: λ_g, of the spread-out regulariser on the student's vectors; 0 leaves it out.
    """

    learning_rate: float = 1e-4
    batch_size: int = 32
    epochs: int = 0
    relational_weight: float = 0.0
    cosine_weight: float = 0.0
    spread_weight: float = 0.0
    optimizer: str = "adamw"
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        """Check what no loss or optimiser checks."""
        require(self.epochs >= 0, "epochs >= 0", epochs=self.epochs)


PRESETS = {"paper": HyperParameters()}
SOURCES = {
    "learning_rate": ("to the best of our knowledge: 1e-4, falling to 1e-5; here to 0",),
    "batch_size": ("published: small batches; to the best of our knowledge 32",),
    "epochs": ("to the best of our knowledge: 30, in three cycles; here the budget",),
    "relational_weight": ("ours; LEAF regresses vectors alone",),
    "cosine_weight": ("ours; LEAF regresses vectors alone",),
    "spread_weight": ("ours; LEAF regresses vectors alone",),
    "optimizer": ("to the best of our knowledge: AdamW",),
    "weight_decay": ("ours: PyTorch's default for AdamW",),
    "warmup": ("ours",),
    "decay": ("to the best of our knowledge: linear in each cycle; here one",),
    "clip_norm": ("ours",),
}
"""Source of each value: the published abstract, what is known of the text, or ours."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the only stage."""
    student = student_of(setting, hp.layers, keep_projection=True)
    objective = spec(
        Alignment,
        normalize=both_normalized(setting, student),
        relational_weight=hp.relational_weight,
        cosine_weight=hp.cosine_weight,
        spread_weight=hp.spread_weight,
    )
    return distilled(
        setting,
        objective,
        optimizer_of(hp, hp.learning_rate),
        label="leaf",
        student=student,
        batch_size=hp.batch_size,
        epochs=hp.epochs,
    )
