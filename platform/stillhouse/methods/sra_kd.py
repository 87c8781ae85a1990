"""SRA + KD, + TS: SRA's student, fine-tuned on the logits of a teacher that was fine-tuned on the task.

Wu et al., AACL 2020, arXiv:2004.03097, with the transfer of Tang et al., 2019, arXiv:1903.12136.

    teacher    L = CE(labels, MLP(T_x)), all layers of the teacher
    sra        L = ½ (1 − cos(T_x, S_x))                               eq. 1, on unlabelled text
    finetune   L = (1 − kd_weight) CE(labels, z) + kd_weight MSE(z, z_teacher)      Table 1, rows 12 and 14

With ``augment = ts`` the last stage also reads augmented rows: words masked, words replaced by others with
the same part of speech, or n-grams instead of the text. They have no label, only the teacher's logits.

Deviations: as in `sra`. The teacher of a pair is not a cross-encoder: it encodes each text alone, and its
classifier reads [h, h', |h − h'|, h ∘ h']. The teacher that is fine-tuned is the one that is approximated;
the paper's KD uses BERT large.
"""

from dataclasses import dataclass
from typing import Any

from stillhouse.core.identity import Spec
from stillhouse.experiments.kinds.labelled_task import LabelledTask
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.methods import sra
from stillhouse.methods.baselines import plain_bilstm
from stillhouse.methods.labelled_tasks import (
    Transfer,
    approximated,
    bilstm,
    classified,
    transferred,
)
from stillhouse.methods.stages import optimizer_of, require_transformer
from stillhouse.students.head import own_head
from stillhouse.values.data import Teacher
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

PAPER, BUDGET = sra.PAPER, sra.BUDGET
PRUNABLE_FROM = "finetune"
needs = (Sentences, WordVectors, LabelledTask)
BASELINE = plain_bilstm(learning_rate="finetune_learning_rate", batch_size="finetune_batch_size")


@dataclass(frozen=True)
class HyperParameters(Transfer):
    """Hyper-parameters that may be searched; defaults are those of section 4.3 where it prints one.

    Attributes:
        distil_learning_rate: Peak learning rate of the distillation stage.
        distil_batch_size: Global batch size of the distillation stage, cut to the budget.
        finetune_learning_rate: Peak learning rate of the fine-tuning stage.
        finetune_batch_size: Global batch size of the fine-tuning stage, cut to the budget.
    """

    distil_learning_rate: float = 1e-3
    distil_batch_size: int = 1024
    finetune_learning_rate: float = 5e-4
    finetune_batch_size: int = 64


PRESETS = {"paper": HyperParameters(), "repo": HyperParameters()}

_OURS = ("not printed; ours", "no code known")
SOURCES = {
    "kd_weight": ("section 4.2: as in Tang et al., a regression on logits", "no code known"),
    "augment": ("Table 1, rows 12 (none) and 14 (ts)", "no code known"),
    "teacher_learning_rate": _OURS,
    "teacher_batch_size": _OURS,
    "teacher_budget": _OURS,
    **sra.SOURCES,
}
"""Source of each preset's value."""


def check(hp: HyperParameters, student: Spec[Any], teacher: Teacher) -> None:
    """Refuse a teacher that cannot be fine-tuned.

    Raises:
        BadInput: The teacher pools in a way that is not supported, or has further modules; or the student is
            of another kind than the method's own.
    """
    require_transformer(student, "sra_kd trains a BiLSTM of its own")
    own_head(teacher)


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the distillation, the fine-tuning of the teacher, and the fine-tuning of the student."""
    task = setting[LabelledTask]
    student = bilstm(setting, hp)
    before = approximated(
        setting, optimizer_of(hp, hp.distil_learning_rate), student=student, batch_size=hp.distil_batch_size
    )
    return classified(
        setting,
        task,
        optimizer_of(hp, hp.finetune_learning_rate),
        student=student,
        batch_size=hp.finetune_batch_size,
        head_hidden=hp.head_hidden,
        dropout=hp.dropout,
        examples=transferred(setting, task, hp),
        kd_weight=hp.kd_weight,
        before=before,
    )
