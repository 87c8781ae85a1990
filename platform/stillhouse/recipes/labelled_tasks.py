"""Stages on a labelled task: a student with a classifier, a fine-tuned teacher, and its logits."""

from typing import Any, Protocol

from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import Spec, spec
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.losses.heads import ClassificationHead, LabelsAndLogits
from stillhouse.objectives.classified import Classified
from stillhouse.objectives.matching import CosineApproximation
from stillhouse.recipes.stages import stage_of
from stillhouse.recipes.two_stages import distilled
from stillhouse.students.bilstm import POOLINGS, BiLSTMStudent
from stillhouse.students.transformer import TransformerStudent
from stillhouse.values.data import Examples, Recorded
from stillhouse.values.setting import Setting, TaskData
from stillhouse.values.stage import Optimizer, Stage

AUGMENT = ("none", "ts")


class BiLSTM(Protocol):
    """The hyper-parameters of a method that trains a BiLSTM over word vectors."""

    @property
    def hidden(self) -> int:
        """Units of the LSTM per direction."""
        ...

    @property
    def pooling(self) -> str:
        """How the states become a vector."""
        ...

    @property
    def freeze_words(self) -> bool:
        """Whether the word vectors are left as they are."""
        ...

    @property
    def dropout(self) -> float:
        """Dropout of the student and of its classifier."""
        ...


class Transfer(Protocol):
    """The hyper-parameters of a method whose student learns from the logits of a fine-tuned teacher."""

    @property
    def kd_weight(self) -> float:
        """Weight of the logits; with 0 there is no teacher."""
        ...

    @property
    def augment(self) -> str:
        """Rows of the student's stage: ``none`` or ``ts``."""
        ...

    @property
    def teacher_learning_rate(self) -> float:
        """Peak learning rate of the teacher."""
        ...

    @property
    def teacher_batch_size(self) -> int:
        """Global batch size of the teacher."""
        ...

    @property
    def teacher_budget(self) -> int:
        """Examples that the teacher sees; 0 takes the setting's budget for fine-tuning."""
        ...


def check_bilstm(values: BiLSTM) -> None:
    """Check what is otherwise only checked when the student is built, which needs word vectors.

    Raises:
        BadInput: A value is out of range.
    """
    require(values.hidden >= 1, "hidden >= 1", hidden=values.hidden)
    require(values.pooling in POOLINGS, f"pooling in {POOLINGS}", pooling=values.pooling)
    require(0 <= values.dropout < 1, "0 <= dropout < 1", dropout=values.dropout)


def check_transfer(values: Transfer) -> None:
    """Refuse an impossible transfer of logits.

    Raises:
        BadInput: A value is out of range.
    """
    require(0 <= values.kd_weight <= 1, "0 <= kd_weight <= 1", kd_weight=values.kd_weight)
    require(values.augment in AUGMENT, f"augment in {AUGMENT}", augment=values.augment)
    require(
        values.kd_weight > 0 or values.augment == "none",
        "kd_weight > 0 with augmented rows, which have no label",
        kd_weight=values.kd_weight,
        augment=values.augment,
    )
    require(values.teacher_budget >= 0, "teacher_budget >= 0", teacher_budget=values.teacher_budget)


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

    Args:
        setting: Sentences, budget, dev suite.
        optimizer: The optimiser and its schedule.
        student: The student to train.
        batch_size: Global batch size, cut to the budget.
    """
    return distilled(
        setting,
        spec(CosineApproximation),
        optimizer,
        label="sra",
        student=student,
        batch_size=min(batch_size, setting.distil_budget),
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

    Args:
        setting: Budget, seed and the rest that all stages share.
        task: Rows, number of classes, dev suite.
        optimizer: The optimiser and its schedule.
        student: The student to train, together with a classifier.
        batch_size: Global batch size, cut to the budget.
        head_hidden: Units of the hidden layer of the classifier.
        dropout: Dropout of the classifier.
        label: Name of the stage.
        examples: Rows to read instead of the task's, such as rows with logits.
        kd_weight: Weight of the logits.
        budget: Examples; 0 takes the setting's budget for fine-tuning.
        before: The stage whose student it continues to train.
    """
    finetunes, budget = not budget, budget or setting.finetune_budget
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
        batch_size=min(batch_size, budget),
        optimizer=optimizer,
        start_from=before,
        dev=task.dev,
        finetunes=finetunes,
    )


def teacher(setting: Setting, task: TaskData, *, learning_rate: float, batch_size: int, budget: int) -> Stage:
    """Plan the fine-tuning of the setting's teacher, all layers, as BERT's: AdamW with 10 % warm-up."""
    whole = spec(TransformerStudent, base=setting.teacher, pooling="own", normalize=False, seed=setting.seed)
    return classified(
        setting,
        task,
        Optimizer(learning_rate, weight_decay=0.01, warmup=0.1),
        student=whole,
        batch_size=batch_size,
        head_hidden=256,
        dropout=0.1,
        label="teacher",
        budget=budget,
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

    The logits are recorded once, whichever students read them.

    Args:
        setting: The teacher, its budget and seed.
        task: The rows; the teacher learns their labels.
        values: The hyper-parameters of the transfer.
    """
    rows = transfer_rows(task, values.augment)
    if values.kd_weight == 0:
        return rows
    tutor = teacher(
        setting,
        task,
        learning_rate=values.teacher_learning_rate,
        batch_size=values.teacher_batch_size,
        budget=values.teacher_budget,
    )
    columns = (*rows.values, "logits")
    return Examples(rows.columns, Recorded(rows, tutor), label=f"{rows.label}-logits", values=columns)
