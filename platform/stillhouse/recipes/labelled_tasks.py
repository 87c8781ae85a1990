"""Stages on a labelled task: a student with a classifier, its fine-tuned teacher, and the logits."""

from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.objectives.classified import Classified
from stillhouse.objectives.matching import CosineApproximation
from stillhouse.plan.data import Examples, Recorded
from stillhouse.plan.setting import LabelledTask, Setting
from stillhouse.plan.stage import Optimizer, Stage
from stillhouse.recipes.two_stages import distilled
from stillhouse.students.bilstm import POOLINGS, BiLSTMStudent
from stillhouse.students.transformer import TransformerStudent

AUGMENT = ("none", "ts")


def check_student(*, hidden: int, pooling: str, dropout: float) -> None:
    """Refuse what is only built with word vectors at hand.

    Raises:
        BadInput: A value out of range.
    """
    require(hidden >= 1, "hidden >= 1", hidden=hidden)
    require(pooling in POOLINGS, f"pooling in {POOLINGS}", pooling=pooling)
    require(0 <= dropout < 1, "0 <= dropout < 1", dropout=dropout)


def check_transfer(*, kd_weight: float, augment: str, teacher_budget: int) -> None:
    """Refuse a transfer of logits that cannot be.

    Raises:
        BadInput: A value out of range.
    """
    require(0 <= kd_weight <= 1, "0 <= kd_weight <= 1", kd_weight=kd_weight)
    require(augment in AUGMENT, f"augment in {AUGMENT}", augment=augment)
    require(
        kd_weight > 0 or augment == "none",
        "kd_weight > 0 with varied rows, which have no label",
        kd_weight=kd_weight,
        augment=augment,
    )
    require(teacher_budget >= 0, "teacher_budget >= 0", teacher_budget=teacher_budget)


def recurrent(
    setting: Setting, *, hidden: int, pooling: str, freeze_words: bool, dropout: float
) -> Spec[BiLSTMStudent]:
    """A bidirectional LSTM over the setting's word vectors, of the teacher's dimension."""
    assert setting.words is not None, "a method that needs word vectors says so before it plans"
    return spec(
        BiLSTMStudent,
        words=setting.words,
        hidden=hidden,
        dim=setting.teacher_dim,
        pooling=pooling,
        freeze_words=freeze_words,
        dropout=dropout,
        seed=setting.seed,
    )


def approximated(
    setting: Setting, optimizer: Optimizer, *, student: Spec[BiLSTMStudent], batch_size: int
) -> Stage:
    """SRA's first stage: the student nears the teacher's vectors of unlabelled text (eq. 1).

    Args:
        setting: Sentences, budget and the like.
        optimizer: How the weights move.
        student: What is trained.
        batch_size: Global batch; no more than the budget is taken.
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
    task: LabelledTask,
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
    """A stage on a task: ``(1 − kd_weight) CE(labels, z) + kd_weight MSE(z, the teacher's logits)``.

    Args:
        setting: Budget, seed and the like.
        task: Rows, classes, dev suite.
        optimizer: How the weights move.
        student: What is trained, with a classifier.
        batch_size: Global batch; no more than the budget is taken.
        head_hidden: Units of the classifier's hidden layer.
        dropout: Of the classifier.
        label: Of the stage.
        examples: Rows in the place of the task's, such as those with logits.
        kd_weight: The weight of the logits.
        budget: Examples; 0 takes the setting's for fine-tuning.
        before: The stage whose student it goes on from.
    """
    budget = budget or setting.finetune_budget
    objective = spec(
        Classified,
        classes=task.classes,
        pair="other" in task.examples.columns,
        hidden=head_hidden,
        dropout=dropout,
        alpha=1.0 - kd_weight,
    )
    return Stage(
        label=label,
        student=student,
        objective=objective,
        examples=examples or task.examples,
        stores={},
        budget=budget,
        batch_size=min(batch_size, budget),
        optimizer=optimizer,
        evaluate_every=budget // setting.evaluations,
        start_from=before,
        **{**setting.common(), "dev": task.dev},
    )


def teacher(
    setting: Setting, task: LabelledTask, *, learning_rate: float, batch_size: int, budget: int
) -> Stage:
    """The setting's teacher with all its layers, fine-tuned on the task as BERT was: AdamW, 10 % warm-up."""
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


def transfer_rows(task: LabelledTask, augment: str) -> Examples:
    """The task's rows, or with ``ts`` the varied ones too.

    Raises:
        BadInput: There are no varied rows.
    """
    if augment == "none":
        return task.examples
    require(
        task.augmented is not None,
        "augment = ts is given a lexicon, which tells the words of one part of speech",
        augment=augment,
        wordnet="",
        remedy="Give --wordnet with the YAML files of Open English WordNet.",
    )
    assert task.augmented is not None
    return task.augmented


def transferred(
    setting: Setting,
    task: LabelledTask,
    *,
    augment: str,
    kd_weight: float,
    learning_rate: float,
    batch_size: int,
    budget: int,
) -> Examples:
    """The rows of a student's stage: beside a fine-tuned teacher's logits, unless these weigh nothing.

    The logits are recorded once, whatever students read them.

    Args:
        setting: The teacher, seed and the like.
        task: Its rows; the teacher learns their labels.
        augment: As in `transfer_rows`.
        kd_weight: Of the logits; with 0 there is no teacher.
        learning_rate: Of the teacher.
        batch_size: Global batch of the teacher; no more than the budget is taken.
        budget: Examples that the teacher sees; 0 takes the setting's for fine-tuning.
    """
    rows = transfer_rows(task, augment)
    if kd_weight == 0:
        return rows
    tutor = teacher(setting, task, learning_rate=learning_rate, batch_size=batch_size, budget=budget)
    values = (*rows.values, "logits")
    return Examples(rows.columns, Recorded(rows, tutor), label=f"{rows.label}-logits", values=values)
