"""Softmaxes of the losses at the first step: whether a temperature lets more than one candidate count.

B  anchors of the sample, at most a batch    C  candidates    D  student's dimension    E  teacher's dimension
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stillhouse.core.identity import Spec
from stillhouse.core.roles import DOCUMENT, QUERY
from stillhouse.core.types import IntArray
from stillhouse.corpora.tables import open_rows, open_texts, open_values
from stillhouse.losses.contrastive import InfoNCE, SupervisedInfoNCE
from stillhouse.losses.multilingual import MultilingualCrossEntropy
from stillhouse.losses.softlabel import KLDivergence
from stillhouse.objectives.information_bottleneck import SupervisedBottleneck
from stillhouse.objectives.reranking import RerankedPairs
from stillhouse.preflight.finding import ERROR, NOTE, WARNING, Finding
from stillhouse.preflight.planned import Planned
from stillhouse.students.encoder import StudentEncoder, Vectors
from stillhouse.teachers.loading import tokenizer_of
from stillhouse.values.data import Examples, FewerNegatives, Mined, Recorded, Sampled, Scored
from stillhouse.values.stage import Stage

CHECK = "temperature"
SATURATED = 1e-3
"""Share of the softmax outside its largest entry below which hardly any gradient is left for an anchor."""
DEAD = 1e-6
"""The same, below which float32 leaves none."""
SCORES = "scores"
SPAN = 5.0
"""Span of softened scores that is proposed where they saturate."""
ANCHORS = 64
"""Queries whose passages and hard negatives are encoded."""
FLAT = 0.99
"""Share of the candidates, as the exponential of the entropy, from which on all weigh nearly the same."""


@dataclass(frozen=True)
class Softmax:
    """The softmax over the candidates of an anchor, at the first step, with the mean loss.

    ``outside`` is the share outside of its largest entry, ``effective`` the exponential of its entropy, the
    number of candidates that count; both are medians over the anchors.
    """

    outside: float
    effective: float
    candidates: int
    loss: float

    @classmethod
    def of(cls, logits_BC: Tensor) -> "Softmax":
        """Summarise logits whose positives are on the diagonal."""
        log_p_BC = logits_BC.double().log_softmax(dim=1)
        # 1 − max p, computed from the other entries: the difference itself is 0 below 1e-16.
        places_B = log_p_BC.argmax(dim=1, keepdim=True)
        others_BC = log_p_BC.scatter(1, places_B, float("-inf"))
        outside_B = others_BC.logsumexp(dim=1).exp()
        effective_B = -(log_p_BC.exp() * log_p_BC).sum(dim=1)
        loss = float(-log_p_BC.diagonal().mean())
        return cls(float(outside_B.median()), float(effective_B.exp().median()), logits_BC.shape[1], loss)


def saturation(planned: Planned, vectors_NE: Vectors) -> list[Finding]:
    """Compute the first softmax of every contrast of a new student with its teacher, and judge it.

    The cross-entropy between languages has none of its own: its student has learnt the teacher's vectors by
    then, so the teacher's, of the first of the run's texts, stand for the student's.
    """
    findings: list[Finding] = []
    for stage in planned.stages:
        batch = min(len(vectors_NE), stage.batch_size // stage.accumulate)
        if batch < 2:
            continue
        teacher_BE = torch.from_numpy(vectors_NE[:batch]).float()
        if stage.start_from is None and "text" in stage.stores:
            for nce in within(stage.objective, InfoNCE):
                findings.append(_with_teacher(planned, stage, nce, teacher_BE))
        for contrast in within(stage.objective, MultilingualCrossEntropy):
            loss: MultilingualCrossEntropy = contrast.build()
            softmax = Softmax.of(loss.logits(teacher_BE, teacher_BE))
            findings.append(judge(softmax, stage.label, loss.temperature.temperature))
    return findings


def labelled_saturation(planned: Planned) -> list[Finding]:
    """Judge the first softmax of losses on labelled pairs, as far as the pairs have been read.

    Of a new student, the contrast of its own vectors of queries, passages and the hard negatives that are
    known; of a student that follows a reranker by the KL divergence, the reranker's softened scores, where
    they have been recorded or came with the pairs.
    """
    findings: list[Finding] = []
    for stage in planned.stages:
        if not planned.is_read or stage.objective.target not in (SupervisedBottleneck, RerankedPairs):
            continue
        if stage.start_from is None:
            for nce in within(stage.objective, SupervisedInfoNCE):
                findings += _of_pairs(planned, stage, nce)
        for kl in within(stage.objective, KLDivergence):
            findings += _of_scores(planned, stage, kl)
    return findings


def within(objective: Spec[Any], loss: type) -> list[Spec[Any]]:
    """The losses of a class in an objective, nested ones among them."""
    found = [objective] if objective.target is loss else []
    for value in objective.kwargs.values():
        if isinstance(value, Spec):
            found += within(value, loss)
    return found


def _with_teacher(planned: Planned, stage: Stage, nce: Spec[Any], teacher_BE: Tensor) -> Finding:
    texts = {planned.role: list(planned.texts[: len(teacher_BE)])}
    student_BD = _student_vectors(planned, stage, texts)[planned.role]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stage.seed)
        loss: InfoNCE = nce.build(student_dim=student_BD.shape[1], teacher_dim=teacher_BE.shape[1])
    with torch.no_grad():
        softmax = Softmax.of(loss.temperature(loss.anchors(student_BD) @ loss.keys(teacher_BE).T))
    return judge(softmax, stage.label, loss.temperature.temperature)


def _of_pairs(planned: Planned, stage: Stage, nce: Spec[Any]) -> list[Finding]:
    known = _known_rows(planned, stage.examples)
    if known is None:
        return []
    examples, rows = known
    batch = min(ANCHORS, stage.batch_size // stage.accumulate)
    # Each text once: a query whose passage occurs twice would be its own negative.
    _, first_of_query = np.unique(rows["query"], return_index=True)
    _, first_of_passage = np.unique(rows["passage"], return_index=True)
    chosen = np.intersect1d(first_of_query, first_of_passage)[:batch]
    if len(chosen) < 2:
        return []
    texts = {
        column: list(open_texts(planned.workspace, examples.columns[column])[ids[chosen].reshape(-1)])
        for column, ids in rows.items()
        if column in ("query", "passage", "negatives")
    }
    loss: SupervisedInfoNCE = nce.build()
    read = {QUERY: texts["query"], DOCUMENT: [*texts["passage"], *texts.get("negatives", [])]}
    vectors = _student_vectors(planned, stage, read)
    count = len(chosen)
    passages_BD, others = vectors[DOCUMENT][:count], vectors[DOCUMENT][count:]
    negatives_BKD = others.view(count, -1, others.shape[1]) if len(others) else None
    with torch.no_grad():
        softmax = Softmax.of(loss.logits(vectors[QUERY], passages_BD, negatives_BKD))
    return [judge(softmax, stage.label, loss.temperature.temperature)]


def _known_rows(planned: Planned, examples: Examples) -> tuple[Examples, Mapping[str, IntArray]] | None:
    """The pairs that examples are made of, with the hard negatives that have been mined or came with them."""
    for each in _made_of(examples):
        if _is_known(planned, each):
            return each, open_rows(planned.workspace, each)
    return None


def _made_of(examples: Examples) -> Iterator[Examples]:
    """Examples, then what they are made of; of a share, or of fewer negatives, the whole."""
    for each in reversed(list(examples.sources())):
        if not isinstance(each.origin, Sampled | FewerNegatives):
            yield each
        if isinstance(each.origin, Mined):
            yield from _made_of(each.origin.pairs)


def _of_scores(planned: Planned, stage: Stage, kl: Spec[Any]) -> list[Finding]:
    """Judge what the reranker's scores ask for; nothing where they are not known yet."""
    scored = [each for each in stage.examples.sources() if SCORES in each.values]
    known = [each for each in scored if all(_is_known(planned, source) for source in each.sources())]
    if not known:
        return []
    scores_NC = np.asarray(open_values(planned.workspace, known[-1])[SCORES][: 64 * ANCHORS], np.float64)
    loss: KLDivergence = kl.build()
    softmax = Softmax.of(torch.from_numpy(scores_NC) / loss.temperature)
    found = (
        f"the reranker's scores in {stage.label}, divided by T={loss.temperature:g}, leave "
        f"{softmax.outside:.2g} of a query's softmax over {softmax.candidates} candidates to others than its "
        "largest one (median)."
    )
    if softmax.outside >= SATURATED:
        return [Finding(CHECK, NOTE, found)]
    span = float(np.median(np.ptp(scores_NC, axis=1)))
    found += " The softmax is saturated: the other candidates teach the student nothing."
    remedy = f"Raise the temperature: T={span / SPAN:.2g} leaves a span of {SPAN:g}."
    return [Finding(CHECK, WARNING, found, remedy)]


def _is_known(planned: Planned, examples: Examples) -> bool:
    """Whether examples have been made, or need not be."""
    return not isinstance(examples.origin, Mined | Recorded | Scored) or planned.workspace.finished(examples)


def judge(softmax: Softmax, label: str, temperature: float) -> Finding:
    """Say what a first softmax means for training."""
    found = (
        f"at the first step of {label}, τ={temperature:g} leaves {softmax.outside:.2g} of an anchor's "
        f"softmax over {softmax.candidates} candidates to others than its largest one (median); the loss is "
        f"{softmax.loss:.2f}."
    )
    if softmax.outside < SATURATED:
        level, left = (ERROR, "no") if softmax.outside < DEAD else (WARNING, "hardly any")
        found += f" The loss is saturated: for half of the anchors {left} gradient is left."
        return Finding(CHECK, level, found, "Raise the temperature; 0.05 to 0.1 is usual.")
    if softmax.effective > FLAT * softmax.candidates:
        flat = "All candidates weigh nearly the same; a lower τ tells them apart."
        return Finding(CHECK, NOTE, f"{found} {flat}")
    return Finding(CHECK, NOTE, found)


def _student_vectors(planned: Planned, stage: Stage, texts: Mapping[str, list[str]]) -> dict[str, Tensor]:
    """The vectors that a new student gives some texts, (N, D), by role."""
    encoder = StudentEncoder(
        stage.student.build(),
        tokenizer_of(stage).path,
        stage.max_length,
        device=planned.device,
        autocast=stage.autocast,
        prompts=stage.prompts,
    )
    return {role: torch.from_numpy(encoder.encoded(role, each)) for role, each in texts.items()}
