"""Stages on a labelled task: a student with a classifier, a fine-tuned teacher, and its logits."""

from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import Spec, spec
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.losses.heads import ClassificationHead, LabelsAndLogits
from stillhouse.methods.stages import Schedule, as_of_bert, stage_of
from stillhouse.methods.two_stages import distilled
from stillhouse.objectives.classified import Classified
from stillhouse.objectives.matching import CosineApproximation
from stillhouse.students.bilstm import BiLSTMStudent
from stillhouse.students.lstm import POOLINGS
from stillhouse.students.transformer import TransformerStudent
from stillhouse.values.data import Examples, Recorded
from stillhouse.values.setting import Setting, TaskData
from stillhouse.values.stage import Optimizer, Stage

AUGMENT = ("none", "ts")


@dataclass(frozen=True)
class BiLSTM(Schedule):
    """Hyper-parameters of a method that trains a BiLSTM over word vectors, as SRA does (section 4.3).

    Attributes:
        hidden: Units of the LSTM per direction.
        pooling: How the states become H: ``max``, ``mean`` or ``last`` (which cannot be exported).
        head_hidden: Units of the hidden layer of the student's classifier.
        freeze_words: Leave the word vectors unchanged.
        dropout: Dropout of the student and of its classifier.
    """

    hidden: int = 512
    pooling: str = "max"
    head_hidden: int = 256
    freeze_words: bool = False
    dropout: float = 0.0
    warmup: float = 0.0
    decay: str = "constant"

    def __post_init__(self) -> None:
        """Check what is otherwise checked only when the student is built, which needs word vectors."""
        require(self.hidden >= 1, "hidden >= 1", hidden=self.hidden)
        require(self.pooling in POOLINGS, f"pooling in {POOLINGS}", pooling=self.pooling)
        require(0 <= self.dropout < 1, "0 <= dropout < 1", dropout=self.dropout)


@dataclass(frozen=True)
class Transfer(BiLSTM):
    """Hyper-parameters of a method whose student learns from the logits of a fine-tuned teacher.

    The schedule is that of the student.

    Attributes:
        kd_weight: Weight of the teacher's logits; the labels get the rest. 1 leaves the labels out; 0 trains
            without a teacher.
        augment: Rows of the student's last stage: ``none`` reads the task's, ``ts`` also the augmented ones.
        teacher_learning_rate: Peak learning rate of the teacher's fine-tuning.
        teacher_batch_size: Global batch size of the teacher's fine-tuning, cut to the budget.
        teacher_budget: Examples of the teacher's fine-tuning; 0 uses the budget of the student's last stage.
    """

    kd_weight: float = 1.0
    augment: str = "none"
    teacher_learning_rate: float = 3e-5
    teacher_batch_size: int = 32
    teacher_budget: int = 0

    def __post_init__(self) -> None:
        """Check the ranges, and that augmented rows, which have no label, have a teacher."""
        super().__post_init__()
        require(0 <= self.kd_weight <= 1, "0 <= kd_weight <= 1", kd_weight=self.kd_weight)
        require(self.augment in AUGMENT, f"augment in {AUGMENT}", augment=self.augment)
        require(
            self.kd_weight > 0 or self.augment == "none",
            "kd_weight > 0 with augmented rows, which have no label",
            kd_weight=self.kd_weight,
            augment=self.augment,
        )
        require(self.teacher_budget >= 0, "teacher_budget >= 0", teacher_budget=self.teacher_budget)


def bilstm(setting: Setting, values: BiLSTM) -> Spec[BiLSTMStudent]:
    """Return a bidirectional LSTM over the setting's word vectors, of the teacher's dimension."""
    return spec(
        BiLSTMStudent,
        words=setting[WordVectors],
        hidden=values.hidden,
        dim=setting.teacher_dim,
        pooling=values.pooling,
        freeze_words=values.freeze_words,
        dropout=values.dropout,
        seed=setting.seed,
    )


def approximated(
    setting: Setting, optimizer: Optimizer, *, student: Spec[BiLSTMStudent], batch_size: int
) -> Stage:
    """Plan SRA's first stage: the student approximates the teacher's vectors of unlabelled text (eq. 1).

    The global batch is cut to the budget.
    """
    return distilled(
        setting,
        spec(CosineApproximation),
        optimizer,
        label="sra",
        student=student,
        batch_size=batch_size,
        cut=True,
    )


def classified(
    setting: Setting,
    task: TaskData,
    optimizer: Optimizer,
    *,
    student: Spec[Any],
    batch_size: int,
    head_hidden: int,
    dropout: float,
    label: str = "finetune",
    examples: Examples | None = None,
    kd_weight: float = 0.0,
    budget: int = 0,
    before: Stage | None = None,
) -> Stage:
    """Plan a stage on a task: ``(1 − kd_weight) CE(labels, z) + kd_weight MSE(z, teacher's logits)``.

    The student is trained together with a classifier, whose hidden layer has ``head_hidden`` units and whose
    dropout is given. The stage reads ``examples`` instead of the task's rows, such as rows with logits. It
    continues the student of the stage ``before``. The global batch is cut to the budget; a budget of 0 is
    the setting's for fine-tuning.
    """
    head = spec(
        ClassificationHead,
        classes=task.classes,
        pair="other" in task.examples.columns,
        hidden=head_hidden,
        dropout=dropout,
    )
    return stage_of(
        setting,
        label=label,
        student=student,
        objective=spec(Classified, head=head, loss=spec(LabelsAndLogits, alpha=1.0 - kd_weight)),
        examples=examples or task.examples,
        budget=budget,
        batch_size=batch_size,
        cut=True,
        optimizer=optimizer,
        start_from=before,
        dev=task.dev,
        finetunes=not budget,
    )


def transfer_rows(task: TaskData, augment: str) -> Examples:
    """Return the task's rows; with ``augment = ts``, followed by the augmented ones.

    Raises:
        BadInput: There are no augmented rows.
    """
    if augment == "none":
        return task.examples
    if task.augmented is None:
        raise BadInput(
            f"`augment = {augment}` needs a lexicon, which names the words of one part of speech. "
            "Give --wordnet with the YAML files of Open English WordNet."
        )
    return task.augmented


def transferred(setting: Setting, task: TaskData, values: Transfer) -> Examples:
    """Return the rows of a student's stage: with a fine-tuned teacher's logits, unless their weight is 0.

    The teacher is fine-tuned on the task, all layers, as BERT is: AdamW with 10 % warm-up. Its logits are
    recorded once, whichever students read them.
    """
    rows = transfer_rows(task, values.augment)
    if values.kd_weight == 0:
        return rows
    whole = spec(TransformerStudent, base=setting.teacher, pooling="own", normalize=False, seed=setting.seed)
    tutor = classified(
        setting,
        task,
        as_of_bert(values.teacher_learning_rate),
        student=whole,
        batch_size=values.teacher_batch_size,
        head_hidden=256,
        dropout=0.1,
        label="teacher",
        budget=values.teacher_budget,
    )
    columns = (*rows.values, "logits")
    return Examples(rows.columns, Recorded(rows, tutor), label=f"{rows.label}-logits", values=columns)
