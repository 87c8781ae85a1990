"""The contrastive loss at its first step: whether its temperature lets more than one candidate count.

B  texts of the sample, at most a batch    D  student's dimension    E  teacher's dimension
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stillhouse.core.identity import Spec
from stillhouse.core.roles import DOCUMENT, PLAIN, QUERY
from stillhouse.losses.contrastive import InfoNCE
from stillhouse.plan.stage import Stage
from stillhouse.preflight.finding import ERROR, NOTE, WARNING, Finding
from stillhouse.preflight.planned import Planned
from stillhouse.students.encoder import StudentEncoder, Vectors
from stillhouse.teachers.loading import tokenizer_of

CHECK = "temperature"
SATURATED = 1e-3
"""Share of the softmax outside its largest entry below which hardly any gradient is left for an anchor."""
DEAD = 1e-6
"""The same, below which float32 leaves none."""
FLAT = 0.99
"""Share of the candidates, as the exponential of the entropy, from which on all weigh nearly the same."""


@dataclass(frozen=True)
class Softmax:
    """The softmax over the candidates of an anchor, at the first step.

    Attributes:
        outside: Share outside of its largest entry; the median over the anchors.
        effective: Exponential of its entropy, the number of candidates that count; the median over the
            anchors.
        candidates: Number of candidates per anchor.
        loss: The mean loss.
    """

    outside: float
    effective: float
    candidates: int
    loss: float

    @classmethod
    def of(cls, logits_BB: Tensor) -> "Softmax":
        """Summarise logits whose positives are on the diagonal."""
        log_p_BB = logits_BB.double().log_softmax(dim=1)
        # 1 − max p, computed from the other entries: the difference itself is 0 below 1e-16.
        places_B = log_p_BB.argmax(dim=1, keepdim=True)
        others_BB = log_p_BB.scatter(1, places_B, float("-inf"))
        outside_B = others_BB.logsumexp(dim=1).exp()
        effective_B = -(log_p_BB.exp() * log_p_BB).sum(dim=1)
        loss = float(-log_p_BB.diagonal().mean())
        return cls(float(outside_B.median()), float(effective_B.exp().median()), len(logits_BB), loss)


def saturation(planned: Planned, vectors_NE: Vectors) -> list[Finding]:
    """Compute the first softmax of every contrast of a new student with its teacher, and judge it.

    Args:
        planned: The run.
        vectors_NE: The teacher's vectors of the first of the run's texts.
    """
    findings: list[Finding] = []
    for stage in planned.stages:
        if stage.start_from is not None or "text" not in stage.stores:
            continue
        for nce in contrasts(stage.objective):
            findings += _judged(planned, stage, nce, vectors_NE)
    return findings


def contrasts(objective: Spec[Any]) -> list[Spec[Any]]:
    """The contrasts of student and teacher in an objective, nested ones among them."""
    found = [objective] if objective.target is InfoNCE else []
    for value in objective.kwargs.values():
        if isinstance(value, Spec):
            found += contrasts(value)
    return found


def _judged(planned: Planned, stage: Stage, nce: Spec[Any], vectors_NE: Vectors) -> list[Finding]:
    batch = min(len(vectors_NE), stage.batch_size // stage.accumulate)
    if batch < 2:
        return []
    teacher_BE = torch.from_numpy(vectors_NE[:batch]).float()
    student_BD = torch.from_numpy(_student_vectors(planned, stage, batch))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stage.seed)
        loss: InfoNCE = nce.build(student_dim=student_BD.shape[1], teacher_dim=teacher_BE.shape[1])
    with torch.no_grad():
        softmax = Softmax.of(loss.temperature(loss.anchors(student_BD) @ loss.keys(teacher_BE).T))
    return [judge(softmax, stage.label, loss.temperature.temperature)]


def judge(softmax: Softmax, label: str, temperature: float) -> Finding:
    """Say what a first softmax means for training.

    Args:
        softmax: The softmax.
        label: The stage's label.
        temperature: τ.
    """
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


def _student_vectors(planned: Planned, stage: Stage, count: int) -> Vectors:
    """The vectors that a new student gives the first texts, (count, D)."""
    encoder = StudentEncoder(
        stage.student.build(),
        tokenizer_of(stage).path,
        stage.max_length,
        device=planned.device,
        autocast=stage.autocast,
        prompts=stage.prompts,
    )
    encode = {QUERY: encoder.encode_query, DOCUMENT: encoder.encode_document, PLAIN: encoder.encode}
    return encode[planned.role](planned.texts[:count])
