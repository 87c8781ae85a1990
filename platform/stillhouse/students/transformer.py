"""A Hugging Face encoder, whole or with some of its layers, then pooling, projection and normalisation."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from stillhouse.core.errors import BadInput, require
from stillhouse.core.tensors import read_tensors
from stillhouse.core.types import Encoding, StockModule, Tokens, WeightAdapter
from stillhouse.students.backbone import (
    BackboneStudent,
    States,
    checked_layers,
    load_backbone,
    max_tokens,
    run_backbone,
    transformer_folder,
)
from stillhouse.students.export.folder_modules import (
    COMPACT,
    UNTIED,
    Transformer,
    output_modules,
    pooling_modules,
)
from stillhouse.students.head import load_dense, load_pooler, own_head
from stillhouse.students.output_head import check_states, finish, make_projection
from stillhouse.students.pooling import POOLER, POOLINGS, pool
from stillhouse.values.data import Model

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TransformerStudent(BackboneStudent):
    """An encoder that starts from published weights.

    Attributes:
        backbone: The Hugging Face model without a pooler head; exactly what its own configuration builds.
        pooler: The base model's pooler, H → H with a bias and tanh; None unless ``pooling`` is ``pooler``.
        dense: The base model's own linear layers after the pooling, multiplied into one; None without them.
        projection: W_proj (IBKD, eq. 11), without bias, to D dimensions; None omits it.
        activation: The activation after the projection, which then has a bias; None for no activation.
        dim: D.
        hidden_size: H.
        max_tokens: Number of positions, which limits the tokens of a text.
        tokenizer: The base model; its path holds the tokenizer's files.
    """

    version: ClassVar[int] = 2
    unless_default: ClassVar[tuple[str, ...]] = ("freeze_words", "dense")
    export_sides: ClassVar[tuple[str, ...]] = ()

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
        freeze_words: bool = False,
        dense: bool = False,
    ) -> None:
        """Load the base model and keep the chosen layers.

        Args:
            base: A folder of sentence-transformers or of a plain Hugging Face encoder.
            layers: Layers of the base model to keep, counted from 0 and increasing; None keeps all.
            pooling: ``mean``, ``cls``, ``max``, ``last``, ``pooler`` (BERT's layer with tanh after [CLS]), or
                ``own``: the base model's own (`students.head.own_head`).
            normalize: Return vectors of length 1; None does as those modules do.
            projection: Dimension after W_proj; None omits W_proj.
            projection_activation: ``tanh`` after a projection with a bias (HPD's dense layer), or empty.
            dropout: Replaces every dropout rate of the base model; None keeps them.
            attention: ``sdpa`` (eager code where an architecture lacks it), ``eager`` or another
                implementation that transformers knows.
            pretrained: Load the base model's weights; otherwise use its shape with random weights.
            seed: Seed of all random weights. The global random state is left unchanged.
            freeze_words: Keep the word vectors of the base model unchanged.
            dense: Keep the linear layers that the base model has after its pooling, as one, and train it on.

        Raises:
            BadInput: A value out of range, a layer the model does not have, or an unsuitable base.
        """
        super().__init__()
        if pooling == "own" or normalize is None:
            own = own_head(base)
            pooling = own.pooling if pooling == "own" else pooling
            normalize = own.normalize if normalize is None else normalize
            dense = own.dense
        check_states(pooling=pooling, dropout=dropout, poolings=(*POOLINGS, POOLER))
        self.backbone: Any = load_backbone(base, layers, dropout, attention, pretrained, seed)
        self.hidden_size: int = self.backbone.config.hidden_size
        self.pooler = load_pooler(base) if pooling == POOLER else None
        self.dense = load_dense(base) if dense else None
        width = self.dense.out_features if self.dense else self.hidden_size
        self.projection, self.activation = make_projection(width, projection, projection_activation, seed)
        self.dim = projection or width
        self.pooling, self.normalize = pooling, normalize
        self.max_tokens = max_tokens(self.backbone)
        self.tokenizer = dataclasses.replace(base, path=str(transformer_folder(base)))
        self.backbone.get_input_embeddings().requires_grad_(not freeze_words)
        self.train()

    @property
    def depth(self) -> int:
        """Number of layers, without the embedding layer."""
        return int(self.backbone.config.num_hidden_layers)

    def forward(
        self, tokens: Tokens, words_BTH: Tensor | None = None, states: States | None = None
    ) -> Encoding:
        """Encode a batch; the embedding is float32 also under autocast.

        Word vectors that are looked up already may be given; those of padding do not matter. So may the last
        state, (B, T, H), and all hidden states, if the encoder has run already.

        Raises:
            BadInput: A text has more tokens than the model has positions.
        """
        last_BTH, hidden = states or run_backbone(self.backbone, self.max_tokens, tokens, words_BTH)
        pooled_BH = pool(self.pooling, last_BTH, tokens.attention_mask_BT)
        if self.pooler is not None:
            pooled_BH = finish(pooled_BH, self.pooler, torch.tanh, normalize=False)
        if self.dense is not None:
            pooled_BH = finish(pooled_BH, self.dense, None, normalize=False)
        embedding_BD = finish(pooled_BH, self.projection, self.activation, normalize=self.normalize)
        return Encoding(embedding_BD, hidden, tokens.attention_mask_BT)

    def stock(self) -> "PreTrainedModel":
        """Return the encoder as stock transformers builds it."""
        backbone: PreTrainedModel = self.backbone
        return backbone

    def stock_modules(self) -> Sequence[StockModule]:
        """List the encoder, its pooling, and the dense layer, the projection and the norm if present."""
        return (
            Transformer(self.stock),
            *pooling_modules(self.hidden_size, self.pooling, self.pooler),
            *output_modules(self.dense, None, normalize=False),
            *output_modules(self.projection, self.activation, normalize=self.normalize),
        )

    def why_not(self, form: str) -> str:
        """Say why it cannot be exported in a form; empty if it can."""
        return UNTIED if form == COMPACT else ""


def select_layers(rule: str | Sequence[int], total: int, keep: int) -> tuple[int, ...]:
    """Select layers of a base model by a rule.

    Args:
        rule: ``spread`` (layer ⌊i · (total - 1) / (keep - 1)⌋ for i < keep: the first, the last, and evenly
            between them; of one layer, the last), ``every-other`` (layer ⌊i · total / keep⌋), ``first``,
            ``last``, ``all``, or a list of layers.
        total: Number of layers of the base model.
        keep: Number of layers to keep; a list must have this length.

    Returns:
        Increasing indices from 0, as `TransformerStudent` takes them.

    Raises:
        BadInput: Unknown rule, more layers than the model has, or a list that is not increasing.
    """
    require(1 <= keep <= total, "1 <= keep <= layers of the base model", keep=keep, layers=total)
    if not isinstance(rule, str):
        require(len(rule) == keep, "len(layers) == keep", layers=list(rule), keep=keep)
        return checked_layers(rule, total)
    match rule:
        case "first":
            return tuple(range(keep))
        case "last":
            return tuple(range(total - keep, total))
        case "spread":
            if keep == 1:
                return (total - 1,)
            return tuple(index * (total - 1) // (keep - 1) for index in range(keep))
        case "all":
            require(keep == total, "layers = all keeps every layer", keep=keep, layers=total)
            return tuple(range(total))
        case "every-other":
            return tuple(index * total // keep for index in range(keep))
    raise BadInput(
        f"`layers in (spread, every-other, first, last, all)` must hold, but got layers={rule!r}. A list "
        "such as [0, 2, 5] is accepted too."
    )


def load_weights(student: nn.Module, path: str | Path, *, new: Sequence[str] = ("projection",)) -> None:
    """Load the weights of an earlier stage; a `WeightAdapter` selects itself what it takes over.

    The file may lack the modules ``new``, which keep their current weights.

    Raises:
        BadInput: The file is missing, or its tensors do not fit this student.
    """
    if not Path(path).is_file():
        raise BadInput(f"The weights to start from must exist, but there is no file {path}.")
    if isinstance(student, WeightAdapter):
        student.load_state_dict(student.adapted(read_tensors(Path(path))), strict=False)
        return
    found, own = read_tensors(Path(path)), student.state_dict()
    missing = [name for name in own if name not in found and not name.startswith(tuple(f"{n}." for n in new))]
    unknown = [name for name in found if name not in own]
    reshaped = [name for name in found if name in own and found[name].shape != own[name].shape]
    if missing or unknown or reshaped:
        raise BadInput(
            f"The weights must fit the student, but for {path} missing={missing[:3]}, unknown={unknown[:3]}, "
            f"other_shape={reshaped[:3]}. Start from a stage with the same layers, projection and vocabulary."
        )
    student.load_state_dict(found, strict=False)
