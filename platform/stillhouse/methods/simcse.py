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
from stillhouse.methods.stages import Layered, optimizer_of, student_of
from stillhouse.methods.two_stages import supervised
from stillhouse.objectives.information_bottleneck import SupervisedBottleneck
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

PAPER = "Gao et al., SimCSE: Simple Contrastive Learning of Sentence Embeddings, EMNLP 2021, arXiv:2104.08821"
PRUNABLE_FROM = "simcse"
needs = (Pairs,)
BASELINE = None
"""It is a baseline itself."""


@dataclass(frozen=True)
class HyperParameters(Layered):
    """Hyper-parameters that may be searched.

    Attributes:
        learning_rate: Peak learning rate.
        batch_size: Global batch size.
        temperature: τ.
    """

    learning_rate: float = 5e-5
    batch_size: int = 512
    temperature: float = 0.05


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
