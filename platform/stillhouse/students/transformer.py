"""A Hugging Face encoder, whole or with some of its layers, then pooling, projection and normalisation."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import Encoding, Tokens
from stillhouse.plan.data import Model
from stillhouse.students.backbone import (
    checked_layers,
    load_backbone,
    max_tokens,
    run_backbone,
    transformer_folder,
)
from stillhouse.students.head import own_head
from stillhouse.students.output_head import check_states, finish, make_projection
from stillhouse.students.pooling import pool

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TransformerStudent(nn.Module):
    """An encoder that starts from published weights.

    Attributes:
        backbone: The Hugging Face model without a pooler head; exactly what its own configuration builds.
        projection: W_proj (IBKD, eq. 11), H → D without bias; None when the pooled state is the vector.
        activation: What follows it, with a bias then; None for nothing.
        dim: D.
        hidden_size: H.
        max_tokens: Tokens of the longest text that the positions reach.
        tokenizer: The base model; its path holds the tokenizer's files.
    """

    version: ClassVar[int] = 2

    def __init__(
        self,
        base: Model,
        layers: Sequence[int] | None = None,
        pooling: str = "mean",
        normalize: bool | None = True,
        projection: int | None = None,
        projection_activation: str = "",
        dropout: float | None = None,
        attention: str = "sdpa",
        pretrained: bool = True,
        seed: int = 0,
    ) -> None:
        """Load the base model and keep the chosen layers.

        Args:
            base: A folder of sentence-transformers or of a plain Hugging Face encoder.
            layers: Layers of the base model to keep, counted from 0 and increasing; None keeps all.
            pooling: ``mean``, ``cls``, ``max``, or ``own``: what the base model's sentence-transformers
                modules say, the mean where it has none.
            normalize: Give vectors of length 1; None as those modules do.
            projection: Dimension after W_proj; None leaves W_proj out.
            projection_activation: ``tanh`` after a projection with a bias (HPD's dense layer); or empty.
            dropout: Takes the place of every dropout rate of the base model; None keeps them.
            attention: ``sdpa`` (the eager code where an architecture lacks it), ``eager`` or another
                implementation that transformers knows.
            pretrained: Take the base model's weights; else only its shape, with random weights.
            seed: Of everything random here. The global random state is left as it was.

        Raises:
            BadInput: A value out of range, a layer past the model, or a base that cannot be such a student.
        """
        super().__init__()
        if pooling == "own" or normalize is None:
            own = own_head(base)
            pooling = own.pooling if pooling == "own" else pooling
            normalize = own.normalize if normalize is None else normalize
        check_states(pooling=pooling, dropout=dropout)
        self.backbone: Any = load_backbone(base, layers, dropout, attention, pretrained, seed)
        self.hidden_size: int = self.backbone.config.hidden_size
        self.projection, self.activation = make_projection(
            self.hidden_size, projection, projection_activation, seed
        )
        self.dim = projection or self.hidden_size
        self.pooling, self.normalize = pooling, normalize
        self.max_tokens = max_tokens(self.backbone)
        self.tokenizer = dataclasses.replace(base, path=str(transformer_folder(base)))
        self.train()

    def embed_words(self, ids_N: Tensor) -> Tensor:
        """Word vectors of token ids, (N, H): one look-up for what `forward` may be given in parts."""
        words_NH: Tensor = self.backbone.get_input_embeddings()(ids_N)
        return words_NH

    def forward(self, tokens: Tokens, words_BTH: Tensor | None = None) -> Encoding:
        """Encode a batch; the embedding is float32 also under autocast.

        Args:
            tokens: The batch.
            words_BTH: Its word vectors, where they are looked up already; those of padding do not matter.

        Raises:
            BadInput: A text with more tokens than the model has positions.
        """
        last_BTH, hidden = run_backbone(self.backbone, self.max_tokens, tokens, words_BTH)
        pooled_BH = pool(self.pooling, last_BTH, tokens.attention_mask_BT)
        embedding_BD = finish(pooled_BH, self.projection, self.activation, normalize=self.normalize)
        return Encoding(embedding_BD, hidden, tokens.attention_mask_BT)

    def stock(self) -> "PreTrainedModel":
        """The encoder as stock transformers builds it."""
        backbone: PreTrainedModel = self.backbone
        return backbone


def select_layers(rule: str | Sequence[int], total: int, keep: int) -> tuple[int, ...]:
    """Which layers a rule keeps.

    Args:
        rule: ``first``, ``last``, ``every-other`` (layer ⌊i · total / keep⌋ for i < keep: spread evenly from
            layer 0 on), or the layers themselves.
        total: Layers of the base model.
        keep: Layers to keep; a list must have as many.

    Returns:
        Increasing indices from 0, as `TransformerStudent` takes them.

    Raises:
        BadInput: No such rule, more layers than there are, or a list that is not increasing.
    """
    require(1 <= keep <= total, "1 <= keep <= layers of the base model", keep=keep, layers=total)
    if not isinstance(rule, str):
        require(len(rule) == keep, "as many layers are listed as are kept", layers=list(rule), keep=keep)
        return checked_layers(rule, total)
    match rule:
        case "first":
            return tuple(range(keep))
        case "last":
            return tuple(range(total - keep, total))
        case "every-other":
            return tuple(index * total // keep for index in range(keep))
    raise BadInput(
        f"`layers in (first, last, every-other)` must hold, but got layers={rule!r}. A list such as "
        "[0, 2, 4] is taken too."
    )


def load_weights(student: nn.Module, path: str | Path, *, new: Sequence[str] = ("projection",)) -> None:
    """Go on from the weights of an earlier stage; a student with ``adapted`` says itself what it takes over.

    Args:
        student: Takes the weights.
        path: A safetensors file with the earlier student's state.
        new: Modules that the file may lack: they keep the weights they have.

    Raises:
        BadInput: The file is missing, or its tensors are not those of this student.
    """
    from safetensors.torch import load_file

    require(Path(path).is_file(), "the weights to start from exist", path=str(path))
    adapted: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] | None = getattr(student, "adapted", None)
    if adapted is not None:
        student.load_state_dict(adapted(load_file(path)), strict=False)
        return
    found, own = load_file(path), student.state_dict()
    missing = [name for name in own if name not in found and not name.startswith(tuple(f"{n}." for n in new))]
    unknown = [name for name in found if name not in own]
    reshaped = [name for name in found if name in own and found[name].shape != own[name].shape]
    require(
        not missing and not unknown and not reshaped,
        "the weights fit the student",
        path=str(path),
        missing=missing[:3],
        unknown=unknown[:3],
        other_shape=reshaped[:3],
        remedy="Start from a stage with the same layers, projection and vocabulary.",
    )
    student.load_state_dict(found, strict=False)
