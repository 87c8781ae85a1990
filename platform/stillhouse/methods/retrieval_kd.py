"""Retrieval KD: claim-independent document vectors that follow a teacher which reads claim and document.

Shakeri et al., Knowledge Distillation in Document Retrieval, arXiv:1911.11065.

    teacher        L = CE(labels, scores of the C candidates)                  eq. 2, sections 3.1 and 3.3
    retrieval_kd   L = α · SoftLoss(t', s) + (1 − α) · CE(labels, s)           eq. 1–3, on recorded scores

The teacher is trained on all claims, and asked once for every pair; students of any α, T or soft loss read
the same recorded scores. With α = 0 there is no teacher, and no such stage.

Read around misprints: both cross-entropies are printed without the minus sign, and with logits in the place
of log-probabilities. "A linear layer is used to join the encodings" taken as linear over [c; d] ranks the
documents alike for every claim (``joiner = concat``, kept to show that); here the layer is bilinear.

Deviations: the modification of the coattention network is not described (see `students/coattention`), nor are
the sizes: with 300-d word vectors that stay as they are, teacher and SimpleLSTM have 2.84 M and 141 k
parameters here, 2.85 M and 141 k there; our joiner adds D². Not printed are learning rates, batches, epochs,
optimiser, schedule, and how the LSTM's states become a vector. The paper's Transformer teacher starts from
random weights, ours from a published encoder. In training all relevant documents are among the candidates;
dev and test keep what TF-IDF misses.
"""

from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.losses.pair_head import KINDS
from stillhouse.losses.softlabel import SoftAndHard
from stillhouse.objectives.ranking import JoinedCandidates, LabelledCandidates
from stillhouse.plan.data import Examples, Model, RankingTask, Sampled, Scored
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Optimizer, Stage
from stillhouse.students.coattention import CoattentionScorer
from stillhouse.students.cross_encoder import TransformerScorer
from stillhouse.students.towers import POOLINGS, SimpleCNN, SimpleLSTM

PAPER = "Shakeri et al., Knowledge Distillation in Document Retrieval, arXiv:1911.11065"
PRUNABLE_FROM = "retrieval_kd"
NEEDS_WORDS = True
NEEDS_CLAIMS = True
BASELINE = {"alpha": 0.0}
"""What a student is compared with: the same student without a teacher."""

ENCODERS = ("lstm", "cnn")
TEACHERS = ("coattention", "transformer", "published")


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched; the soft loss, α and T are those of the best SimpleLSTM (Table 3).

    Attributes:
        learning_rate: Of the student, at its highest.
        batch_size: Claims a step, each with its C candidates.
        encoder: ``lstm`` (SimpleLSTM) or ``cnn`` (SimpleCNN).
        units: Filters of the CNN, or units of the LSTM a direction.
        pooling: How the LSTM's states become a vector: ``max``, ``mean``, or ``last`` (which cannot be
            exported).
        joiner: ``bilinear``, an inner product that an index serves; ``features``; or ``concat``, which is
            blind to the claim.
        soft_loss: ``ce`` or ``mse``.
        alpha: α; 0 trains without a teacher, 1 without labels.
        temperature: T.
        compared: Of ``mse``: ``probabilities``, ``scores`` or ``printed``.
        gold: With several relevant candidates, ``sum`` adds their terms, ``mean`` shares a weight of 1.
        train_words: Change the word vectors, those of the teacher too; with counted words they must be.
        dropout: Of the word vectors, and of what the teacher's MLP reads.
        teacher_model: ``coattention``, ``transformer`` (the setting's student as a cross-encoder), or
            ``published`` (what ``--cross-encoder`` names).
        teacher_learning_rate: Of a teacher that is trained.
        teacher_batch_size: Claims a step of it.
        teacher_units: Of its LSTMs, a direction.
        teacher_budget: Claims that it sees in all; 0 takes those of the student.
        optimizer: ``adam`` or ``adamw``.
        decay: ``constant``, ``linear`` or ``cosine``.
        warmup: Share of the steps with a growing learning rate.
    """

    learning_rate: float = 1e-3
    batch_size: int = 32
    encoder: str = "lstm"
    units: int = 50
    pooling: str = "max"
    joiner: str = "bilinear"
    soft_loss: str = "mse"
    alpha: float = 0.2
    temperature: float = 3.0
    compared: str = "probabilities"
    gold: str = "sum"
    train_words: bool = False
    dropout: float = 0.0
    teacher_model: str = "coattention"
    teacher_learning_rate: float = 1e-3
    teacher_batch_size: int = 16
    teacher_units: int = 256
    teacher_budget: int = 0
    optimizer: str = "adam"
    decay: str = "constant"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        """Check what is only built with word vectors at hand."""
        SoftAndHard(
            alpha=self.alpha,
            soft=self.soft_loss,
            temperature=self.temperature,
            compared=self.compared,
            gold=self.gold,
        )
        require(self.encoder in ENCODERS, f"encoder in {ENCODERS}", encoder=self.encoder)
        require(self.pooling in POOLINGS, f"pooling in {POOLINGS}", pooling=self.pooling)
        require(self.joiner in KINDS, f"joiner in {KINDS}", joiner=self.joiner)
        require(
            self.teacher_model in TEACHERS, f"teacher_model in {TEACHERS}", teacher_model=self.teacher_model
        )
        require(0 <= self.dropout < 1, "0 <= dropout < 1", dropout=self.dropout)
        for name in ("units", "teacher_units"):
            require(getattr(self, name) >= 1, f"{name} >= 1", **{name: getattr(self, name)})
        require(self.teacher_budget >= 0, "teacher_budget >= 0", teacher_budget=self.teacher_budget)


PRESETS = {"paper": HyperParameters(), "repo": HyperParameters()}

_NO_CODE = "no code is known"
SOURCES = {
    "learning_rate": ("not printed; ours", _NO_CODE),
    "batch_size": ("not printed (8 in Table 8); ours", _NO_CODE),
    "encoder": ("section 3.2; the better one (Table 5)", _NO_CODE),
    "units": ("from the 141 k parameters of Table 8", _NO_CODE),
    "pooling": ("not printed; ours", _NO_CODE),
    "joiner": ("section 3.2: 'a linear layer'; ours", _NO_CODE),
    "soft_loss": ("Table 3, best", _NO_CODE),
    "alpha": ("Table 3, best", _NO_CODE),
    "temperature": ("Table 3, best", _NO_CODE),
    "compared": ("eq. 2, ambiguous; ours", _NO_CODE),
    "gold": ("eq. 2", _NO_CODE),
    "train_words": ("from the 141 k parameters of Table 8", _NO_CODE),
    "dropout": ("not printed; ours", _NO_CODE),
    "teacher_model": ("section 3.1", _NO_CODE),
    "teacher_learning_rate": ("not printed; ours", _NO_CODE),
    "teacher_batch_size": ("not printed; ours", _NO_CODE),
    "teacher_units": ("from the 2.85 M parameters of Table 8", _NO_CODE),
    "teacher_budget": ("not printed; ours", _NO_CODE),
    "optimizer": ("not printed; ours", _NO_CODE),
    "decay": ("not printed; ours", _NO_CODE),
    "warmup": ("not printed; ours", _NO_CODE),
}
"""Where a preset's value stands."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """The student's stage; through the recorded scores it reaches the teacher's, unless α = 0.

    Raises:
        BadInput: Fewer claims than a batch, or a published teacher that is not given.
    """
    task = setting.ranking
    assert task is not None, "a method that needs claims says so before it plans"
    require(
        task.rows >= hp.batch_size,
        "the claims that a student learns from >= batch_size",
        claims=task.rows,
        fraction=task.fraction,
        batch_size=hp.batch_size,
        remedy="Raise --fraction, or set a smaller batch_size.",
    )
    examples = _scored(hp, setting, task) if hp.alpha > 0 else task.examples
    if task.fraction < 1:
        examples = Examples(
            task.examples.columns,
            Sampled(examples, task.fraction),
            label=examples.label,
            values=examples.values,
        )
    objective = spec(
        JoinedCandidates,
        joiner=hp.joiner,
        soft_loss=hp.soft_loss,
        alpha=hp.alpha,
        temperature=hp.temperature,
        compared=hp.compared,
        gold=hp.gold,
    )
    return Stage(
        label="retrieval_kd",
        student=_tower(hp, setting),
        objective=objective,
        examples=examples,
        stores={},
        budget=setting.distil_budget,
        batch_size=hp.batch_size,
        optimizer=_optimizer(hp, hp.learning_rate),
        evaluate_every=setting.distil_budget // setting.evaluations,
        **{**setting.common(), "dev": task.dev},
    )


def _scored(hp: HyperParameters, setting: Setting, task: RankingTask) -> Examples:
    """The claims with the recorded scores of the teacher."""
    if hp.teacher_model == "published":
        require(
            task.cross_encoder is not None,
            "teacher_model=published comes with a cross-encoder",
            teacher_model=hp.teacher_model,
            remedy="Name one with --cross-encoder.",
        )
    published = task.cross_encoder if hp.teacher_model == "published" else None
    teacher: Model | Stage = published or _teacher(hp, setting, task)
    length = 2 * setting.max_length if published else 0
    return Examples(
        task.examples.columns,
        Scored(task.examples, teacher, length),
        label="scored",
        values=(*task.examples.values, "scores"),
    )


def _teacher(hp: HyperParameters, setting: Setting, task: RankingTask) -> Stage:
    scorer: Spec[Any]
    if hp.teacher_model == "transformer":
        kept = {name: setting.student.kwargs.get(name) for name in ("base", "layers", "dropout")}
        scorer = spec(TransformerScorer, **kept, seed=setting.seed)
    else:
        scorer = spec(
            CoattentionScorer,
            words=setting.words,
            units=hp.teacher_units,
            train_words=hp.train_words,
            dropout=hp.dropout,
            seed=setting.seed,
        )
    budget = hp.teacher_budget or setting.distil_budget
    return Stage(
        label="teacher",
        student=scorer,
        objective=spec(LabelledCandidates, gold=hp.gold),
        examples=task.examples,
        stores={},
        budget=budget,
        batch_size=hp.teacher_batch_size,
        optimizer=_optimizer(hp, hp.teacher_learning_rate),
        evaluate_every=budget // setting.evaluations,
        **{**setting.common(), "dev": task.dev},
    )


def _tower(hp: HyperParameters, setting: Setting) -> Spec[Any]:
    shared = {
        "words": setting.words,
        "train_words": hp.train_words,
        "dropout": hp.dropout,
        "seed": setting.seed,
    }
    if hp.encoder == "cnn":
        return spec(SimpleCNN, filters=hp.units, **shared)
    return spec(SimpleLSTM, units=hp.units, pooling=hp.pooling, **shared)


def _optimizer(hp: HyperParameters, learning_rate: float) -> Optimizer:
    return Optimizer(learning_rate, name=hp.optimizer, warmup=hp.warmup, decay=hp.decay)
