"""Two towers as two folders that stock sentence-transformers loads, and what joins their vectors.

``claims/`` and ``documents/`` hold word embeddings, convolution or LSTM, pooling and dense layers. With a
bilinear joiner W stands in the claims' last layer, so the inner product of the two vectors is the score, and
an index of inner products serves it. Another joiner is no inner product: it is written beside them, as
``joiner.safetensors``.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from stillhouse.core.artifacts import write_json
from stillhouse.core.errors import require
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.losses.pair_head import Joiner
from stillhouse.students.export.modules import copy_tokenizer, write_dense, write_pooling
from stillhouse.students.export.sentence_transformers import folder_settings, replacing_folder
from stillhouse.students.towers import SimpleCNN, SimpleLSTM

SIDES = ("claims", "documents")
Tower = SimpleCNN | SimpleLSTM

_BILINEAR = """\
A score is the inner product of the two vectors: any index of inner products serves it.

```python
import faiss
from sentence_transformers import SentenceTransformer

claims, documents = SentenceTransformer("claims"), SentenceTransformer("documents")
index = faiss.IndexFlatIP(documents.get_sentence_embedding_dimension())
index.add(documents.encode(["A document.", "Another one."]))
scores, rows = index.search(claims.encode(["A claim."]), 2)
```"""
_JOINED = """\
With c and d, the vectors of the two folders, a score is wᵀ [{parts}]; w is `weight` in `joiner.safetensors`.
It is no inner product, so no index serves it: candidates are scored one by one."""
_PARTS = {"features": "c; d; c∘d; |c−d|", "concat": "c; d"}


def usage(joiner: Joiner) -> str:
    """How the folders are used, in Markdown."""
    return _BILINEAR if joiner.kind == "bilinear" else _JOINED.format(parts=_PARTS[joiner.kind])


def export_towers(
    student: Tower, joiner: Joiner, max_length: int, folder: str | Path, *, card: str = ""
) -> None:
    """Write both towers; the folder appears whole.

    Args:
        student: Encodes both sides; unchanged.
        joiner: Joins them.
        max_length: Tokens a text.
        folder: The place of the export.
        card: Markdown; without one only how the folders are used is written.

    Raises:
        BadInput: A norm, which no layer after it can be multiplied into, pooling that no stock module does,
            or a folder that holds something other than an export.
    """
    target = Path(folder)
    require(
        not target.exists() or (target / "claims" / "modules.json").is_file() or not any(target.iterdir()),
        "an export replaces nothing but an export",
        folder=str(folder),
        remedy="Give an empty or a new folder.",
    )
    require(not student.normalize, "towers are exported as they are trained, without a norm", normalize=True)
    weight: Tensor = joiner.layer.weight  # type: ignore[assignment]
    with replacing_folder(target) as temporary:
        for side in SIDES:
            last = weight if joiner.kind == "bilinear" and side == "claims" else None
            _write_side(student, last, max_length, temporary / side)
        if joiner.kind != "bilinear":
            _save({"weight": weight}, temporary / "joiner.safetensors")
        write_json(temporary / "towers.json", {"joiner": joiner.kind, "max_length": max_length})
        (temporary / "README.md").write_text(card or f"# Two towers\n\n{usage(joiner)}\n", encoding="utf-8")


def _write_side(student: Tower, last: Tensor | None, max_length: int, folder: Path) -> None:
    """One tower; ``last`` is the matrix W that its vectors are multiplied with, or None."""
    _write_words(student, max_length, folder / "0_WordEmbeddings")
    write = _write_cnn if isinstance(student, SimpleCNN) else _write_lstm
    paths = ["0_WordEmbeddings", *write(student, last, folder)]  # type: ignore[arg-type]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": path,
            "type": f"sentence_transformers.models.{path.partition('_')[2]}",
        }
        for index, path in enumerate(paths)
    ]
    write_json(folder / "modules.json", modules)
    write_json(folder / "config_sentence_transformers.json", folder_settings(similarity="dot"))


def _write_words(student: Tower, max_length: int, folder: Path) -> None:
    _save({"emb_layer.weight": student.words.weight}, folder / "model.safetensors")
    source = Path(student.tokenizer.path)
    copy_tokenizer(source, folder)
    # Stock sentence-transformers loads a tokenizer by the names that its configuration states.
    FastTokenizer(folder, max_length)
    settings = {
        "tokenizer_class": "sentence_transformers.models.tokenizer.TransformersTokenizerWrapper",
        "update_embeddings": student.words.weight.requires_grad,
        "max_seq_length": max_length,
    }
    write_json(folder / "wordembedding_config.json", settings)


def _write_cnn(student: SimpleCNN, last: Tensor | None, folder: Path) -> list[str]:
    """The maximum of ReLUs is the ReLU of the maximum, and a dense layer has one."""
    weight = student.convolution.weight
    shape: dict[str, Any] = {
        "in_word_embedding_dimension": student.words.embedding_dim,
        "out_channels": student.dim,
        "kernel_sizes": [weight.shape[-1]],
        "stride_sizes": [1],
    }
    _save(
        {f"convs.0.{name}": tensor for name, tensor in student.convolution.named_parameters()},
        folder / "1_CNN" / "model.safetensors",
    )
    write_json(folder / "1_CNN" / "cnn_config.json", shape)
    write_pooling(folder / "2_Pooling", student.dim, "max")
    write_dense(folder / "3_Dense", _layer(torch.eye(student.dim)), nn.ReLU())
    if last is None:
        return ["1_CNN", "2_Pooling", "3_Dense"]
    write_dense(folder / "4_Dense", _layer(last), nn.Identity())
    return ["1_CNN", "2_Pooling", "3_Dense", "4_Dense"]


def _write_lstm(student: SimpleLSTM, last: Tensor | None, folder: Path) -> list[str]:
    lstm = student.recurrence
    require(
        student.pooling in ("mean", "max"),
        "sentence-transformers can express a SimpleLSTM with pooling in (mean, max)",
        pooling=student.pooling,
        remedy="Its pooling modules cannot take the last state of each direction: train with pooling mean or "
        "max what shall be exported.",
    )
    shape = {
        "word_embedding_dimension": lstm.input_size,
        "hidden_dim": lstm.hidden_size,
        "num_layers": 1,
        "dropout": 0,
        "bidirectional": lstm.bidirectional,
    }
    weights: dict[str, Tensor] = {f"encoder.{name}": tensor for name, tensor in lstm.named_parameters()}
    _save(weights, folder / "1_LSTM" / "model.safetensors")
    write_json(folder / "1_LSTM" / "lstm_config.json", shape)
    write_pooling(folder / "2_Pooling", student.dim, student.pooling)
    if last is None:
        return ["1_LSTM", "2_Pooling"]
    write_dense(folder / "3_Dense", _layer(last), nn.Identity())
    return ["1_LSTM", "2_Pooling", "3_Dense"]


def _layer(weight: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight.detach().cpu().float())
    return layer


def _save(weights: dict[str, Tensor], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    save_file(tensors, file, {"format": "pt"})
