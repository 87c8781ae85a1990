"""Measurements during training: the dev metrics, and whether the student's vectors have collapsed."""

import platform
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import nn

from stillhouse.core.roles import NO_PROMPTS, Prompts
from stillhouse.core.types import Encoder, FloatArray, PairModel
from stillhouse.evaluation.vector_geometry import collapse
from stillhouse.students.encoder import StudentEncoder, evaluating
from stillhouse.students.pair_scorer import PairScorer
from stillhouse.training.checkpoint import rng_untouched
from stillhouse.training.held_out import HELDOUT_LOSS, held_out_loss
from stillhouse.training.module import StudentAndObjective, tower_of
from stillhouse.training.scorer import with_scores
from stillhouse.training.table import TrainingTable
from stillhouse.values.stage import Stage

Evaluate = Callable[[Encoder], dict[str, float]]

WATCHED, AT_ONCE = 128, 32


def measure(
    module: StudentAndObjective,
    stage: Stage,
    table: TrainingTable,
    device: str,
    evaluate: Evaluate | None,
    held_out: TrainingTable | None = None,
) -> tuple[dict[str, float], str | None]:
    """Evaluate the student, with its scores if the objective gives any.

    The random generators and the training mode are left unchanged.

    Returns:
        The dev metrics, and the reason why the student counts as collapsed, or None.
    """
    student = module.student
    with rng_untouched(), evaluating(student):
        if isinstance(student, PairModel):  # It gives no vectors that could collapse.
            scorer = encoder_of(student, stage.max_length, stage.autocast, device, stage.prompts)
            return ({} if evaluate is None else dict(evaluate(scorer))), None
        vectors = watched_vectors(student, table, device)
        few = module.objective.few_directions
        reason = collapse(vectors, few_directions=few) if len(vectors) >= 2 else None
        if reason is not None or evaluate is None:
            return {}, reason
        encoder = encoder_of(student, stage.max_length, stage.autocast, device, stage.prompts)
        metrics = dict(evaluate(with_scores(encoder, module.objective, list(stage.examples.columns))))
        if held_out is not None:
            metrics[HELDOUT_LOSS] = held_out_loss(module, stage, held_out, device)
        return metrics, None


def watched_vectors(student: nn.Module, table: TrainingTable, device: str) -> FloatArray:
    """Encode a few texts with the student, the same texts at every call."""
    tower = tower_of(student, next(iter(table.rows)))
    with torch.no_grad():
        parts = [
            tower(tokens.to(device)).embedding_BD.float().cpu().numpy()
            for tokens in table.sample(WATCHED, AT_ONCE)
        ]
    return np.concatenate(parts)


def encoder_of(
    student: Any, max_length: int, autocast: str, device: str, prompts: Prompts = NO_PROMPTS
) -> Any:
    """Wrap a student as an encoder, or as a scorer if it reads the texts of a pair jointly."""
    tokenizer = student.tokenizer.path
    if isinstance(student, PairModel):
        assert not prompts, "an experiment with pairs that are read jointly refuses prompts"
        return PairScorer(student, tokenizer, max_length, device=device, autocast=autocast)
    return StudentEncoder(student, tokenizer, max_length, device=device, autocast=autocast, prompts=prompts)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that determine the results."""
    packages = ("torch", "transformers", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
