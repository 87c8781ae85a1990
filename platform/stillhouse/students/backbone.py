"""The Hugging Face part of a student: finding it, loading it, and reducing it to some of its layers.

A pruned model is rebuilt from its own configuration and then filled with weights, so stock transformers
builds the same model from what an export saves.
"""

import contextlib
import copy
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stillhouse.core.errors import BadInput, require
from stillhouse.core.model_folder import STATIC, read_folder
from stillhouse.core.types import Tokens
from stillhouse.students.cpu.attention import NAME
from stillhouse.students.cpu.packing import Packing, packed
from stillhouse.students.words import seeded
from stillhouse.values.data import Model

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


States = tuple[Tensor, Sequence[Tensor]]
"""The last state of every token, (B, T, H), and all hidden states, the embedding layer's first."""


def transformer_folder(base: Model) -> Path:
    """Find a model's transformer: the first module of a sentence-transformers folder, or else its root.

    Raises:
        BadInput: There is no ``config.json``.
    """
    stated = read_folder(Path(base.path))
    folder = stated.transformer
    if stated.static:
        raise BadInput(
            f"{base.name or base.path} is a table of token vectors ({STATIC}), which teaches through its "
            "vectors and has no layers to start from. Give the student a checkpoint that is a transformer, "
            "such as --student sentence-transformers/all-MiniLM-L6-v2."
        )
    if not (folder / "config.json").is_file():
        raise BadInput(
            f"The folder of a model must hold the config.json of a transformer, but {folder} has none. Give "
            "the folder of a sentence-transformers or Hugging Face encoder."
        )
    return folder


def layer_count(base: Model) -> int:
    """Return the number of layers of a base model, from its configuration alone."""
    return int(read_config(base).num_hidden_layers)


def read_config(base: Model) -> "PretrainedConfig":
    """Read the configuration of a base model; no weights are needed.

    Raises:
        BadInput: There is none, or it is not that of an encoder known to transformers.
    """
    return _config(transformer_folder(base))


def load_backbone(
    base: Model,
    layers: Sequence[int] | None,
    dropout: float | None,
    attention: str,
    pretrained: bool,
    seed: int,
) -> "PreTrainedModel":
    """Load a base model in float32, without its pooler head, with the chosen layers.

    Args:
        base: The model's folder.
        layers: Layers to keep, counted from 0 and increasing; None keeps all.
        dropout: Replaces every dropout rate; None keeps them.
        attention: ``sdpa`` falls back to eager code if the architecture has nothing else.
        pretrained: Load the published weights; otherwise use the shape with random weights.
        seed: Seed of random weights. The global random state is left unchanged.

    Raises:
        BadInput: Not an encoder known to transformers, weights that are pickled or incomplete, or layers that
            the model does not have.
    """
    folder = transformer_folder(base)
    config = _config(folder)
    if dropout is not None:
        _set_dropout(config, dropout)
    total = int(config.num_hidden_layers)
    kept = tuple(range(total)) if layers is None else checked_layers(layers, total)
    options = build_options(config, attention)
    with quiet():
        if not pretrained:
            return fresh(with_layers(config, kept), options, seed)
        whole = _pretrained(folder, config, options)
        if len(kept) == total:
            return whole
        part = fresh(with_layers(config, kept), options, seed)
    _copy_layers(whole, part, kept)
    return part


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress transformers' progress bars and reports about weights, which are checked here."""
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def max_tokens(backbone: "PreTrainedModel") -> int:
    """Return the number of tokens that the model has positions for."""
    for name, module in backbone.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa and its relatives count positions from the padding id on.
            unused = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - unused
    return int(getattr(backbone.config, "max_position_embeddings", 1 << 30))


def layer_stack(backbone: "PreTrainedModel") -> str:
    """Return the name of the module list that holds the model's layers.

    Raises:
        BadInput: The architecture does not keep its layers in a list.
    """
    total = int(backbone.config.num_hidden_layers)
    stacks = (
        name for name, m in backbone.named_modules() if isinstance(m, nn.ModuleList) and len(m) == total
    )
    stack = next(stacks, None)
    if stack is None:
        raise BadInput(
            f"A student's layers must be a module list, but {backbone.config.model_type} has none of "
            f"{total} layers."
        )
    return str(stack)


def run_backbone(
    backbone: "PreTrainedModel", positions: int, tokens: Tokens, words_BTH: Tensor | None
) -> States:
    """Compute the last state of every token, (B, T, H), and all hidden states, the embedding layer's first.

    Raises:
        BadInput: A text has more tokens than the model has positions.
    """
    _check_length(tokens.input_ids_BT.shape[1], positions)
    words = {"input_ids": tokens.input_ids_BT} if words_BTH is None else {"inputs_embeds": words_BTH}
    # A decoder would otherwise keep the keys and values of every layer for a next token.
    options = {"use_cache": False} if _caches(type(backbone).forward) else {}
    states: Any = backbone(
        **words, attention_mask=tokens.attention_mask_BT, output_hidden_states=True, **options
    )
    last_BTH: Tensor = states.last_hidden_state
    # A model without layers records no states: its output is the input of the first layer.
    return last_BTH, tuple(states.hidden_states or ()) or (last_BTH,)


def _check_length(longest: int, positions: int) -> None:
    require(
        longest <= positions,
        "tokens <= positions of the model",
        tokens=longest,
        positions=positions,
        remedy="Lower `max_length`.",
    )


_PACKED_TYPES = ("bert", "electra", "roberta", "xlm-roberta", "camembert")
"""Architectures whose layers treat tokens one by one but for attention, and which are told positions."""


def packs(backbone: "PreTrainedModel", device: torch.device) -> bool:
    """Return whether a batch can go through a model as one row, see `students.cpu.packing`.

    It can on a CPU, with this package's attention, in an architecture for which that is known to be the same.
    """
    config = backbone.config
    known = config.model_type in _PACKED_TYPES and not config.is_decoder
    learnt = getattr(config, "position_embedding_type", "absolute") in (None, "absolute")
    return device.type == "cpu" and known and learnt and config._attn_implementation == NAME


def run_packed(backbone: "PreTrainedModel", positions: int, packing: Packing) -> tuple[Tensor, ...]:
    """Compute all hidden states of a row, each (N, H), the embedding layer's first.

    Raises:
        BadInput: A text has more tokens than the model has positions.
    """
    _check_length(int(packing.positions_N.max()) + 1, positions)
    embeddings: Any = backbone.embeddings
    unused = embeddings.position_embeddings.padding_idx
    positions_N = packing.positions_N + (0 if unused is None else unused + 1)
    with packed(packing):
        states: Any = backbone(
            input_ids=packing.ids_N[None],
            position_ids=positions_N[None],
            # Handed on as it is, and not looked at: the attention knows the texts.
            attention_mask=torch.zeros(1, 1, 1, 1),
            output_hidden_states=True,
        )
    hidden = tuple(states.hidden_states or ()) or (states.last_hidden_state,)
    return (*(state[0] for state in hidden[:-1]), states.last_hidden_state[0])


class BackboneStudent(nn.Module):
    """A student whose encoder is a Hugging Face model.

    Attributes:
        backbone: The model.
        max_tokens: Number of its positions, which limits the tokens of a text.
    """

    backbone: Any
    max_tokens: int

    def embed_words(self, ids_N: Tensor) -> Tensor:
        """Look up the word vectors of token ids, (N, H), once for several calls of `forward`."""
        words_NH: Tensor = self.backbone.get_input_embeddings()(ids_N)
        return words_NH

    def packs(self, device: torch.device) -> bool:
        """Return whether a batch can go through the encoder as one row."""
        return packs(self.backbone, device)

    def run_packed(self, packing: Packing) -> tuple[Tensor, ...]:
        """Compute all hidden states of a row, each (N, H), the embedding layer's first."""
        return run_packed(self.backbone, self.max_tokens, packing)


@functools.cache
def _caches(forward: Callable[..., Any]) -> bool:
    return "use_cache" in inspect.signature(forward).parameters


def checked_layers(layers: Sequence[int], total: int) -> tuple[int, ...]:
    """Check layers and return them as a tuple.

    Raises:
        BadInput: No layers, a layer the model does not have, or layers that do not increase.
    """
    kept = tuple(layers)
    require(
        len(kept) > 0 and all(0 <= layer < total for layer in kept),
        f"0 <= layer <= {total - 1}",
        layers=kept,
        remedy=f"The base model has {total} layers, counted from 0.",
    )
    increasing = all(a < b for a, b in itertools.pairwise(kept))
    require(increasing, "layer < next layer", layers=kept, remedy="List every layer once, in order.")
    return kept


def _config(folder: Path) -> "PretrainedConfig":
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (
        *(ValueError, OSError, TypeError, KeyError, AttributeError, RecursionError),
        StrictDataclassError,
    ) as error:
        problem = str(error).strip().partition("\n")[0]
        raise BadInput(
            f"{folder / 'config.json'} must be one that transformers knows, but: {problem} Download or "
            "export the model again."
        ) from None
    part = any(name.endswith("EncoderModel") for name in config.architectures or ())
    if config.is_encoder_decoder or part or not hasattr(config, "num_hidden_layers"):
        raise BadInput(
            f"A student must be an encoder with layers, but {folder} holds a model of type "
            f"{config.model_type}."
        )
    checked: PretrainedConfig = config
    return checked


def build_options(config: "PretrainedConfig", attention: str) -> dict[str, Any]:
    """Return arguments that build the model without a pooler head, if the architecture has one."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    if type(config) not in MODEL_MAPPING:
        raise BadInput(
            f"The architecture of a student must be one of transformers' own, but got {config.model_type}."
        )
    # None lets transformers choose: sdpa if possible, otherwise eager.
    options: dict[str, Any] = {"attn_implementation": None if attention == "sdpa" else attention}
    architecture: Any = MODEL_MAPPING[type(config)]
    if "add_pooling_layer" in inspect.signature(architecture).parameters:
        options["add_pooling_layer"] = False
    return options


def _set_dropout(config: "PretrainedConfig", rate: float) -> None:
    for name, value in config.to_dict().items():
        if "dropout" in name and isinstance(value, int | float) and not isinstance(value, bool):
            setattr(config, name, rate)


def with_layers(config: "PretrainedConfig", kept: tuple[int, ...]) -> "PretrainedConfig":
    """Return the configuration of the same model with these layers; a layer may be listed several times."""
    pruned, total = copy.deepcopy(config), int(config.num_hidden_layers)
    for name, value in config.to_dict().items():
        if "layer" in name and isinstance(value, list) and len(value) == total:
            setattr(pruned, name, [value[index] for index in kept])
    pruned.num_hidden_layers = len(kept)
    return pruned


def fresh(config: "PretrainedConfig", options: dict[str, Any], seed: int) -> "PreTrainedModel":
    """Build a model with random weights; the global random state is left unchanged."""
    from transformers import AutoModel

    build: Any = AutoModel.from_config
    with seeded(seed):
        model: PreTrainedModel = build(config, dtype=torch.float32, **options)
    return model


def _pretrained(folder: Path, config: "PretrainedConfig", options: dict[str, Any]) -> "PreTrainedModel":
    from transformers import AutoModel

    if not any(folder.glob("*.safetensors")):
        raise BadInput(
            f"The weights of a model must be safetensors, but {folder} holds none. Pickled weights can run "
            "code and are not loaded; convert them first."
        )
    try:
        model, report = AutoModel.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            **options,
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise BadInput(
            f"The weights of a model must have the shapes that its config.json states, but loading {folder} "
            f"gave: {error}. Download or export the model again."
        ) from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise BadInput(f"The weights of a model must be complete, but in {folder} {missing[:3]} are missing.")
    loaded: PreTrainedModel = model
    return loaded


def _copy_layers(whole: "PreTrainedModel", part: "PreTrainedModel", kept: tuple[int, ...]) -> None:
    stack = layer_stack(whole)
    weights, moved = whole.state_dict(), {}
    renamed = {f"{stack}.{old}.": f"{stack}.{new}." for new, old in enumerate(kept)}
    for name, tensor in weights.items():
        if not name.startswith(f"{stack}."):
            moved[name] = tensor
            continue
        prefix = ".".join(name.split(".")[: stack.count(".") + 2]) + "."
        if prefix in renamed:
            moved[renamed[prefix] + name.removeprefix(prefix)] = tensor
    differing = sorted(set(moved) ^ set(part.state_dict()))
    if differing:
        raise BadInput(
            f"Layers {list(kept)} of {whole.config.model_type} do not fit their new positions: "
            f"{differing[:3]} differ. In this architecture the first layer differs from the others: keep "
            "layer 0."
        )
    own = part.state_dict()
    reshaped = sorted(name for name, tensor in moved.items() if tensor.shape != own[name].shape)
    if reshaped:
        raise BadInput(
            f"A student of {whole.config.model_type} must keep all of its layers, but got "
            f"layers={list(kept)}: {reshaped[:3]} hold weights of all layers together. Keep all layers, or "
            "start from another checkpoint (student.checkpoint)."
        )
    part.load_state_dict(moved)
