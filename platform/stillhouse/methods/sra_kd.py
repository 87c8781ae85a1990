"""SRA + KD, + TS: SRA's student, fine-tuned on the logits of a teacher that was fine-tuned on the task.

Wu et al., AACL 2020, arXiv:2004.03097, with the transfer of Tang et al., 2019, arXiv:1903.12136.

    teacher    L = CE(labels, MLP(T_x)), all layers of the teacher
    sra        L = ½ (1 − cos(T_x, S_x))                               eq. 1, on unlabelled text
    finetune   L = (1 − kd_weight) CE(labels, z) + kd_weight MSE(z, z_teacher)      Table 1, rows 12 and 14

With ``augment = ts`` the last stage reads the varied rows too: words masked, replaced by one with the same
part of speech, or n-grams in the place of the text. They have no label; the teacher speaks of them.

Deviations: as `sra`. The teacher of a pair is not a cross-encoder: it sees each text alone, and its
classifier the pair [h, h', |h − h'|, h ∘ h']. The teacher that is fine-tuned is the one that is approximated;
the paper's KD has BERT large.
"""

from dataclasses import dataclass
from typing import Any

from stillhouse.core.identity import Spec
from stillhouse.plan.data import Model
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Optimizer, Stage
from stillhouse.recipes.labelled_tasks import (
    approximated,
    check_student,
    check_transfer,
    classified,
    recurrent,
    transferred,
)
from stillhouse.recipes.two_stages import require_transformer
from stillhouse.students.head import own_head

PAPER = (
    "Wu et al., Towards Non-task-specific Distillation of BERT via Sentence Representation Approximation, "
    "AACL 2020, arXiv:2004.03097"
)
PRUNABLE_FROM = "finetune"
NEEDS_WORDS = True
NEEDS_TASK = True


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched; defaults are those of section 4.3 where it prints one.

    Attributes:
        kd_weight: Weight of the teacher's logits; the labels have the rest. 1 leaves the labels out; 0 is
            `sra`.
        augment: Rows of the last stage: ``none`` takes the task's, ``ts`` the varied ones too.
        teacher_learning_rate: Of the teacher's fine-tuning.
        teacher_batch_size: Global batch of the teacher's fine-tuning; no more than the budget is taken.
        teacher_budget: Examples of the teacher's fine-tuning; 0 takes that of the last stage.
        distil_learning_rate: Of the distillation stage, at its highest.
        distil_batch_size: Global batch of the distillation stage; no more than the budget is taken.
        finetune_learning_rate: Of the fine-tuning stage.
        finetune_batch_size: Global batch of the fine-tuning stage; no more than the budget is taken.
        hidden: Units of the LSTM a side.
        pooling: How states become H: ``max``, ``mean`` or ``last`` (which cannot be exported).
        head_hidden: Units of the student's classifier's hidden layer.
        freeze_words: Leave the word vectors as they are.
        dropout: Of the student and of its classifier.
        optimizer: ``adam`` or ``adamw``; of the student.
        decay: ``constant``, ``linear`` or ``cosine``; of the student.
        warmup: Share of the steps with a growing learning rate; of the student.
    """

    kd_weight: float = 1.0
    augment: str = "none"
    teacher_learning_rate: float = 3e-5
    teacher_batch_size: int = 32
    teacher_budget: int = 0
    distil_learning_rate: float = 1e-3
    distil_batch_size: int = 1024
    finetune_learning_rate: float = 5e-4
    finetune_batch_size: int = 64
    hidden: int = 512
    pooling: str = "max"
    head_hidden: int = 256
    freeze_words: bool = False
    dropout: float = 0.0
    optimizer: str = "adam"
    decay: str = "constant"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        """Check what is only built with word vectors at hand."""
        check_student(hidden=self.hidden, pooling=self.pooling, dropout=self.dropout)
        check_transfer(kd_weight=self.kd_weight, augment=self.augment, teacher_budget=self.teacher_budget)


PRESETS = {"paper": HyperParameters(), "repo": HyperParameters()}

_OURS = ("not printed; ours", "no code is known")
SOURCES = {
    "kd_weight": ("section 4.2: as Tang et al., a regression on logits", "no code is known"),
    "augment": ("Table 1, rows 12 (none) and 14 (ts)", "no code is known"),
    "teacher_learning_rate": _OURS,
    "teacher_batch_size": _OURS,
    "teacher_budget": _OURS,
    "distil_learning_rate": ("section 4.3", "no code is known"),
    "distil_batch_size": ("section 4.3", "no code is known"),
    "finetune_learning_rate": ("section 4.3: of {2, 3, 5, 10}e-4, by dev", "no code is known"),
    "finetune_batch_size": _OURS,
    "hidden": ("section 4.3", "no code is known"),
    "pooling": ("not printed; GLUE's BiLSTM", "no code is known"),
    "head_hidden": ("section 4.3", "no code is known"),
    "freeze_words": _OURS,
    "dropout": _OURS,
    "optimizer": ("section 4.3", "no code is known"),
    "decay": _OURS,
    "warmup": _OURS,
}
"""Where a preset's value stands."""


def check(hp: HyperParameters, student: Spec[Any], teacher: Model) -> None:
    """Refuse a teacher that cannot be fine-tuned.

    Raises:
        BadInput: Its pooling is none of ours, or another module follows; or another kind of student is asked
            for than its own.
    """
    require_transformer(student, "sra_kd trains a BiLSTM of its own")
    own_head(teacher)


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """The fine-tuning stage after the distillation and the teacher's own fine-tuning."""
    task = setting.task
    assert task is not None, "a method that needs a task says so before it plans"
    student = recurrent(
        setting, hidden=hp.hidden, pooling=hp.pooling, freeze_words=hp.freeze_words, dropout=hp.dropout
    )
    before = approximated(
        setting, _optimizer(hp, hp.distil_learning_rate), student=student, batch_size=hp.distil_batch_size
    )
    return classified(
        setting,
        task,
        _optimizer(hp, hp.finetune_learning_rate),
        student=student,
        batch_size=hp.finetune_batch_size,
        head_hidden=hp.head_hidden,
        dropout=hp.dropout,
        examples=transferred(
            setting,
            task,
            augment=hp.augment,
            kd_weight=hp.kd_weight,
            learning_rate=hp.teacher_learning_rate,
            batch_size=hp.teacher_batch_size,
            budget=hp.teacher_budget,
        ),
        kd_weight=hp.kd_weight,
        before=before,
    )


def _optimizer(hp: HyperParameters, learning_rate: float) -> Optimizer:
    return Optimizer(learning_rate, name=hp.optimizer, warmup=hp.warmup, decay=hp.decay)
