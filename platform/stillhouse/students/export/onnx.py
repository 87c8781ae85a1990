"""A student as an ONNX graph with its tokenizer, for machines without torch, and the check of its vectors.

Requires the extra ``onnx``. The graph takes ``input_ids`` and ``attention_mask``, (batch, tokens) in int64,
with special tokens and padded on the right, and returns ``sentence_embedding``, (batch, dimension) in
float32. Batch size and length are dynamic.
"""

import contextlib
import importlib.util
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stillhouse.core.artifacts import read_json, write_json
from stillhouse.core.errors import BadInput, require
from stillhouse.core.tokenizing import FastTokenizer, lower_cases, pad, token_batches
from stillhouse.core.types import Encoder, Exportable, Tokens
from stillhouse.students.encoder import Vectors, evaluating
from stillhouse.students.export.modules import copy_tokenizer
from stillhouse.students.export.sentence_transformers import replacing_folder, same_vectors

INPUTS, OUTPUT = ("input_ids", "attention_mask"), "sentence_embedding"
_GRAPH, _SETTINGS = "model.onnx", "sentence_bert_config.json"
_LARGEST_FILE = 1 << 30
"""Largest weights, in bytes, that are stored inside the graph's file, which cannot exceed 2 GiB."""


def export_onnx(
    student: Any, tokenizer_path: str | Path, max_length: int, folder: str | Path, *, int8: bool = False
) -> None:
    """Write ``model.onnx``, the tokenizer's files and the maximum length into a folder.

    The folder appears complete: it is written next to its destination and renamed; an earlier export is
    replaced. Weights over 1 GiB go into a second file, ``model.onnx.data``.

    Args:
        student: Any student that is a torch module (`StudentModule`); its mode and device do not change.
        tokenizer_path: Folder whose tokenizer files are copied unchanged.
        max_length: Tokens per text, special ones included.
        folder: Destination of the export.
        int8: Quantise the weights per channel and the activations dynamically: about a quarter of the size,
            faster on most CPUs, but the vectors no longer agree to the last digits.

    Raises:
        BadInput: The extra is not installed, no tokenizer files, more tokens than the student has positions,
            a student whose graph cannot be written, a folder that holds something other than an export, or a
            full disk.
    """
    require_extra()
    positions = student.max_tokens if isinstance(student, Exportable) else max_length
    require(
        max_length <= positions,
        "max_length <= positions of the model",
        max_length=max_length,
        positions=positions,
    )
    folder = Path(folder)
    with replacing_folder(folder, earlier=_GRAPH) as temporary:
        write_graph(student, temporary / _GRAPH)
        if int8:
            quantise(temporary / _GRAPH)
        copy_tokenizer(Path(tokenizer_path), temporary)
        lowers = lower_cases(Path(tokenizer_path))
        write_json(temporary / _SETTINGS, {"max_seq_length": max_length, "do_lower_case": lowers})


def require_extra() -> None:
    """Refuse to export if the packages of the extra are missing.

    Raises:
        BadInput: A package is missing.
    """
    _require_packages("onnx", "onnxscript", "onnxruntime")


def check_onnx(
    encoder: Encoder,
    folder: str | Path,
    texts: Sequence[str],
    minimum: float = 0.9999,
    stretch: float = 0.01,
) -> float:
    """Compare an encoder with its ONNX export, as onnxruntime runs it.

    Args:
        encoder: The encoder that was evaluated.
        folder: The exported folder.
        texts: At least one; use several lengths, so that batches are padded.
        minimum: The cosine that every pair of vectors must reach.
        stretch: The relative difference that lengths may have.

    Returns:
        The smallest cosine.

    Raises:
        RuntimeError: A cosine is smaller, a length differs by more, or the dimensions differ.
    """
    return same_vectors(OnnxEncoder(folder).encode(texts), encoder, folder, texts, minimum, stretch)


class OnnxEncoder:
    """An ONNX export as an `Encoder`, on the CPU.

    Attributes:
        dim: D.
        tokenizer: Converts texts to ids, truncated as the student's texts were.

    Args:
        folder: A folder that `export_onnx` wrote.
        threads: Threads of onnxruntime; 0 lets it choose.
        batch_tokens: Tokens per batch, padding included.

    Raises:
        BadInput: onnxruntime is not installed, or the folder is not an ONNX export.
    """

    def __init__(self, folder: str | Path, *, threads: int = 0, batch_tokens: int = 4096) -> None:
        _require_packages("onnxruntime")
        folder = Path(folder)
        if not (folder / _GRAPH).is_file():
            raise BadInput(f"An ONNX export holds {_GRAPH}, but {folder} does not.")
        self._session = _session(folder / _GRAPH, threads)
        self.dim, self._batch_tokens = int(self._session.get_outputs()[0].shape[1]), batch_tokens
        self.tokenizer = FastTokenizer(folder, int(read_json(folder / _SETTINGS)["max_seq_length"]))

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Encode texts, (N, D), in their order."""
        ids, offsets = self.tokenizer(texts)
        starts, lengths = offsets[:-1], np.diff(offsets)
        vectors_ND = np.empty((len(texts), self.dim), np.float32)
        for rows in token_batches(lengths, self._batch_tokens):
            tokens = pad(ids, starts[rows], lengths[rows], self.tokenizer.pad_id)
            inputs = _inputs(tokens.input_ids_BT, tokens.attention_mask_BT)
            vectors_ND[rows] = self._session.run([OUTPUT], inputs)[0]
        return vectors_ND


class _Flat(nn.Module):
    """A student from two tensors to one tensor, as a graph requires."""

    def __init__(self, student: Any) -> None:
        super().__init__()
        self.student = student

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        embedding_BD: Tensor = self.student(Tokens(input_ids, attention_mask)).embedding_BD
        return embedding_BD


def write_graph(student: Any, file: Path) -> None:
    """Write a student's graph alone, as `export_onnx` does.

    Raises:
        BadInput: The student's graph cannot be written.
    """
    flat = _Flat(student)
    write = _trace if any(isinstance(part, nn.RNNBase) for part in flat.modules()) else _export
    with evaluating(flat), torch.no_grad(), _quiet():
        try:
            write(flat, _example(flat, 6, 4), file)
            agrees = all(_agrees(flat, file, lengths) for lengths in ((3,), (9, 2, 5)))
        except Exception as error:  # the errors of onnxruntime have no common base class
            raise _not_exportable(student, str(error).strip().partition("\n")[0]) from error
        if not agrees:
            raise _not_exportable(student, "it gives different vectors at another batch size or length.")


def _not_exportable(student: Any, reason: str) -> BadInput:
    return BadInput(
        f"{type(student).__name__} must be a student that torch.onnx can write as a graph, but: "
        f"{reason.rstrip('.')}. A forward pass must not branch on values, use a batch's size as a number "
        "(`len`), or read only the last state of packed sequences."
    )


def _example(flat: _Flat, *lengths: int) -> tuple[Tensor, Tensor]:
    """Build a padded batch of texts of these lengths: token ids below 3, and a mask."""
    places_T = torch.arange(max(lengths))
    mask_BT = (places_T < torch.tensor(lengths)[:, None]).to(torch.int64)
    device = next(flat.parameters()).device
    return (mask_BT * (places_T % 3)).to(device), mask_BT.to(device)


def _agrees(flat: _Flat, file: Path, lengths: tuple[int, ...]) -> bool:
    """Whether the graph gives the student's vectors for another batch than it was written with."""
    example = _example(flat, *lengths)
    found = torch.from_numpy(_session(file, threads=0).run([OUTPUT], _inputs(*example))[0])
    expected: Tensor = flat(*example).cpu()
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-2, atol=1e-3)


def _session(file: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Errors are raised; nothing else is worth printing.
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _inputs(*inputs_BT: Tensor) -> dict[str, Any]:
    return {name: value.cpu().numpy() for name, value in zip(INPUTS, inputs_BT, strict=True)}


def _export(flat: _Flat, example: tuple[Tensor, Tensor], file: Path) -> None:
    dynamic = torch.export.Dim.DYNAMIC
    graph = torch.onnx.export(
        flat,
        example,
        input_names=list(INPUTS),
        output_names=[OUTPUT],
        dynamic_shapes=({0: dynamic, 1: dynamic}, {0: dynamic, 1: dynamic}),
        dynamo=True,
        verbose=False,
    )
    assert graph is not None
    weights = sum(tensor.numel() * tensor.element_size() for tensor in flat.state_dict().values())
    graph.save(str(file), external_data=weights > _LARGEST_FILE)


def _trace(flat: _Flat, example: tuple[Tensor, Tensor], file: Path) -> None:
    """Trace a student with recurrent layers: torch.export would unroll them at the example's length."""
    torch.onnx.export(
        flat,
        example,
        str(file),
        input_names=list(INPUTS),
        output_names=[OUTPUT],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in INPUTS},
        dynamo=False,
    )


def quantise(file: Path) -> None:
    """Replace a graph by one with 8-bit weights, made by onnxruntime's own quantiser."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(file)
    # The exporter's optimiser leaves outdated shapes of tensors that it has transposed; they are inferred
    # anew.
    del graph.graph.value_info[:]
    with _quiet():
        quantize_dynamic(graph, file, per_channel=True, weight_type=QuantType.QInt8)
    file.with_suffix(".onnx.data").unlink(missing_ok=True)


def _require_packages(*packages: str) -> None:
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise BadInput(
            f'The extra `onnx` must be installed, but {missing=}. Run: pip install "stillhouse[onnx]".'
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's warnings about its own deprecations and about packages that are not needed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
