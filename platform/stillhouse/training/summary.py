"""The manifest of a finished stage."""

from dataclasses import asdict
from typing import Any

import torch

from stillhouse.core.distributed import world_size
from stillhouse.core.identity import canonical
from stillhouse.training.progress import Progress
from stillhouse.training.rebuild import describe
from stillhouse.training.soup import Soup
from stillhouse.training.term_gradients import mean_shares
from stillhouse.training.watch import versions
from stillhouse.values.stage import Stage


def summary(
    stage: Stage,
    progress: Progress,
    examples: int,
    chosen: int,
    sha256: str,
    dropped: int,
    teacher_dim: int | None,
    soup: Soup | None = None,
) -> dict[str, Any]:
    """Summarise a finished run, whose weights are those of the chosen step.

    Examples are dropped that lack a teacher's vector. The dimension is None if no teacher was read.
    """
    curve = progress.curve
    return {
        "label": stage.label,
        "fingerprint": stage.fingerprint,
        "steps": progress.step,
        "examples": examples,
        "chosen_step": chosen,
        "seconds": round(progress.seconds, 3),
        "workers": world_size(),
        "threads": torch.get_num_threads(),
        "metrics": next((point.metrics for point in curve if point.step == chosen), {}),
        "evaluations": [
            {"step": point.step, "examples": point.examples, "metrics": point.metrics} for point in curve
        ],
        **({"soup": asdict(soup)} if soup is not None else {}),
        "gradient_shares": mean_shares(progress.gradient_shares),
        "weights_sha256": sha256,
        "dropped_examples": dropped,
        "max_length": stage.max_length,
        **({"prompts": vars(stage.prompts)} if stage.prompts else {}),
        "student": describe(stage.student),
        "objective": describe(stage.objective),
        "teacher_dim": teacher_dim,
        "columns": list(stage.examples.columns),
        "versions": versions(),
        "plan": canonical(stage),
    }
