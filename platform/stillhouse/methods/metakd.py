"""MetaKD, adapted: a teacher whose head learns together with the student, on labelled text.

Pan et al., Meta-KD: A Meta Knowledge Distillation Framework for Language Model Compression across Domains,
ACL 2021, arXiv:2012.01266; a baseline of DistilCSE.

    metakd     L = InfoNCE_sup(g(t), g(t⁺), g(t⁻)) + β · ‖M s − g(t)‖² / E      on labelled text
    distil     L = β · ‖M s − g(t)‖² / E         on unlabelled text, with text=unlabelled; g is fixed
    finetune   L = InfoNCE_sup(s, s⁺, s⁻)                                       DistilCSE eq. 7

This is an adaptation. The published MetaKD trains a meta-teacher over several domains of a classification
task; DistilCSE applies it to sentence embeddings without giving the form. Here the body of the teacher is
the store, its head g (linear, starting at the identity) learns the contrastive task of the labelled text,
and the student follows the head as it is at each step, without a gradient back into it. With
``text=unlabelled``, for DistilCSE's Table 2, the head is then fixed, and the student goes on to follow it on
the unlabelled sentences. The head learns by cosines, so that a student whose vectors have length 1 is
compared with g(t) / ‖g(t)‖. The presets are those of DistilCSE's tables, by the size of the student:
``paper`` (14 M parameters), ``paper_52m`` and ``paper_110m``; no code of this baseline is published.
``--distil-budget`` is the budget of the stage that distils, although its text may be labelled.
"""

from dataclasses import dataclass

from stillhouse.core.errors import require
from stillhouse.core.identity import spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.losses.contrastive import SupervisedInfoNCE
from stillhouse.losses.regression import MSE
from stillhouse.methods.baselines import SUPERVISED
from stillhouse.methods.stages import gives_unit_length, optimizer_of, student_of
from stillhouse.methods.two_stages import (
    TEXT_SOURCES,
    Finetuned,
    by_size,
    distilled,
    finetuned,
    supervised,
)
from stillhouse.objectives.contrasts import MetaDistillation
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

PAPER = (
    "after Pan et al., Meta-KD: A Meta Knowledge Distillation Framework for Language Model Compression "
    "across Domains, ACL 2021, arXiv:2012.01266 (an adaptation to sentence embeddings)"
)
PRUNABLE_FROM = "metakd"
needs = (Pairs, Sentences.optional)
BASELINE = SUPERVISED
DISTILS_PAIRS = True
TEXTS = ("labelled", "unlabelled")


@dataclass(frozen=True)
class HyperParameters(Finetuned):
    """Hyper-parameters that may be searched.

    Attributes:
        learning_rate: Peak learning rate of student and head.
        batch_size: Global batch size.
        temperature: τ of the head's task.
        beta: Weight of the student's regression.
        text: Where the student follows the head: on the ``labelled`` text, as the head learns; or then on the
            ``unlabelled`` sentences, too, with a fixed head.
        head_epochs: With unlabelled text, passes of the stage in which the head learns over the labelled
            text; 0 takes the budget of the stage on the sentences.
    """

    learning_rate: float = 3e-4
    batch_size: int = 512
    temperature: float = 0.05
    beta: float = 1.0
    text: str = "labelled"
    head_epochs: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        require(self.text in TEXTS, f"text in {TEXTS}", text=self.text)
        require(self.head_epochs >= 0, "head_epochs >= 0", head_epochs=self.head_epochs)


PRESETS = by_size(HyperParameters())
SOURCES = {
    **TEXT_SOURCES,
    "temperature": ("an adaptation; τ of the fine-tuning",),
    "beta": ("an adaptation; ours",),
    "text": ("an adaptation; ours",),
    "head_epochs": ("an adaptation; ours",),
}
"""Source of each preset's value."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the stage on labelled text, the one on unlabelled sentences if it is set, and the fine-tuning.

    Raises:
        BadInput: The student is to follow on sentences, and there are none.
    """
    student = student_of(setting, hp.layers)
    task = spec(SupervisedInfoNCE, temperature=hp.temperature, share_negatives=True)
    # The head learns by cosines, so that the length of its vectors says nothing.
    mse = spec(MSE, normalize=gives_unit_length(student))
    meta = supervised(
        setting,
        spec(MetaDistillation, task=task, mse=mse, beta=hp.beta),
        optimizer_of(hp, hp.learning_rate),
        student=student,
        batch_size=hp.batch_size,
        label="metakd",
        epochs=hp.head_epochs if hp.text == "unlabelled" else 0.0,
        finetunes=False,
        with_teacher=True,
    )
    if hp.text == "labelled":
        return finetuned(setting, meta, hp)
    require(
        setting.get(Sentences) is not None,
        "text=unlabelled must come with sentences",
        text=hp.text,
        remedy="Give --corpus, or set text=labelled.",
    )
    distil = distilled(
        setting,
        spec(MetaDistillation, task=None, mse=mse, beta=hp.beta),
        optimizer_of(hp, hp.learning_rate),
        label="distil",
        student=student,
        batch_size=hp.batch_size,
        following=meta,
    )
    return finetuned(setting, distil, hp)
