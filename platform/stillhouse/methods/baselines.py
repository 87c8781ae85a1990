"""What a sweep of a method is compared with: the same recipe with another distillation loss, or with none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stillhouse.tracking import MSE_BASELINE


@dataclass(frozen=True)
class Baseline:
    """The baseline of a method. Its hyper-parameters are the method's own where both have them.

    Attributes:
        title: Its name in tables.
        method: The method that trains it; empty for the method itself.
        values: Hyper-parameters that make it a baseline.
        rates: Learning rates that are searched where the sweep itself searches none for that stage.
        named: Its hyper-parameters that the method has under another name, and that name.
    """

    title: str = MSE_BASELINE
    method: str = "mse"
    values: Mapping[str, Any] = field(default_factory=dict)
    rates: Mapping[str, tuple[float, ...]] = field(
        default_factory=lambda: {
            "learning_rate": (1e-4, 3e-4, 1e-3),
            "finetune_learning_rate": (3e-5, 1e-4, 3e-4),
        }
    )
    named: Mapping[str, str] = field(
        default_factory=lambda: {
            "learning_rate": "distil_learning_rate",
            "batch_size": "distil_batch_size",
            "finetune_share_negatives": "share_negatives",
        }
    )


MSE = Baseline()
"""The baseline of methods that name none: the student that is trained with the mean squared error."""

SUPERVISED = Baseline("InfoNCE baseline", method="simcse", rates={"learning_rate": (3e-5, 1e-4, 3e-4)})
"""The student of a method that distils labelled text, without a teacher."""


def plain_bilstm(method: str = "bilstm_kd", **named: str) -> Baseline:
    """The BiLSTM without a teacher, on the labels alone; ``method`` and ``named`` are those of `Baseline`."""
    return Baseline(
        "plain BiLSTM",
        method=method,
        values={"fits": "logits", "kd_weight": 0.0, "augment": "none"},
        rates={"learning_rate": (2e-4, 5e-4, 1e-3)},
        named=named,
    )
