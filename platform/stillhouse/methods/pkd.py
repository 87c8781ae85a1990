"""PKD: patient knowledge distillation, a baseline of DistilCSE.

Sun et al., Patient Knowledge Distillation for BERT Model Compression, EMNLP 2019, arXiv:1908.09355.

    distil     L = ‖M s − t‖² + β · Σ_j ‖h_j^s/‖h_j^s‖ − h_j^t/‖h_j^t‖‖²      eq. 7, pooled states
    finetune   L = InfoNCE_sup(s, s⁺, s⁻)      DistilCSE eq. 7, if labelled text is given

The teacher is live, since no store keeps its layers. The paper distils a classifier, with cross-entropy on
its output; here the output is the vector, regressed as in DistilCSE's baseline. States are mean-pooled,
however the vectors are, while the paper takes [CLS]: so student and teacher may have different tokenizers,
prompts and maximum lengths, and each reads a text with its own.
Another deviation: the paper's student has the hidden size of its teacher. Where the sizes differ, as in
DistilCSE's tables (1024, 768 and 312), a linear layer for every matched layer maps h_j^s to the teacher's
size; it is trained with the student and thrown away. The presets are those of DistilCSE's tables, by the size
of the student: ``paper`` (14 M parameters), ``paper_52m`` and ``paper_110m``; no code of this baseline is
published.
"""

from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.losses.pkd import layer_pairs
from stillhouse.methods.stages import (
    both_normalized,
    check_live,
    optimizer_of,
    require_transformer,
    student_of,
)
from stillhouse.methods.two_stages import (
    TEXT_SOURCES,
    Finetuned,
    by_size,
    distilled,
    finetuned,
)
from stillhouse.objectives.matching import PatientRegression
from stillhouse.students.backbone import layer_count
from stillhouse.students.head import require_model
from stillhouse.students.transformer import TransformerStudent
from stillhouse.values.data import Teacher
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Live, Stage

PAPER = "Sun et al., Patient Knowledge Distillation for BERT Model Compression, EMNLP 2019, arXiv:1908.09355"
PRUNABLE_FROM = "pkd"
needs = (Sentences, Pairs.optional)


@dataclass(frozen=True)
class HyperParameters(Finetuned):
    """Hyper-parameters that may be searched.

    Attributes:
        learning_rate: Peak learning rate.
        batch_size: Global batch size.
        beta: Weight β of the term of the layers.
        match: ``skip`` (every k-th layer of the teacher) or ``last`` (its last layers).
        match_final: Match the student's last layer too; the paper leaves it to the output loss.
    """

    learning_rate: float = 3e-4
    batch_size: int = 512
    beta: float = 0.1
    match: str = "skip"
    match_final: bool = False

    def __post_init__(self) -> None:
        """Check the weight."""
        require(self.beta >= 0, "beta >= 0", beta=self.beta)


PRESETS = by_size(HyperParameters())
SOURCES = {
    **TEXT_SOURCES,
    "beta": ("not printed in DistilCSE; ours",),
    "match": ("not printed in DistilCSE; PKD-Skip (ours: a projection where the hidden sizes differ)",),
    "match_final": ("the paper leaves the last layer to the output loss",),
}
"""Source of each preset's value."""


def check(hp: HyperParameters, student: Spec[Any], teacher: Teacher) -> None:
    """Refuse a teacher that cannot run during training, or whose layers do not fit the student's.

    Raises:
        BadInput: The teacher has fewer layers than the student, no layers are left to match, the student is
            not a transformer, or the teacher leaves its prompt out of its vectors.
    """
    require_transformer(student, "pkd matches the layers of a transformer")
    depth = len(hp.layers or student.kwargs["layers"])
    model = require_model(teacher)
    layer_pairs(depth, layer_count(model), match=hp.match, final=hp.match_final)
    check_live(model)


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the distillation and, if there is labelled text, the fine-tuning."""
    student = student_of(setting, hp.layers)
    shape = {"match": hp.match, "final": hp.match_final, "normalize": both_normalized(setting, student)}
    distil = distilled(
        setting,
        spec(PatientRegression, beta=hp.beta, **shape),
        optimizer_of(hp, hp.learning_rate),
        label="pkd",
        student=student,
        batch_size=hp.batch_size,
        live=Live(
            spec(TransformerStudent, base=setting.teacher, pooling="own", normalize=None, dropout=0.0),
            reading=setting.unlike_student(setting.teacher_reading),
        ),
    )
    return finetuned(setting, distil, hp)
