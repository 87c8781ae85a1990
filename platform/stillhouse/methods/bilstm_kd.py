"""BiLSTM_KD: Distilling Task-Specific Knowledge from BERT into Simple Neural Networks, and its form in SRA.

Tang et al., 2019, arXiv:1903.12136; the baseline of SRA (Wu et al., AACL 2020, arXiv:2004.03097).

    teacher    L = CE(labels, MLP(T_x)), all layers of the teacher
    kd         L = (1 − kd_weight) CE(labels, z) + kd_weight MSE(z, z_teacher)      Table 1, rows 10 and 13

With ``fits = cosines`` there is one stage and no label: ``L = (cos(S_x, S_x') − cos(T_x, T_x'))²`` (Table 5),
where T is the teacher as published; the student's vectors are then evaluated without fine-tuning, by a
threshold on the cosine of a pair.

Deviations: the student, its optimiser and the teacher are those of `sra_kd`, so that the two methods differ
in SRA's stage alone.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import Spec, spec
from stillhouse.experiments.kinds.labelled_task import LabelledTask
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.methods.baselines import plain_bilstm
from stillhouse.methods.labelled_tasks import (
    Transfer,
    bilstm,
    classified,
    transfer_rows,
    transferred,
)
from stillhouse.methods.stages import optimizer_of, require_transformer, stage_of
from stillhouse.objectives.matching import PairCosines
from stillhouse.students.bilstm import BiLSTMStudent
from stillhouse.students.head import own_head
from stillhouse.values.data import Teacher
from stillhouse.values.setting import Setting, TaskData
from stillhouse.values.stage import Optimizer, Stage

PAPER = (
    "Tang et al., Distilling Task-Specific Knowledge from BERT into Simple Neural Networks, 2019, "
    "arXiv:1903.12136"
)
PRUNABLE_FROM = "kd"
needs = (Sentences, WordVectors, LabelledTask)
BASELINE = plain_bilstm(method="")
BUDGET = {"finetune": 32_768}
"""512 steps."""
FITS = ("logits", "cosines")


@dataclass(frozen=True)
class HyperParameters(Transfer):
    """Hyper-parameters that may be searched; defaults are those of SRA's student.

    Attributes:
        fits: Target of the student: the ``logits`` of the fine-tuned teacher, or the ``cosines`` of
            pairs from the published teacher; the latter ignores all values on logits, teacher and classifier.
        learning_rate: Peak learning rate of the student.
        batch_size: Global batch size of the student, cut to the budget.
    """

    fits: str = "logits"
    learning_rate: float = 5e-4
    batch_size: int = 64

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        require(self.fits in FITS, f"fits in {FITS}", fits=self.fits)


PRESETS = {"paper": HyperParameters(), "repo": HyperParameters()}

_OURS = ("not printed; ours", "code not read")
_SRA = ("SRA's student", "code not read")
SOURCES = {
    "fits": ("SRA, Table 1 (logits) and Table 5 (cosines)", "code not read"),
    "kd_weight": ("a regression on logits", "code not read"),
    "augment": ("SRA, Table 1, rows 10 (none) and 13 (ts)", "code not read"),
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
    "weight_decay": _SRA,
    "decay": _OURS,
    "warmup": _OURS,
    "clip_norm": _OURS,
}
"""Source of each preset's value."""


def check(hp: HyperParameters, student: Spec[Any], teacher: Teacher) -> None:
    """Refuse a teacher that cannot be fine-tuned.

    Raises:
        BadInput: The teacher pools in a way that is not supported, or has further modules; or the student is
            of another kind than the method's own.
    """
    require_transformer(student, "bilstm_kd trains a BiLSTM of its own")
    if hp.fits == "logits":
        own_head(teacher)


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the fine-tuning of the teacher and the student's stage, or the stage on cosines alone.

    Raises:
        BadInput: The task has no pairs with two classes, which cosines need, or no augmented rows.
    """
    task = setting[LabelledTask]
    student = bilstm(setting, hp)
    optimizer = optimizer_of(hp, hp.learning_rate)
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
        examples=transferred(setting, task, hp),
        kd_weight=hp.kd_weight,
    )


def _on_cosines(
    hp: HyperParameters,
    setting: Setting,
    task: TaskData,
    student: Spec[BiLSTMStudent],
    optimizer: Optimizer,
) -> Stage:
    if task.untuned is None:
        raise BadInput(
            f"`fits = cosines` needs a task of pairs with two classes, but got columns="
            f"{list(task.examples.columns)}, classes={task.classes}. Give --task qqp, for example."
        )
    rows = transfer_rows(task, hp.augment)
    if setting[Sentences].store.roles:
        raise BadInput(
            "`fits = cosines` embeds the task's texts as the sentences are embedded, and must have one "
            "source of these, but sentences.sources names several. Give sentences.corpus."
        )
    return stage_of(
        setting,
        label="kd",
        student=student,
        objective=spec(PairCosines),
        examples=rows,
        stores={
            column: dataclasses.replace(setting[Sentences].only_store, texts=table)
            for column, table in rows.columns.items()
        },
        batch_size=hp.batch_size,
        cut=True,
        optimizer=optimizer,
        dev=task.untuned,
        finetunes=True,
    )
