"""SRA: Towards Non-task-specific Distillation of BERT via Sentence Representation Approximation.

Wu et al., AACL 2020, arXiv:2004.03097.

    sra        L = ½ (1 − cos(T_x, S_x))                               eq. 1, on unlabelled text
    finetune   L = CE(labels, MLP(h)), of a pair MLP([h, h', |h − h'|, h ∘ h'])     section 3.2

The student is a bidirectional LSTM over word vectors, followed by a linear layer without bias and tanh, of
the teacher's dimension. All of it is fine-tuned.

Deviations: T_x is the teacher's own sentence vector; for BERT as published that is the last state of [CLS].
The paper does not print the batch size of the fine-tuning, the epochs, the schedule, nor how the states
become H: here by the maximum over the words, as in the BiLSTM of GLUE that section 3.2 follows. Of the
learning rates that the paper searches per task, 5e-4 is the default.

SRA + KD (+ TS) is the method ``sra_kd``; the baseline without the first stage is ``bilstm_kd``.
"""

from dataclasses import dataclass
from typing import Any

from stillhouse.core.identity import Spec
from stillhouse.experiments.kinds.labelled_task import LabelledTask
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.methods.baselines import plain_bilstm
from stillhouse.methods.labelled_tasks import BiLSTM, approximated, bilstm, classified
from stillhouse.methods.stages import optimizer_of, require_transformer
from stillhouse.values.data import Teacher
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

PAPER = (
    "Wu et al., Towards Non-task-specific Distillation of BERT via Sentence Representation Approximation, "
    "AACL 2020, arXiv:2004.03097"
)
PRUNABLE_FROM = "finetune"
needs = (Sentences, WordVectors, LabelledTask.optional)
BASELINE = plain_bilstm(learning_rate="finetune_learning_rate", batch_size="finetune_batch_size")
BUDGET = {"distil": 262_144, "finetune": 32_768}
"""256 steps of the printed batch of 1024, and 512 steps of fine-tuning."""


@dataclass(frozen=True)
class HyperParameters(BiLSTM):
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

SOURCES = {
    "distil_learning_rate": ("section 4.3", "no code known"),
    "distil_batch_size": ("section 4.3", "no code known"),
    "finetune_learning_rate": ("section 4.3: of {2, 3, 5, 10}e-4, on dev", "no code known"),
    "finetune_batch_size": ("not printed; ours", "no code known"),
    "hidden": ("section 4.3", "no code known"),
    "pooling": ("not printed; GLUE's BiLSTM", "no code known"),
    "head_hidden": ("section 4.3", "no code known"),
    "freeze_words": ("not printed; ours", "no code known"),
    "dropout": ("not printed; ours", "no code known"),
    "optimizer": ("section 4.3", "no code known"),
    "weight_decay": ("section 4.3", "no code known"),
    "decay": ("not printed; ours", "no code known"),
    "warmup": ("not printed; ours", "no code known"),
    "clip_norm": ("not printed; ours", "no code known"),
}
"""Source of each preset's value."""


def check(hp: HyperParameters, student: Spec[Any], teacher: Teacher) -> None:
    """Refuse a student of another kind than the method's own.

    Raises:
        BadInput: Another kind of student was chosen.
    """
    require_transformer(student, "sra trains a BiLSTM of its own")


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the distillation and, if there is a task, the fine-tuning."""
    student = bilstm(setting, hp)
    before = approximated(
        setting, optimizer_of(hp, hp.distil_learning_rate), student=student, batch_size=hp.distil_batch_size
    )
    task = setting.get(LabelledTask)
    if task is None or setting.finetune_budget == 0:
        return before
    return classified(
        setting,
        task,
        optimizer_of(hp, hp.finetune_learning_rate),
        student=student,
        batch_size=hp.finetune_batch_size,
        head_hidden=hp.head_hidden,
        dropout=hp.dropout,
        before=before,
    )
