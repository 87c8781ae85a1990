"""Reranker distillation: a bi-encoder follows a cross-encoder's scores of queries and candidate passages.

Hofstätter et al., Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge Distillation,
arXiv:2010.02666. A query q has C = 1 + K candidates: its passage p₀ and K hard negatives, which the embedding
teacher has mined. With the reranker's scores t and the student's s_i = scale · sim(q, p_i):

    teacher      L = CE(softmax(t), p₀), or BCE of each pair; none if the scores come from elsewhere
    rerank_kd    L = 1/K Σ_i ((s₀ − s_i) − (t₀ − t_i))²                   ``margin_mse``, the paper's
                 L = T² · KL(softmax(t/T) ‖ softmax(s/T))                 ``kl``
                 L = InfoNCE_sup(q, p₀, p₁ …) + weight · T² · KL(…)       ``contrastive_kl``

The reranker scores every pair once; students with any loss, scale or temperature read the recorded scores.
They come from files (``scores.path``), from a published cross-encoder (``scores.cross_encoder``), or from a
reranker that is trained here first: the student's kind of transformer with a single output, on the
experiment's pairs and their mined negatives. A share of the pairs is held out from it and selects its
checkpoint; it scores those, too. With ``contrastive_kl`` and weight 0 there is no reranker: that is the same
student trained by InfoNCE alone, and the baseline of a sweep.

The presets: ``paper`` has the paper's loss and its rates as far as we know them; the paper was not at hand.
``contrastive_kl`` is ours: small students that start from cut models need higher rates.

Deviations: the paper's triples are those of MS MARCO, with one negative by BM25; its teachers are BERT
rerankers, alone or three together, and its students keep six layers of a pretrained model.
"""

from dataclasses import dataclass, replace
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.core.roles import NO_PROMPTS
from stillhouse.evaluation.candidate_ranking import CandidateRanking
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.scores import Scores
from stillhouse.losses.contrastive import SupervisedInfoNCE
from stillhouse.losses.softlabel import HardLabelCE, KLDivergence, MarginMSE, RelevanceBCE
from stillhouse.methods.baselines import Baseline
from stillhouse.methods.stages import (
    Layered,
    gives_unit_length,
    optimizer_of,
    require_transformer,
    stage_of,
    student_of,
)
from stillhouse.objectives.reranking import SIMILARITIES, RelevantFirst, RerankedPairs
from stillhouse.students.reranker import PairReranker
from stillhouse.values.data import Examples, Mined, Model, Sampled, Scored, fewer_negatives, sample
from stillhouse.values.setting import ScoreData, Setting
from stillhouse.values.stage import DevSuite, Stage

PAPER = (
    "Hofstätter et al., Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge "
    "Distillation, arXiv:2010.02666"
)
PRUNABLE_FROM = "rerank_kd"
needs = (Pairs, Scores.optional)
DISTILS_PAIRS = True
NEGATIVES = 7
LOSSES = ("margin_mse", "kl", "contrastive_kl")
TEACHER_LOSSES = ("ce", "bce")
BASELINE = Baseline(
    "InfoNCE baseline",
    method="",
    values={"loss": "contrastive_kl", "weight": 0.0},
    rates={"learning_rate": (3e-5, 1e-4, 3e-4)},
)


@dataclass(frozen=True)
class HyperParameters(Layered):
    """Hyper-parameters that may be searched.

    Attributes:
        learning_rate: Peak learning rate of the student.
        batch_size: Queries per step, each with its candidates.
        loss: ``margin_mse``, ``kl`` or ``contrastive_kl``.
        temperature: T, which divides the scores of both sides in the KL divergence.
        weight: Weight of the KL divergence beside InfoNCE; 0 trains without a reranker.
        similarity: ``dot`` (inner product) or ``cosine``; of vectors of length 1 they are the same.
        scale: Factor of the student's similarity where it is compared with the reranker's scores.
        contrast_temperature: τ of InfoNCE.
        share_negatives: Whether InfoNCE compares a query with the hard negatives of the other queries, too.
        candidates: Candidates per query that the student learns from (C), its passage among them: the passage
            and the first C − 1 of its hard negatives; 0 takes all. The reranker scores all of them once.
        teacher_loss: Loss of a reranker that is trained here: ``ce`` over the candidates of a query, or
            ``bce`` of each pair.
        teacher_learning_rate: Peak learning rate of the reranker.
        teacher_batch_size: Queries per step of the reranker.
        teacher_budget: Queries that the reranker sees in total; 0 uses the student's budget.
        teacher_layers: Layers of the base model that the reranker keeps; empty takes those of the setting's
            student.
        teacher_held_out: Share of the pairs that the reranker is not trained on and that selects its
            checkpoint.
        teacher_seed: Seed of the reranker, instead of the experiment's: students of several seeds learn from
            one reranker.
    """

    learning_rate: float = 7e-6
    batch_size: int = 32
    loss: str = "margin_mse"
    temperature: float = 1.0
    weight: float = 1.0
    similarity: str = "dot"
    scale: float = 1.0
    contrast_temperature: float = 0.05
    share_negatives: bool = True
    candidates: int = 0
    teacher_loss: str = "ce"
    teacher_learning_rate: float = 1e-4
    teacher_batch_size: int = 16
    teacher_budget: int = 0
    teacher_layers: tuple[int, ...] = ()
    teacher_held_out: float = 0.05
    teacher_seed: int = 0
    warmup: float = 0.0
    decay: str = "constant"

    def __post_init__(self) -> None:
        """Check what is otherwise checked only where it is used."""
        require(self.loss in LOSSES, f"loss in {LOSSES}", loss=self.loss)
        require(self.similarity in SIMILARITIES, f"similarity in {SIMILARITIES}", similarity=self.similarity)
        require(
            self.teacher_loss in TEACHER_LOSSES,
            f"teacher_loss in {TEACHER_LOSSES}",
            teacher_loss=self.teacher_loss,
        )
        require(
            self.candidates == 0 or self.candidates >= 2,
            "candidates >= 2, the passage and a hard negative, or 0",
            candidates=self.candidates,
        )
        require(self.teacher_budget >= 0, "teacher_budget >= 0", teacher_budget=self.teacher_budget)
        require(
            0 < self.teacher_held_out < 1,
            "0 < teacher_held_out < 1",
            teacher_held_out=self.teacher_held_out,
        )

    @property
    def follows(self) -> bool:
        """True if the student follows a reranker."""
        return self.loss != "contrastive_kl" or self.weight > 0


PRESETS = {
    "paper": HyperParameters(),
    "contrastive_kl": replace(
        HyperParameters(),
        learning_rate=1e-4,
        loss="contrastive_kl",
        similarity="cosine",
        scale=20.0,
        warmup=0.1,
        decay="linear",
    ),
}

_KNOWN = "arXiv:2010.02666, as far as known"
SOURCES = {
    "learning_rate": (_KNOWN,),
    "batch_size": (_KNOWN,),
    "loss": ("arXiv:2010.02666, abstract",),
    "similarity": (_KNOWN,),
    "scale": (_KNOWN,),
    "optimizer": (_KNOWN,),
}
"""Source of each preset's value; the others are ours."""


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the student's stage and, unless the scores come from elsewhere, that of the reranker before it.

    Raises:
        BadInput: The pairs have no hard negatives, or fewer than ``candidates`` asks for.
    """
    student = student_of(setting, hp.layers)
    objective = spec(
        RerankedPairs,
        **_losses(hp),
        similarity=hp.similarity,
        scale=hp.scale,
        unit_vectors=gives_unit_length(student),
    )
    return stage_of(
        setting,
        label="rerank_kd",
        student=student,
        objective=objective,
        examples=_candidates(hp, _examples(hp, setting)),
        batch_size=hp.batch_size,
        optimizer=optimizer_of(hp, hp.learning_rate),
    )


def _losses(hp: HyperParameters) -> dict[str, Any]:
    if hp.loss == "margin_mse":
        return {"soft": spec(MarginMSE)}
    kl = spec(KLDivergence, temperature=hp.temperature)
    if hp.loss == "kl":
        return {"soft": kl}
    nce = spec(
        SupervisedInfoNCE,
        temperature=hp.contrast_temperature,
        similarity=hp.similarity,
        share_negatives=hp.share_negatives,
    )
    return {"soft": kl if hp.weight else None, "nce": nce, "weight": hp.weight}


def _candidates(hp: HyperParameters, examples: Examples) -> Examples:
    """Leave out the last candidates of each query, where fewer are asked for."""
    if not hp.candidates:
        return examples
    mined = [each.origin.negatives for each in examples.sources() if isinstance(each.origin, Mined)]
    for negatives in mined:
        require(
            hp.candidates <= 1 + negatives,
            "candidates <= 1 + hard negatives per query",
            candidates=hp.candidates,
            negatives=negatives,
            remedy="Mine more negatives, or lower candidates.",
        )
    everything = mined == [hp.candidates - 1]
    return examples if everything else fewer_negatives(examples, hp.candidates - 1)


def _examples(hp: HyperParameters, setting: Setting) -> Examples:
    """Return what the student reads: scored candidates, or the bare pairs where it follows no reranker."""
    pairs, scores = setting[Pairs].examples, setting.get(Scores) or ScoreData()
    require(
        "negatives" in pairs.columns,
        "rerank_kd must be given hard negatives, with which a passage is compared",
        columns=sorted(pairs.columns),
        remedy="Leave pairs.negatives out, or raise it.",
    )
    if scores.given or not hp.follows:
        return pairs
    # A share is taken of the scored pairs, so that students of any share read the scores of one reranker.
    share = pairs.origin if isinstance(pairs.origin, Sampled) else None
    whole = share.rows if share else pairs
    teacher: Model | Stage = scores.cross_encoder or _reranker(hp, setting, whole)
    length = 2 * setting.max_length if scores.cross_encoder else 0
    scored = Examples(
        whole.columns,
        Scored(whole, teacher, length),
        label="scored",
        values=(*whole.values, "scores"),
    )
    return sample(scored, share.fraction) if share else scored


def _reranker(hp: HyperParameters, setting: Setting, pairs: Examples) -> Stage:
    """Plan the training of a reranker, which reads both texts without a prompt."""
    require_transformer(setting.student, "rerank_kd trains a reranker of the student's kind, a transformer")
    kept = {name: setting.student.kwargs.get(name) for name in ("base", "layers", "dropout")}
    if hp.teacher_layers:
        kept["layers"] = hp.teacher_layers
    trained_on = sample(pairs, 1 - hp.teacher_held_out)
    loss: Spec[Any] = spec(HardLabelCE) if hp.teacher_loss == "ce" else spec(RelevanceBCE)
    return stage_of(
        replace(setting, prompts=NO_PROMPTS, seed=hp.teacher_seed),
        label="teacher",
        student=spec(PairReranker, **kept, seed=hp.teacher_seed),
        objective=spec(RelevantFirst, loss=loss),
        examples=trained_on,
        budget=hp.teacher_budget,
        batch_size=hp.teacher_batch_size,
        optimizer=optimizer_of(hp, hp.teacher_learning_rate),
        dev=DevSuite((spec(CandidateRanking, trained_on=trained_on),), select="reranker_accuracy@1"),
    )
