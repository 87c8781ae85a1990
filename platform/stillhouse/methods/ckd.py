"""CKD: contrastive knowledge distillation of sentence embeddings, the distillation stage of DistilCSE.

Gao et al., DistilCSE, arXiv:2112.05638.

    distil     L = InfoNCE(M s, t; bank)      eq. 4 with the memory bank of eq. 5 and the projection of eq. 6

``bank_size = 0`` uses the other teacher vectors of the batch alone: IBKD's ablation without HSIC (Table 4).
"""

from dataclasses import dataclass, replace

from stillhouse.errors import require
from stillhouse.methods.objectives import ContrastiveDistillation
from stillhouse.plan import AllRows, Examples, Optimizer, Setting, Stage
from stillhouse.spec import spec

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
        bank_size: Teacher vectors kept as further negatives; 0 is no bank.
        layers: The teacher's layers that the student keeps; empty takes the setting's student.
        optimizer: ``adam`` or ``adamw``.
        warmup: Share of the steps with a growing learning rate.
    """

    learning_rate: float = 3e-4
    batch_size: int = 512
    temperature: float = 0.05
    bank_size: int = 65536
    layers: tuple[int, ...] = ()
    optimizer: str = "adamw"
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


PRESETS = {"paper": HyperParameters(), "repo": replace(HyperParameters(), temperature=0.37)}


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """One stage."""
    return Stage(
        label="ckd",
        student=setting.student.replace(layers=hp.layers) if hp.layers else setting.student,
        objective=spec(ContrastiveDistillation, temperature=hp.temperature, bank_size=hp.bank_size),
        examples=Examples(columns={"text": setting.sentences.texts}, origin=AllRows()),
        stores={"text": setting.sentences},
        budget=setting.distil_budget,
        batch_size=hp.batch_size,
        optimizer=Optimizer(hp.learning_rate, name=hp.optimizer, warmup=hp.warmup),
        evaluate_every=setting.distil_budget // setting.evaluations,
        **setting.common(),
    )
