"""A small student of a multilingual encoder: a few tied layers applied repeatedly, and narrow word vectors.

Ding et al., Multi-stage Distillation Framework for Cross-Lingual Semantic Similarity Matching, Findings of
NAACL 2022, §3.1.3: the recurring unit RU is the first |RU| layers of the base (eq. 1), applied repeatedly
until the base's depth is reached; the embedding bottleneck B reduces the word vectors from V·H to V·B + B·H
parameters.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import Encoding, StockModule, Tokens
from stillhouse.students.backbone import (
    BackboneStudent,
    States,
    build_options,
    fresh,
    layer_count,
    layer_stack,
    load_backbone,
    max_tokens,
    quiet,
    run_backbone,
    transformer_folder,
    with_layers,
)
from stillhouse.students.export.folder_modules import STOCK, Pooling, Transformer, output_modules
from stillhouse.students.factorised import narrow_words, words_name
from stillhouse.students.output_head import check_states, finish, make_projection
from stillhouse.students.pooling import pool
from stillhouse.values.data import Model

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Recurring(nn.Module):
    """A model's list of layers that are stored once and applied ``repeats`` times, round after round.

    Its parameters are named as in a plain list of the layers, so the weights are saved once.
    """

    def __init__(self, layers: nn.ModuleList, repeats: int) -> None:
        super().__init__()
        self.repeats = repeats
        for name, layer in layers.named_children():
            self.add_module(name, layer)

    def __len__(self) -> int:
        """The number of layers that a text passes through."""
        return len(self._modules) * self.repeats

    def __iter__(self) -> Iterator[nn.Module]:
        """Iterate over the layers in the order in which a text passes through them."""
        for _ in range(self.repeats):
            yield from self.children()


class RecurrentStudent(BackboneStudent):
    """Some layers of an encoder, the first ones in the paper, applied repeatedly with tied weights.

    Attributes:
        backbone: The Hugging Face model, its list of layers a `Recurring`, its word table a
            `FactorisedEmbedding` where there is a bottleneck.
        projection: The kept layer, H → D without bias; None omits it.
        dim: D, otherwise H.
        hidden_size: H.
        repeats: Number of times the unit is applied.
        max_tokens: Number of positions, which limits the tokens of a text.
        tokenizer: The base model; its path holds the tokenizer's files.
    """

    version: ClassVar[int] = 1
    export_sides: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        base: Model,
        unit: int,
        repeats: int | None = None,
        bottleneck: int = 0,
        bottleneck_start: str = "random",
        pooling: str = "mean",
        normalize: bool = False,
        dropout: float | None = None,
        attention: str = "sdpa",
        pretrained: bool = True,
        seed: int = 0,
        layers: Sequence[int] | None = None,
        projection: int | None = None,
    ) -> None:
        """Load the base model and make some of its layers recur.

        Args:
            base: A folder of sentence-transformers or of a plain Hugging Face encoder.
            unit: |RU|, the number of layers of the base that are kept.
            repeats: How often they are applied; None reaches the base's depth. With 0 the embedding is the
                pooled output of the embedding layer (stage 2), and the layers stay untrained until a later
                stage.
            bottleneck: B, of the word vectors alone: positions, types and LayerNorm stay at H. 0 disables it.
            bottleneck_start: ``random``, as in the paper, or ``svd``: the best approximation of the word
                table of the base, or of the earlier student given to `adapted`.
            pooling: ``mean``, ``cls``, ``max`` or ``last``.
            normalize: Return vectors of length 1.
            dropout: Replaces every dropout rate of the base model; None keeps them.
            attention: ``sdpa`` (eager code where an architecture lacks it), ``eager`` or another
                implementation that transformers knows.
            pretrained: Load the base model's weights; otherwise use its shape with random weights.
            seed: Seed of all random weights. The global random state is left unchanged.
            layers: Which layers of the base are kept, |RU| of them, increasing; None keeps the first.
            projection: D, the dimension after a linear layer that the student keeps; None omits it.

        Raises:
            BadInput: A value out of range, or an unsuitable base.
        """
        super().__init__()
        check_states(pooling=pooling, dropout=dropout)
        kept = tuple(range(unit)) if layers is None else tuple(layers)
        require(len(kept) == unit, "len(layers) = unit", layers=list(kept), unit=unit)
        self.repeats = checked_repeats(unit, repeats, layer_count(base))
        with quiet():
            backbone: Any = load_backbone(base, kept, dropout, attention, pretrained, seed)
        self.hidden_size: int = backbone.config.hidden_size
        starts = ("random", "svd")
        require(
            bottleneck_start in starts, f"bottleneck_start in {starts}", bottleneck_start=bottleneck_start
        )
        table_VH = backbone.get_input_embeddings().weight
        narrow_words(backbone, bottleneck, seed)
        self.bottleneck_start = bottleneck_start
        if bottleneck and bottleneck_start == "svd":
            narrowed = backbone.get_input_embeddings()
            narrowed.load_state_dict(narrowed.approximate(table_VH))
        self._stack = layer_stack(backbone)
        recurring = Recurring(backbone.get_submodule(self._stack), self.repeats)
        backbone.set_submodule(self._stack, recurring)
        if not self.repeats:
            # Parameters outside the list, such as a bias shared by all layers, stay untrained too.
            backbone.get_submodule(self._stack.rpartition(".")[0] or self._stack).requires_grad_(False)
        self.backbone: Any = backbone
        self.projection, _ = make_projection(self.hidden_size, projection, "", seed)
        self.dim = projection or self.hidden_size
        self.unit, self.bottleneck = unit, bottleneck
        self.pooling, self.normalize = pooling, normalize
        self.max_tokens = max_tokens(backbone)
        self.tokenizer = dataclasses.replace(base, path=str(transformer_folder(base)))
        self.train()

    def forward(
        self, tokens: Tokens, words_BTH: Tensor | None = None, states: States | None = None
    ) -> Encoding:
        """Encode a batch; the embedding is float32 even under autocast.

        Word vectors that are looked up already may be given; those of padding do not matter. So may the last
        state, (B, T, H), and all hidden states, if the encoder has run already.

        Raises:
            BadInput: A text has more tokens than the model has positions.
        """
        last_BTH, hidden = states or run_backbone(self.backbone, self.max_tokens, tokens, words_BTH)
        pooled_BH = pool(self.pooling, last_BTH, tokens.attention_mask_BT)
        embedding_BD = finish(pooled_BH, self.projection, None, normalize=self.normalize)
        return Encoding(embedding_BD, hidden, tokens.attention_mask_BT)

    def adapted(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Select what this student takes over from an earlier one of the same base.

        Args:
            state: The state of a `TransformerStudent` or `RecurrentStudent` with at least as many layers.

        Returns:
            Its first |RU| layers and its embedding layer, the word vectors only if they are factorised alike
            or can be by ``svd``; for ``load_state_dict(…, strict=False)``. Layers past the unit and a
            projection are left out.

        Raises:
            BadInput: The earlier student has fewer layers, or another shape.
        """
        own, words = self.state_dict(), f"backbone.{words_name(self.backbone)}."
        rest = [name for name in own if not name.startswith((words, "projection."))]
        missing = [name for name in rest if name not in state]
        reshaped = [name for name in rest if name in state and state[name].shape != own[name].shape]
        if missing or reshaped:
            raise BadInput(
                f"The earlier student must have the first layers of this one, but missing={missing[:3]}, "
                f"other_shape={reshaped[:3]}. Start from a student of the same base with at least as many "
                "layers."
            )
        table = [name for name in own if name.startswith(words)]
        alike = all(name in state and state[name].shape == own[name].shape for name in table)
        taken = {name: state[name] for name in (own if alike else rest)}
        whole = state.get(f"{words}weight")
        if not alike and whole is not None and self.bottleneck and self.bottleneck_start == "svd":
            near = self.backbone.get_input_embeddings().approximate(whole)
            taken |= {f"{words}{name}": weight for name, weight in near.items()}
        return taken

    def stock(self) -> "PreTrainedModel":
        """Build the same encoder as stock transformers has it: tied layers repeated, B·H multiplied out.

        Raises:
            BadInput: No layers are applied, or the architecture's layers differ by their position.
        """
        require(self.repeats >= 1, "repeats >= 1", repeats=self.repeats, remedy="Export a later stage.")
        backbone = self.backbone
        config = with_layers(backbone.config, tuple(range(self.unit)) * self.repeats)
        with quiet():
            model: Any = fresh(config, build_options(config, "sdpa"), seed=0)
        words, stack = f"{words_name(backbone)}.", f"{self._stack}."
        weights: dict[str, Tensor] = {}
        for name, tensor in backbone.state_dict().items():
            if name.startswith(stack):
                at, rest = name.removeprefix(stack).split(".", 1)
                places = range(int(at), self.unit * self.repeats, self.unit)
                weights.update({f"{stack}{place}.{rest}": tensor for place in places})
            elif not (self.bottleneck and name.startswith(words)):
                weights[name] = tensor
        if self.bottleneck:
            weights[f"{words}weight"] = backbone.get_input_embeddings().multiplied_VH().detach()
        differing = sorted(set(weights) ^ set(model.state_dict()))
        if differing:
            raise BadInput(
                f"The layers of {config.model_type} differ in {differing[:3]} and cannot be unrolled. Write "
                "the compact form."
            )
        model.load_state_dict(weights)
        model.eval()
        whole: PreTrainedModel = model
        return whole

    def stock_modules(self) -> Sequence[StockModule]:
        """List the unrolled encoder, its pooling, and the norm if present."""
        return (
            Transformer(self.stock),
            Pooling(self.hidden_size, self.pooling),
            *output_modules(self.projection, None, normalize=self.normalize),
        )

    def why_not(self, form: str) -> str:
        """Say why it cannot be exported in a form; empty if it can."""
        if form == STOCK and not self.repeats:
            return "it applies no layers, and is a stage on the way to a student that does"
        return ""


def checked_repeats(unit: int, repeats: int | None, depth: int) -> int:
    """Return how often a unit is applied, by default depth / unit.

    Raises:
        BadInput: The base has no such unit, or the unit does not divide its depth where it must.
    """
    require(1 <= unit <= depth, "1 <= unit <= layers of the base model", unit=unit, layers=depth)
    require(repeats is None or repeats >= 0, "repeats >= 0", repeats=repeats)
    if repeats is not None:
        return repeats
    remedy = "Otherwise give the number of times that the unit is applied (repeats)."
    require(depth % unit == 0, "layers of the base % unit = 0", unit=unit, layers=depth, remedy=remedy)
    return depth // unit
