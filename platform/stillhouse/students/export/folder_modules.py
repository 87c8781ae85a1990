"""The modules of a sentence-transformers folder, one value each: what students build their exports from.

The files carry the names and keys that every release of sentence-transformers since 2.0 reads.
"""

import inspect
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from stillhouse.core.artifacts import write_json
from stillhouse.core.errors import BadInput, require
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.core.types import StockModule
from stillhouse.students.backbone import quiet
from stillhouse.students.lstm import MaskedLSTM

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FORMATS = STOCK, ONNX, ONNX_INT8, COMPACT = ("sentence-transformers", "onnx", "onnx-int8", "compact")
"""The forms in which a student can be exported; see `students.export.formats`."""
TOWERS = "towers"
"""The form of a student of two sides: two folders of sentence-transformers and their joiner."""
ROUTED = "asymmetric"
"""The form of a student for the queries and its teacher for the documents, in one folder."""
UNTIED = "no layers are tied in this student: its own weights are as small"
"""Why most students have no compact form."""

SETTINGS = "sentence_bert_config.json"
"""The file with the settings of a Transformer module."""
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
)
_MODES = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
}
_LATER_MODES = {"last": "pooling_mode_lasttoken"}
"""Modes that older releases of sentence-transformers do not know, even where they are off."""


@dataclass(frozen=True)
class Transformer:
    """A Hugging Face encoder, as stock transformers builds it, with its tokenizer."""

    name: ClassVar[str] = "Transformer"
    at_root: ClassVar[bool] = True

    build: "Callable[[], PreTrainedModel]"

    def write(self, folder: Path, tokenizer_path: Path, max_length: int) -> None:
        """Write configuration, weights, tokenizer and settings.

        Raises:
            BadInput: No tokenizer files, or an encoder that stock transformers cannot build.
        """
        backbone = self.build()
        with quiet():
            backbone.save_pretrained(folder)
        write_tokenizer(tokenizer_path, folder, max_length)
        # Lower-casing is in the tokenizer that was written.
        settings = {"max_seq_length": max_length, "do_lower_case": False}
        write_json(folder / SETTINGS, settings | without_pooler(backbone))


@dataclass(frozen=True)
class StaticEmbedding:
    """A table of token vectors, (V, D), with its tokenizer, and their mean."""

    name: ClassVar[str] = "StaticEmbedding"
    at_root: ClassVar[bool] = True

    words: nn.Embedding

    def write(self, folder: Path, tokenizer_path: Path, max_length: int) -> None:
        """Write table and tokenizer, which carries the length: StaticEmbedding has no setting for it."""
        FastTokenizer(tokenizer_path, max_length).write_static(folder / "tokenizer.json")
        save({"embedding.weight": self.words.weight}, folder)


@dataclass(frozen=True)
class WordEmbeddings:
    """Word vectors, (V, d), with their tokenizer."""

    name: ClassVar[str] = "WordEmbeddings"
    at_root: ClassVar[bool] = False

    words: nn.Embedding

    def write(self, folder: Path, tokenizer_path: Path, max_length: int) -> None:
        """Write vectors, tokenizer and settings.

        Raises:
            BadInput: No tokenizer files, or a tokenizer that does not load.
        """
        save({"emb_layer.weight": self.words.weight}, folder)
        write_tokenizer(tokenizer_path, folder, max_length)
        settings = {
            "tokenizer_class": "sentence_transformers.models.tokenizer.TransformersTokenizerWrapper",
            "update_embeddings": self.words.weight.requires_grad,
            "max_seq_length": max_length,
        }
        write_json(folder / "wordembedding_config.json", settings)


@dataclass(frozen=True)
class LSTM:
    """LSTM layers over word vectors."""

    name: ClassVar[str] = "LSTM"
    at_root: ClassVar[bool] = False

    lstm: MaskedLSTM

    def write(self, folder: Path, tokenizer_path: Path, max_length: int) -> None:
        """Write weights and shape."""
        save({f"encoder.{name}": weight for name, weight in self.lstm.stock_weights().items()}, folder)
        shape = {
            "word_embedding_dimension": self.lstm.width,
            "hidden_dim": self.lstm.units,
            "num_layers": len(self.lstm.forwards),
            "dropout": 0,
            "bidirectional": self.lstm.bidirectional,
        }
        write_json(folder / "lstm_config.json", shape)


@dataclass(frozen=True)
class CNN:
    """One convolution over word vectors, d → D, as wide as its kernel."""

    name: ClassVar[str] = "CNN"
    at_root: ClassVar[bool] = False

    convolution: nn.Conv1d

    def write(self, folder: Path, tokenizer_path: Path, max_length: int) -> None:
        """Write weights and shape."""
        save({f"convs.0.{name}": weight for name, weight in self.convolution.named_parameters()}, folder)
        shape: dict[str, Any] = {
            "in_word_embedding_dimension": self.convolution.in_channels,
            "out_channels": self.convolution.out_channels,
            "kernel_sizes": [self.convolution.kernel_size[0]],
            "stride_sizes": [1],
        }
        write_json(folder / "cnn_config.json", shape)


@dataclass(frozen=True)
class Pooling:
    """Pooling of the states of all tokens, H wide: ``cls``, ``mean``, ``max`` or ``last``."""

    name: ClassVar[str] = "Pooling"
    at_root: ClassVar[bool] = False

    width: int
    pooling: str

    def write(self, folder: Path, tokenizer_path: Path, max_length: int) -> None:
        """Write the settings."""
        modes = {key: name == self.pooling for name, key in _MODES.items()}
        if self.pooling in _LATER_MODES:
            modes[_LATER_MODES[self.pooling]] = True
        write_json(folder / "config.json", {"word_embedding_dimension": self.width, **modes})


@dataclass(frozen=True)
class Dense:
    """A linear layer, H → D, and its activation, a module without weights."""

    name: ClassVar[str] = "Dense"
    at_root: ClassVar[bool] = False

    linear: nn.Linear
    activation: nn.Module

    def write(self, folder: Path, tokenizer_path: Path, max_length: int) -> None:
        """Write weights and shape."""
        kind = type(self.activation)
        dense = {
            "in_features": self.linear.in_features,
            "out_features": self.linear.out_features,
            "bias": self.linear.bias is not None,
            "activation_function": f"{kind.__module__}.{kind.__name__}",
        }
        write_json(folder / "config.json", dense)
        save({f"linear.{name}": weight for name, weight in self.linear.named_parameters()}, folder)


@dataclass(frozen=True)
class Normalize:
    """Division of every vector by its length."""

    name: ClassVar[str] = "Normalize"
    at_root: ClassVar[bool] = False

    def write(self, folder: Path, tokenizer_path: Path, max_length: int) -> None:
        """Write empty settings."""
        write_json(folder / "config.json", {})


def output_modules(
    projection: nn.Linear | None, activation: Callable[[Tensor], Tensor] | None, *, normalize: bool
) -> tuple[StockModule, ...]:
    """List the modules after the pooling: a projection H → D with or without tanh, and a norm, if present."""
    modules: tuple[StockModule, ...] = ()
    if projection is not None:
        modules = (Dense(projection, nn.Tanh() if activation else nn.Identity()),)
    return (*modules, Normalize()) if normalize else modules


def pooling_modules(width: int, pooling: str, pooler: nn.Linear | None = None) -> tuple[StockModule, ...]:
    """List the pooling and, where there is one, the pooler: a dense layer with tanh after the first token."""
    if pooler is None:
        return (Pooling(width, pooling),)
    return Pooling(width, "cls"), Dense(pooler, nn.Tanh())


def require_stock_pooling(kind: str, pooling: str) -> None:
    """Refuse the pooling of last states, which no module of sentence-transformers does.

    Raises:
        BadInput: The pooling is neither ``mean`` nor ``max``.
    """
    require(
        pooling in ("mean", "max"),
        "pooling in (mean, max)",
        pooling=pooling,
        remedy="No module of sentence-transformers takes the last state of each direction: train a "
        f"{kind} for export with mean or max pooling.",
    )


def without_pooler(backbone: nn.Module) -> dict[str, Any]:
    """The settings of a Transformer module by which an encoder that has no pooler head loads without one.

    Otherwise loading creates a random, unused head, and reports that its weights are missing.
    """
    if "add_pooling_layer" not in inspect.signature(type(backbone)).parameters:
        return {}
    return {"model_args": {"add_pooling_layer": False}}


def write_tokenizer(source: Path, folder: Path, max_length: int) -> None:
    """Write a tokenizer as a student used it: its files, and its length and side in them.

    Raises:
        BadInput: There are none.
    """
    found = {file for pattern in TOKENIZER_FILES for file in source.glob(pattern)}
    if not found:
        raise BadInput(f"A tokenizer's folder must hold its files, but {source} holds none.")
    for file in sorted(found):
        shutil.copyfile(file, folder / file.name)
    FastTokenizer(source, max_length).write(folder)


def save(weights: dict[str, Tensor], folder: Path) -> None:
    """Write weights as ``model.safetensors`` into a folder, which is created if necessary."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
