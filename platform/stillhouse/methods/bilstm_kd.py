"""BiLSTM_KD: Distilling Task-Specific Knowledge from BERT into Simple Neural Networks, and its form in SRA.

Tang et al., 2019, arXiv:1903.12136; the baseline of SRA (Wu et al., AACL 2020, arXiv:2004.03097).

    teacher    L = CE(labels, MLP(T_x)), all layers of the teacher
    kd         L = (1 − kd_weight) CE(labels, z) + kd_weight MSE(z, z_teacher)      Table 1, rows 10 and 13

With ``fits = cosines`` there is one stage and no label: ``L = (cos(S_x, S_x') − cos(T_x, T_x'))²`` (Table 5),
T being the teacher as published; its vectors are measured untuned, by a threshold on the cosine of a pair.

Deviations: the student, its optimiser and the teacher are those of `sra_kd`, so that the two differ in SRA's
stage alone.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.objectives.matching import PairCosines
from stillhouse.plan.data import Model
from stillhouse.plan.setting import LabelledTask, Setting
from stillhouse.plan.stage import Optimizer, Stage
from stillhouse.recipes.labelled_tasks import (
    check_student,
    check_transfer,
    classified,
    recurrent,
    transfer_rows,
    transferred,
)
from stillhouse.recipes.two_stages import require_transformer
from stillhouse.students.bilstm import BiLSTMStudent
from stillhouse.students.head import own_head

PAPER = (
    "Tang et al., Distilling Task-Specific Knowledge from BERT into Simple Neural Networks, 2019, "
    "arXiv:1903.12136"
)
PRUNABLE_FROM = "kd"
NEEDS_WORDS = True
NEEDS_TASK = True
FITS = ("logits", "cosines")


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched; defaults are those of SRA's student.

    Attributes:
        fits: What the student fits: the fine-tuned teacher's ``logits``, or the ``cosines`` of pairs by the
            teacher as published, which no value about logits, teacher or classifier changes.
        kd_weight: Weight of the teacher's logits; the labels have the rest. 1 leaves the labels out; 0 is a
            plain BiLSTM, which has no teacher.
        augment: Rows of the student's stage: ``none`` takes the task's, ``ts`` the varied ones too.
        teacher_learning_rate: Of the teacher's fine-tuning.
        teacher_batch_size: Global batch of the teacher's fine-tuning; no more than the budget is taken.
        teacher_budget: Examples of the teacher's fine-tuning; 0 takes that of the student's stage.
        learning_rate: Of the student.
        batch_size: Global batch of the student; no more than the budget is taken.
        hidden: Units of the LSTM a side.
        pooling: How states become H: ``max``, ``mean`` or ``last`` (which cannot be exported).
        head_hidden: Units of the student's classifier's hidden layer.
        freeze_words: Leave the word vectors as they are.
        dropout: Of the student and of its classifier.
        optimizer: ``adam`` or ``adamw``; of the student.
        decay: ``constant``, ``linear`` or ``cosine``; of the student.
        warmup: Share of the steps with a growing learning rate; of the student.
    """

    fits: str = "logits"
    kd_weight: float = 1.0
    augment: str = "none"
    teacher_learning_rate: float = 3e-5
    teacher_batch_size: int = 32
    teacher_budget: int = 0
    learning_rate: float = 5e-4
    batch_size: int = 64
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
        require(self.fits in FITS, f"fits in {FITS}", fits=self.fits)
        check_student(hidden=self.hidden, pooling=self.pooling, dropout=self.dropout)
        check_transfer(kd_weight=self.kd_weight, augment=self.augment, teacher_budget=self.teacher_budget)


PRESETS = {"paper": HyperParameters(), "repo": HyperParameters()}

_OURS = ("not printed; ours", "not read")
_SRA = ("SRA's student", "not read")
SOURCES = {
    "fits": ("SRA, Table 1 (logits) and Table 5 (cosines)", "not read"),
    "kd_weight": ("a regression on logits", "not read"),
    "augment": ("SRA, Table 1, rows 10 (none) and 13 (ts)", "not read"),
    "teacher_learning_rate": _OURS,
    "teacher_batch_size": _OURS,
    "teacher_budget": _OURS,
    "learning_rate": _SRA,
    "batch_size": _OURS,
    "hidden": _SRA,
    "pooling": _SRA,
    "head_hidden": _SRA,
    "freeze_words": _OURS,
    "dropout": _OURS,
    "optimizer": _SRA,
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
    require_transformer(student, "bilstm_kd trains a BiLSTM of its own")
    if hp.fits == "logits":
        own_head(teacher)


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """The student's stage after the teacher's fine-tuning; the stage on cosines alone.

    Raises:
        BadInput: Cosines of a task that has no pairs with two classes, or varied rows that are not there.
    """
    task = setting.task
    assert task is not None, "a method that needs a task says so before it plans"
    student = recurrent(
        setting, hidden=hp.hidden, pooling=hp.pooling, freeze_words=hp.freeze_words, dropout=hp.dropout
    )
    optimizer = Optimizer(hp.learning_rate, name=hp.optimizer, warmup=hp.warmup, decay=hp.decay)
    if hp.fits == "cosines":
        return _on_cosines(hp, setting, task, student, optimizer)
    return classified(
        setting,
        task,
        optimizer,
        student=student,
        batch_size=hp.batch_size,
        head_hidden=hp.head_hidden,
        dropout=hp.dropout,
        label="kd",
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
    )


def _on_cosines(
    hp: HyperParameters,
    setting: Setting,
    task: LabelledTask,
    student: Spec[BiLSTMStudent],
    optimizer: Optimizer,
) -> Stage:
    require(
        task.untuned is not None,
        "fits = cosines is given a task of pairs with two classes",
        columns=list(task.examples.columns),
        classes=task.classes,
        remedy="Such as --task qqp or --task mrpc.",
    )
    rows = transfer_rows(task, hp.augment)
    budget = setting.finetune_budget
    return Stage(
        label="kd",
        student=student,
        objective=spec(PairCosines),
        examples=rows,
        stores={
            column: dataclasses.replace(setting.sentences, texts=table)
            for column, table in rows.columns.items()
        },
        budget=budget,
        batch_size=min(hp.batch_size, budget),
        optimizer=optimizer,
        evaluate_every=budget // setting.evaluations,
        **{**setting.common(), "dev": task.untuned},
    )
