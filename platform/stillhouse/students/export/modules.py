"""The modules of a sentence-transformers folder, one function each, and the modules of a BiLSTM student."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from torch import Tensor, nn

from stillhouse.core.artifacts import write_json
from stillhouse.core.errors import require
from stillhouse.students.bilstm import BiLSTMStudent

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


def write_bilstm(
    student: BiLSTMStudent, tokenizer_path: Path, max_length: int, folder: Path
) -> dict[str, str]:
    """Write word embeddings, LSTM, pooling and dense layer; returns folder to module, in order.

    Raises:
        BadInput: Pooling that no stock module does, or no tokenizer files.
    """
    require(
        student.pooling in ("mean", "max"),
        "sentence-transformers can express a BiLSTM with pooling in (mean, max)",
        pooling=student.pooling,
        remedy="Its pooling modules take both sides of one word, never the last state of each side: "
        "train with pooling mean or max what shall be exported.",
    )
    paths = ["0_WordEmbeddings", "1_LSTM", "2_Pooling", "3_Dense"]
    words, lstm, pooling, dense = (folder / path for path in paths)
    _save({"emb_layer.weight": student.words.weight}, words)
    copy_tokenizer(tokenizer_path, words)
    settings = {
        "tokenizer_class": "sentence_transformers.models.tokenizer.TransformersTokenizerWrapper",
        "update_embeddings": student.words.weight.requires_grad,
        "max_seq_length": max_length,
    }
    write_json(words / "wordembedding_config.json", settings)
    _save(_lstm_weights(student), lstm)
    shape = {
        "word_embedding_dimension": student.words.embedding_dim,
        "hidden_dim": student.hidden_size // 2,
        "num_layers": len(student.forwards),
        "dropout": 0,
        "bidirectional": True,
    }
    write_json(lstm / "lstm_config.json", shape)
    write_pooling(pooling, student.hidden_size, student.pooling)
    write_dense(dense, student.projection, nn.Tanh())
    return {path: path.partition("_")[2] for path in paths}


def write_pooling(folder: Path, width: int, pooling: str) -> None:
    """Write a pooling module: ``cls``, ``mean`` or ``max``."""
    modes = {key: name == pooling for name, key in _MODES.items()}
    write_json(folder / "config.json", {"word_embedding_dimension": width, **modes})


def write_dense(folder: Path, linear: nn.Linear, activation: nn.Module) -> None:
    """Write a linear layer and what follows it."""
    kind = type(activation)
    dense = {
        "in_features": linear.in_features,
        "out_features": linear.out_features,
        "bias": linear.bias is not None,
        "activation_function": f"{kind.__module__}.{kind.__name__}",
    }
    write_json(folder / "config.json", dense)
    _save({f"linear.{name}": weight for name, weight in linear.named_parameters()}, folder)


class Ending(Protocol):
    """What follows a student's pooled states."""

    normalize: bool

    @property
    def projection(self) -> nn.Linear | None:
        """A linear layer, or None."""
        ...

    @property
    def activation(self) -> Callable[[Tensor], Tensor] | None:
        """What follows it: tanh, or None."""
        ...


def write_ending(student: Ending, folder: Path, before: int) -> dict[str, str]:
    """Write projection and norm, as far as there are; returns folder to module, counted from ``before``."""
    written = {}
    if student.projection is not None:
        written[f"{before}_Dense"] = "Dense"
        activation = nn.Tanh() if student.activation else nn.Identity()
        write_dense(folder / f"{before}_Dense", student.projection, activation)
    if student.normalize:
        normalize = f"{before + len(written)}_Normalize"
        written[normalize] = "Normalize"
        write_json(folder / normalize / "config.json", {})
    return written


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copy a tokenizer's files as they are.

    Raises:
        BadInput: There are none.
    """
    found = {file for pattern in TOKENIZER_FILES for file in source.glob(pattern)}
    require(bool(found), "a tokenizer's folder holds its files", folder=str(source))
    for file in sorted(found):
        shutil.copyfile(file, folder / file.name)


def _lstm_weights(student: BiLSTMStudent) -> dict[str, Tensor]:
    """Both sides under the names of torch's bidirectional LSTM."""
    return {
        f"encoder.{name.removesuffix('0')}{layer}{suffix}": weight
        for suffix, side in (("", student.forwards), ("_reverse", student.backwards))
        for layer, lstm in enumerate(side)
        for name, weight in lstm.named_parameters()
    }


def _save(weights: dict[str, Tensor], folder: Path) -> None:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
