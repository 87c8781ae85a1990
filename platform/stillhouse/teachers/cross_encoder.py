"""Published cross-encoders as teachers of retrieval distillation: any that sentence-transformers loads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray
from stillhouse.students.backbone import quiet
from stillhouse.teachers.weights import on_this_machine, resolve_model
from stillhouse.values.data import Model

_CLASSIFIER = "ForSequenceClassification"


class CrossEncoderScorer:
    """A scorer of pairs by the logits of a cross-encoder with one label.

    A pair is cut at ``max_length`` tokens, or at the model's positions.

    Raises:
        BadInput: sentence-transformers cannot load it, or it has no head or several labels.
    """

    def __init__(self, model: Model, max_length: int, device: str = "cpu") -> None:
        from sentence_transformers import CrossEncoder

        check_cross_encoder(model)
        local = on_this_machine(model)
        try:
            with quiet():
                self.student: Any = CrossEncoder(
                    local.path,
                    device=device,
                    local_files_only=True,
                    trust_remote_code=False,
                    model_kwargs={"use_safetensors": True, "dtype": "float32"},
                    max_length=min(max_length, getattr(_config(local), "max_position_embeddings", 512)),
                    activation_fn=nn.Identity(),
                ).eval()
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise BadInput(
                f"{model.name or model.path} must be a cross-encoder that sentence-transformers loads, but "
                f"loading it gave: {error}"
            ) from error

    def score(self, first: Sequence[str], second: Sequence[str] | None = None) -> FloatArray:
        """Score pairs, (N, 1), in their order."""
        assert second is not None, "a cross-encoder reads pairs"
        pairs = list(zip(first, second, strict=True))
        scores_N = self.student.predict(pairs, batch_size=32, show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(scores_N, np.float32).reshape(len(pairs), 1)


def published_cross_encoder(name: str) -> Model | None:
    """The cross-encoder of that name or path; None for an empty name.

    Raises:
        BadInput: There is no such model, or it does not give a single score per pair.
    """
    if not name:
        return None
    model = resolve_model(name)
    check_cross_encoder(model)
    return model


def check_cross_encoder(model: Model) -> None:
    """Refuse a model that does not give exactly one score per pair.

    Raises:
        BadInput: No classification head, or several labels.
    """
    config, name = _config(model), model.name or model.path
    heads = list(getattr(config, "architectures", None) or [])
    if not any(head.endswith(_CLASSIFIER) for head in heads):
        raise BadInput(
            f"A cross-encoder must have a trained head (a model for sequence classification), but {name} has "
            f"architectures={heads}. Give a cross-encoder such as cross-encoder/ms-marco-MiniLM-L6-v2, not "
            "an embedding model."
        )
    if config.num_labels != 1:
        raise BadInput(
            f"A cross-encoder that ranks has one label, but {name} has {config.num_labels}. A model with "
            "several labels, such as an NLI model, gives no score to rank by."
        )


def _config(model: Model) -> Any:
    from transformers import AutoConfig

    folder = Path(on_this_machine(model).path)
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"{folder} must hold a model's config.json, but reading it gave: {error}") from error
