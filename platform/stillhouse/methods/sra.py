"""SRA: Towards Non-task-specific Distillation of BERT via Sentence Representation Approximation.

Wu et al., AACL 2020, arXiv:2004.03097.

    sra        L = ½ (1 − cos(T_x, S_x))                               eq. 1, on unlabelled text
    finetune   L = CE(labels, MLP(h)), of a pair MLP([h, h', |h − h'|, h ∘ h'])     section 3.2

The student is a bidirectional LSTM over word vectors, a linear layer without bias and tanh, of the teacher's
dimension. The whole of it is fine-tuned.

Deviations: T_x is the teacher's own sentence vector; of BERT as published it is the last state of [CLS].
Not printed are the batch of the fine-tuning, the epochs, the schedule, and how the states become H: here
the maximum over the words, as in the BiLSTM of GLUE that section 3.2 follows. Of the learning rates that are
searched per task, 5e-4 is the default.
SRA + KD (+ TS) is the method ``sra_kd``, the baseline without the first stage ``bilstm_kd``.
"""

from dataclasses import dataclass
from typing import Any

from stillhouse.core.identity import Spec
from stillhouse.plan.data import Model
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Optimizer, Stage
from stillhouse.recipes.labelled_tasks import approximated, check_student, classified, recurrent
from stillhouse.recipes.two_stages import require_transformer

PAPER = (
    "Wu et al., Towards Non-task-specific Distillation of BERT via Sentence Representation Approximation, "
    "AACL 2020, arXiv:2004.03097"
)
PRUNABLE_FROM = "finetune"
NEEDS_WORDS = True


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched; defaults are those of section 4.3 where it prints one.

    Attributes:
        distil_learning_rate: Of the distillation stage, at its highest.
        distil_batch_size: Global batch of the distillation stage; no more than the budget is taken.
        finetune_learning_rate: Of the fine-tuning stage.
        finetune_batch_size: Global batch of the fine-tuning stage; no more than the budget is taken.
        hidden: Units of the LSTM a side.
        pooling: How states become H: ``max``, ``mean`` or ``last`` (which cannot be exported).
        head_hidden: Units of the classifier's hidden layer.
        freeze_words: Leave the word vectors as they are.
        dropout: Of the student and of the classifier.
        optimizer: ``adam`` or ``adamw``.
        decay: ``constant``, ``linear`` or ``cosine``.
        warmup: Share of the steps with a growing learning rate.
    """

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


PRESETS = {"paper": HyperParameters(), "repo": HyperParameters()}

SOURCES = {
    "distil_learning_rate": ("section 4.3", "no code is known"),
    "distil_batch_size": ("section 4.3", "no code is known"),
    "finetune_learning_rate": ("section 4.3: of {2, 3, 5, 10}e-4, by dev", "no code is known"),
    "finetune_batch_size": ("not printed; ours", "no code is known"),
    "hidden": ("section 4.3", "no code is known"),
    "pooling": ("not printed; GLUE's BiLSTM", "no code is known"),
    "head_hidden": ("section 4.3", "no code is known"),
    "freeze_words": ("not printed; ours", "no code is known"),
    "dropout": ("not printed; ours", "no code is known"),
    "optimizer": ("section 4.3", "no code is known"),
    "decay": ("not printed; ours", "no code is known"),
    "warmup": ("not printed; ours", "no code is known"),
}
"""Where a preset's value stands."""


def check(hp: HyperParameters, student: Spec[Any], teacher: Model) -> None:
    """Refuse another kind of student than its own.

    Raises:
        BadInput: One is asked for.
    """
    require_transformer(student, "sra trains a BiLSTM of its own")


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """The fine-tuning stage after the distillation; the distillation alone where there is no task."""
    student = recurrent(
        setting, hidden=hp.hidden, pooling=hp.pooling, freeze_words=hp.freeze_words, dropout=hp.dropout
    )
    before = approximated(
        setting, _optimizer(hp, hp.distil_learning_rate), student=student, batch_size=hp.distil_batch_size
    )
    if setting.task is None or setting.finetune_budget == 0:
        return before
    return classified(
        setting,
        setting.task,
        _optimizer(hp, hp.finetune_learning_rate),
        student=student,
        batch_size=hp.finetune_batch_size,
        head_hidden=hp.head_hidden,
        dropout=hp.dropout,
        before=before,
    )


def _optimizer(hp: HyperParameters, learning_rate: float) -> Optimizer:
    return Optimizer(learning_rate, name=hp.optimizer, warmup=hp.warmup, decay=hp.decay)
