"""Retrieval KD: claim-independent document vectors that follow a teacher which reads claim and document.

Shakeri et al., Knowledge Distillation in Document Retrieval, arXiv:1911.11065.

    teacher        L = CE(labels, scores of the C candidates)                  eq. 2, sections 3.1 and 3.3
    retrieval_kd   L = α · SoftLoss(t', s) + (1 − α) · CE(labels, s)           eq. 1–3, on recorded scores

Eq. 1 softens the teacher's scores alone, t' = softmax(t/T); s is the softmax of the student's scores. With
``softened = both``, T divides those too, as in Hinton et al. (2015). That weakens the squared error so much
that it hardly acts: its gradient is divided by T, and taken between two flat distributions.

The teacher is trained on all claims and scores every pair once; students with any α, T or soft loss read the
same recorded scores. With α = 0 there is no teacher and no stage for it.

Misprints: both cross-entropies are printed without the minus sign, and with logits instead of
log-probabilities. "A linear layer is used to join the encodings", read as a layer over [c; d], ranks the
documents alike for every claim (``joiner = concat``, kept to show that); here the layer is bilinear.

The paper's claims and documents are encoded "separately"; whether by two towers it does not say. Its 141 k
parameters are those of one tower for both (``towers = tied``); ``separate`` trains one for each.

Claims without a relevant document (``claims.unlabelled``) have the teacher's scores alone: they add nothing
to the labels' term, but count in its mean. The paper has none; with α = 1 all claims count alike.

Deviations: the paper describes neither how it modifies the coattention network (see `students/coattention`)
nor the sizes: with frozen 300-d word vectors, teacher and SimpleLSTM have 2.84 M and 141 k parameters here,
2.85 M and 141 k there; our joiner adds D². It does not print learning rates, batch sizes, epochs, optimiser,
schedule, nor how the LSTM's states become a vector. The paper's Transformer teacher starts from random
weights, ours from a published encoder. In training, all relevant documents are among the candidates; dev and
test keep the candidates of TF-IDF, which may miss one.
"""

from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import Spec, spec
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.losses.pair_head import KINDS, Joiner
from stillhouse.losses.softlabel import HardLabelCE, SoftAndHard, SoftLabelCE, SoftLabelMSE
from stillhouse.methods.baselines import Baseline
from stillhouse.methods.stages import Schedule, as_of_bert, optimizer_of, stage_of
from stillhouse.objectives.ranking import JoinedCandidates, LabelledCandidates
from stillhouse.students.coattention import CoattentionScorer
from stillhouse.students.lstm import POOLINGS
from stillhouse.students.pair_transformer import TransformerScorer
from stillhouse.students.towers import SeparateTowers, SimpleCNN, SimpleLSTM
from stillhouse.values.data import Examples, Model, RankingTask, Scored, sample
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

PAPER = "Shakeri et al., Knowledge Distillation in Document Retrieval, arXiv:1911.11065"
PRUNABLE_FROM = "retrieval_kd"
needs = (Claims, WordVectors)
BASELINE = Baseline(
    "baseline without a teacher",
    method="",
    values={"alpha": 0.0},
    rates={"learning_rate": (3e-4, 1e-3, 3e-3)},
)

ENCODERS = ("lstm", "cnn")
TEACHERS = ("coattention", "transformer", "published")
SOFT_LOSSES = ("ce", "mse")
TOWERS = ("tied", "separate")


@dataclass(frozen=True)
class HyperParameters(Schedule):
    """Hyper-parameters; the soft loss, α and T are those of the best SimpleLSTM (Table 3).

    Attributes:
        learning_rate: Peak learning rate of the student.
        batch_size: Claims per step, each with its C candidates.
        encoder: ``lstm`` (SimpleLSTM) or ``cnn`` (SimpleCNN).
        towers: ``tied``: one tower encodes claims and documents. ``separate``: each has its own.
        units: Filters of the CNN, or units of the LSTM per direction.
        pooling: How the LSTM's states become a vector: ``max``, ``mean``, or ``last`` (which cannot be
            exported).
        joiner: ``bilinear``, an inner product that an index can serve; ``features``; or ``concat``, which is
            blind to the claim.
        soft_loss: ``ce`` or ``mse``.
        alpha: Weight α of the soft loss; 0 trains without a teacher, 1 without labels.
        temperature: T.
        softened: What T divides: the scores of the ``teacher`` alone (eq. 1), or of ``both``.
        scale: Multiply the soft loss by T².
        compared: What ``mse`` compares: ``probabilities``, ``scores`` or ``printed``.
        gold: How several relevant candidates count: ``sum`` adds their terms, ``mean`` gives them a weight of
            1 in total.
        train_words: Train the word vectors, also those of the teacher; required for counted words.
        dropout: Dropout of the word vectors and of the input of the teacher's MLP.
        teacher_model: ``coattention``, ``transformer`` (the setting's student as a cross-encoder), or
            ``published`` (the model that ``--cross-encoder`` names).
        teacher_learning_rate: Peak learning rate of a trained teacher; 0 takes 3e-5 for ``transformer``,
            with BERT's optimiser and schedule, and 1e-3 for others.
        teacher_batch_size: Claims per step of the teacher.
        teacher_units: Units of the teacher's LSTMs per direction.
        teacher_budget: Claims that the teacher sees in total; 0 uses the student's budget.
    """

    learning_rate: float = 1e-3
    batch_size: int = 32
    encoder: str = "lstm"
    towers: str = "tied"
    units: int = 50
    pooling: str = "max"
    joiner: str = "bilinear"
    soft_loss: str = "mse"
    alpha: float = 0.2
    temperature: float = 3.0
    softened: str = "teacher"
    scale: bool = False
    compared: str = "probabilities"
    gold: str = "sum"
    train_words: bool = False
    dropout: float = 0.0
    teacher_model: str = "coattention"
    teacher_learning_rate: float = 0.0
    teacher_batch_size: int = 16
    teacher_units: int = 256
    teacher_budget: int = 0
    decay: str = "constant"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        """Check what is otherwise checked only when the student is built, which needs word vectors."""
        require(self.soft_loss in SOFT_LOSSES, f"soft_loss in {SOFT_LOSSES}", soft_loss=self.soft_loss)
        self.loss().build()
        require(self.encoder in ENCODERS, f"encoder in {ENCODERS}", encoder=self.encoder)
        require(self.towers in TOWERS, f"towers in {TOWERS}", towers=self.towers)
        require(self.pooling in POOLINGS, f"pooling in {POOLINGS}", pooling=self.pooling)
        require(self.joiner in KINDS, f"joiner in {KINDS}", joiner=self.joiner)
        require(
            self.teacher_model in TEACHERS, f"teacher_model in {TEACHERS}", teacher_model=self.teacher_model
        )
        require(0 <= self.dropout < 1, "0 <= dropout < 1", dropout=self.dropout)
        for name in ("units", "teacher_units"):
            require(getattr(self, name) >= 1, f"{name} >= 1", **{name: getattr(self, name)})
        require(self.teacher_budget >= 0, "teacher_budget >= 0", teacher_budget=self.teacher_budget)

    def loss(self) -> Spec[SoftAndHard]:
        """Return the student's loss."""
        softening = {"temperature": self.temperature, "softened": self.softened, "scale": self.scale}
        soft: Spec[Any] = spec(SoftLabelCE, **softening)
        if self.soft_loss == "mse":
            soft = spec(SoftLabelMSE, compared=self.compared, **softening)
        return spec(SoftAndHard, alpha=self.alpha, soft=soft, hard=spec(HardLabelCE, gold=self.gold))


PRESETS = {"paper": HyperParameters(), "repo": HyperParameters()}

_NO_CODE = "no code known"
SOURCES = {
    "learning_rate": ("not printed; ours", _NO_CODE),
    "batch_size": ("not printed (8 in Table 8); ours", _NO_CODE),
    "encoder": ("section 3.2; the better one (Table 5)", _NO_CODE),
    "towers": ("from the 141 k parameters of Table 8", _NO_CODE),
    "units": ("from the 141 k parameters of Table 8", _NO_CODE),
    "pooling": ("not printed; ours", _NO_CODE),
    "joiner": ("section 3.2: 'a linear layer'; ours", _NO_CODE),
    "soft_loss": ("Table 3, best", _NO_CODE),
    "alpha": ("Table 3, best", _NO_CODE),
    "temperature": ("Table 3, best", _NO_CODE),
    "softened": ("eq. 1", _NO_CODE),
    "scale": ("eq. 2 and 3: not printed", _NO_CODE),
    "compared": ("eq. 2, ambiguous; ours", _NO_CODE),
    "gold": ("eq. 2", _NO_CODE),
    "train_words": ("from the 141 k parameters of Table 8", _NO_CODE),
    "dropout": ("not printed; ours", _NO_CODE),
    "teacher_model": ("section 3.1", _NO_CODE),
    "teacher_learning_rate": ("not printed; ours: by the kind of teacher", _NO_CODE),
    "teacher_batch_size": ("not printed; ours", _NO_CODE),
    "teacher_units": ("from the 2.85 M parameters of Table 8", _NO_CODE),
    "teacher_budget": ("not printed; ours", _NO_CODE),
    "optimizer": ("not printed; ours", _NO_CODE),
    "weight_decay": ("not printed; ours", _NO_CODE),
    "decay": ("not printed; ours", _NO_CODE),
    "warmup": ("not printed; ours", _NO_CODE),
    "clip_norm": ("not printed; ours", _NO_CODE),
}
"""Source of each preset's value."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the student's stage and, unless α = 0, the teacher whose recorded scores it reads.

    Raises:
        BadInput: There are fewer claims than a batch has, or a published teacher is required but not given.
    """
    task = setting[Claims]
    require(
        task.rows >= hp.batch_size,
        "number of training claims >= batch_size",
        claims=task.rows,
        fraction=task.fraction,
        batch_size=hp.batch_size,
        remedy="Raise --fraction, or set a smaller batch_size.",
    )
    examples = _scored(hp, setting, task) if hp.alpha > 0 else task.examples
    if task.fraction < 1:
        examples = sample(examples, task.fraction)
    return stage_of(
        setting,
        label="retrieval_kd",
        student=_tower(hp, setting),
        objective=spec(JoinedCandidates, joiner=spec(Joiner, kind=hp.joiner), loss=hp.loss()),
        examples=examples,
        batch_size=hp.batch_size,
        optimizer=optimizer_of(hp, hp.learning_rate),
        dev=task.dev,
    )


def _scored(hp: HyperParameters, setting: Setting, task: RankingTask) -> Examples:
    """Return the claims with the recorded scores of the teacher."""
    if hp.teacher_model == "published" and task.cross_encoder is None:
        raise BadInput("`teacher_model = published` needs a cross-encoder. Name one with --cross-encoder.")
    published = task.cross_encoder if hp.teacher_model == "published" else None
    teacher: Model | Stage = published or _teacher(hp, setting, task)
    length = 2 * setting.max_length if published else 0
    return Examples(
        task.examples.columns,
        Scored(task.unlabelled or task.examples, teacher, length),
        label="scored",
        values=(*task.examples.values, "scores"),
    )


def _teacher(hp: HyperParameters, setting: Setting, task: RankingTask) -> Stage:
    scorer: Spec[Any]
    if hp.teacher_model == "transformer":
        kept = {name: setting.student.kwargs.get(name) for name in ("base", "layers", "dropout")}
        scorer = spec(TransformerScorer, **kept, seed=setting.seed)
        optimizer = as_of_bert(hp.teacher_learning_rate or 3e-5)
    else:
        scorer = spec(
            CoattentionScorer,
            words=setting[WordVectors],
            units=hp.teacher_units,
            train_words=hp.train_words,
            dropout=hp.dropout,
            seed=setting.seed,
        )
        optimizer = optimizer_of(hp, hp.teacher_learning_rate or 1e-3)
    return stage_of(
        setting,
        label="teacher",
        student=scorer,
        objective=spec(LabelledCandidates, hard=spec(HardLabelCE, gold=hp.gold)),
        examples=task.examples,
        budget=hp.teacher_budget,
        batch_size=hp.teacher_batch_size,
        optimizer=optimizer,
        dev=task.dev,
    )


def _tower(hp: HyperParameters, setting: Setting) -> Spec[Any]:
    shared = {
        "words": setting[WordVectors],
        "train_words": hp.train_words,
        "dropout": hp.dropout,
        "seed": setting.seed,
    }
    tower: Spec[Any] = spec(SimpleLSTM, units=hp.units, pooling=hp.pooling, **shared)
    if hp.encoder == "cnn":
        tower = spec(SimpleCNN, filters=hp.units, **shared)
    return spec(SeparateTowers, tower=tower) if hp.towers == "separate" else tower
