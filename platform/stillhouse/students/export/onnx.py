"""A student as an ONNX graph with its tokenizer, for machines without torch, and the check of its vectors.

Requires the extra ``onnx``. The graph takes ``input_ids`` and ``attention_mask``, (batch, tokens) in int64,
with special tokens and padded on the right, and returns ``sentence_embedding``, (batch, dimension) in
float32. Batch size and length are dynamic.

The graph lies in ``onnx/``, as ``model.onnx`` or, with 8-bit weights, ``model_qint8_quantized.onnx``; these
are sentence-transformers' own names. If the student is a Hugging Face encoder with modules after it, the
graph returns ``last_hidden_state`` before it, as optimum does, and the folder holds the encoder's
configuration and those modules:
``SentenceTransformer(folder, backend="onnx")`` loads it. Up to version 0.2 the folder held ``model.onnx``
alone, which is still read.
"""

import contextlib
import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from stillhouse.core.artifacts import read_json, write_json
from stillhouse.core.errors import BadInput, require
from stillhouse.core.model_folder import read_folder
from stillhouse.core.roles import NO_PROMPTS, Prompts
from stillhouse.core.tokenizing import FastTokenizer, pad, token_batches
from stillhouse.core.types import Encoder, Exportable, InRoles, Tokens
from stillhouse.students.backbone import quiet
from stillhouse.students.encoder import Vectors, evaluating
from stillhouse.students.export.folder_modules import (
    ONNX,
    ONNX_INT8,
    SETTINGS,
    STOCK,
    Transformer,
    write_tokenizer,
)
from stillhouse.students.export.sentence_transformers import (
    by_role,
    replacing_folder,
    same_vectors,
    write_modules,
    write_settings,
)
from stillhouse.students.sizes import sizes

INPUTS, OUTPUT, STATES = ("input_ids", "attention_mask"), "sentence_embedding", "last_hidden_state"
FOLDER = "onnx"
GRAPHS = {ONNX: "model.onnx", ONNX_INT8: "model_qint8_quantized.onnx"}
"""The file of each form; sentence-transformers names its own exports alike."""
_METADATA = "stillhouse"
"""Key of the graph's metadata that holds its form and the student's size as JSON."""
_BATCH_TOKENS = 4096
"""Tokens per batch, padding included."""
_LARGEST_FILE = 1 << 30
"""Largest weights, in bytes, that are stored inside the graph's file, which cannot exceed 2 GiB."""


def export_onnx(
    student: Any,
    tokenizer_path: str | Path,
    max_length: int,
    folder: str | Path,
    prompts: Prompts = NO_PROMPTS,
    *,
    int8: bool = False,
) -> None:
    """Write the graph, the tokenizer's files, the maximum length, and what sentence-transformers loads.

    The folder appears complete: it is written next to its destination and renamed; an earlier export is
    replaced. Weights over 1 GiB go into a second file next to the graph, whose name ends in ``.onnx_data``.
    The student's mode and device do not change.

    With ``int8`` the weights are quantised per channel and the activations dynamically: about a quarter of
    the size, faster on most CPUs, but the vectors no longer agree to the last digits.

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
    form, modules = ONNX_INT8 if int8 else ONNX, modules_after_states(student)
    with replacing_folder(Path(folder), earlier=is_onnx_export) as temporary:
        write_tokenizer(Path(tokenizer_path), temporary, max_length)
        graph = temporary / FOLDER / GRAPHS[form]
        graph.parent.mkdir()
        write_graph(student, graph, states=bool(modules))
        if int8:
            quantise(graph)
        counted = {name: count for name, count in sizes(student).items() if name != "megabytes"}
        _settle_graph(graph, {"form": form, **counted})
        if modules:
            listed = [_Encoder(modules[0]), *modules[1:]]
            write_modules(listed, temporary, Path(tokenizer_path), max_length, prompts=prompts)
        elif prompts:
            write_settings(temporary, "cosine", prompts)
        settings: dict[str, Any] = {"max_seq_length": max_length, "do_lower_case": False}
        if int8:
            # Otherwise sentence-transformers looks for `model.onnx`.
            settings["model_args"] = {"file_name": graph.name}
        write_json(temporary / SETTINGS, settings)


def modules_after_states(student: object) -> tuple[Any, ...]:
    """List a student's stock modules if the first is a Hugging Face encoder; otherwise return nothing.

    The ONNX backend of sentence-transformers runs such an encoder and nothing else.
    """
    if not isinstance(student, Exportable) or student.export_sides or student.why_not(STOCK):
        return ()
    modules = tuple(student.stock_modules())
    return modules if isinstance(modules[0], Transformer) else ()


@dataclass(frozen=True)
class _Encoder:
    """The encoder's configuration alone: its weights are in the graph."""

    name: ClassVar[str] = Transformer.name
    at_root: ClassVar[bool] = True

    encoder: Transformer

    def write(self, folder: Path, tokenizer_path: Path, max_length: int) -> None:
        """Write ``config.json``."""
        with quiet():
            self.encoder.build().config.save_pretrained(folder)


def graph_of(folder: Path) -> Path | None:
    """Find the graph of an ONNX export: in ``onnx/``, or of version 0.2 in the folder; None without one.

    Raises:
        BadInput: If there are several graphs.
    """
    found = sorted((folder / FOLDER).glob("*.onnx")) or sorted(folder.glob(GRAPHS[ONNX]))
    require(
        len(found) < 2,
        "an ONNX folder must have one graph, or the graph's own file must be given",
        graphs=[str(file.relative_to(folder)) for file in found],
    )
    return found[0] if found else None


def is_onnx(folder: Path) -> bool:
    """Return whether a folder has a graph and no weights for torch that the graph was made from."""
    graphs = any((folder / FOLDER).glob("*.onnx")) or (folder / GRAPHS[ONNX]).is_file()
    return graphs and not any(read_folder(folder).transformer.glob("*.safetensors"))


def stated_form(graph: Path) -> str:
    """Say whether a graph has 8-bit weights: by its name, else by its weights if ``onnx`` is installed."""
    if "int8" in graph.stem or importlib.util.find_spec("onnx") is None:
        return ONNX_INT8 if "int8" in graph.stem else ONNX
    import onnx
    from google.protobuf.message import DecodeError

    try:
        weights = onnx.load(graph, load_external_data=False).graph.initializer
    except DecodeError as error:
        raise _unreadable(graph, error) from error
    kinds = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    return ONNX_INT8 if any(each.data_type in kinds and len(each.dims) > 1 for each in weights) else ONNX


def _unreadable(graph: Path, error: Exception) -> BadInput:
    reason = str(error).strip().partition("\n")[0].rstrip(".")
    return BadInput(
        f"{graph} must be a graph that onnxruntime loads, but: {reason}. Export the student again."
    )


def is_onnx_export(folder: Path) -> bool:
    """Return whether a folder is an earlier ONNX export, of this layout or of version 0.2."""
    graphs = (folder / FOLDER / GRAPHS[ONNX], folder / FOLDER / GRAPHS[ONNX_INT8], folder / GRAPHS[ONNX])
    return any(graph.is_file() for graph in graphs) and (folder / SETTINGS).is_file()


def _settle_graph(file: Path, described: dict[str, Any]) -> None:
    """Note what the graph is in its metadata, and name its weights as optimum looks for them."""
    import onnx
    from onnx.external_data_helper import uses_external_data

    graph = onnx.load(file, load_external_data=False)
    beside = file.with_name(f"{file.name}.data")
    if beside.is_file():
        for tensor in filter(uses_external_data, graph.graph.initializer):
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = f"{file.name}_data"
        beside.rename(file.with_name(f"{file.name}_data"))
    onnx.helper.set_model_props(graph, {_METADATA: json.dumps(described)})
    onnx.save(graph, file)


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
    prompts: Prompts = NO_PROMPTS,
) -> float:
    """Compare an encoder with its ONNX export, as onnxruntime runs it.

    Where the folder is one that sentence-transformers loads, its modules are compared too: applied to the
    states that the graph returns, they must give the graph's own vectors. With prompts, the texts are
    compared in every role; there is at least one text, and several lengths pad the batches.

    Returns:
        The smallest cosine.

    Raises:
        BadInput: A cosine is below ``minimum``, the relative difference of lengths above ``stretch``, or the
            dimensions differ.
    """
    exported = OnnxEncoder(folder)
    pairs = zip(by_role(exported, texts, prompts), by_role(encoder, texts, prompts), strict=True)
    lowest = min(same_vectors(ours, own, texts, minimum, stretch) for ours, own in pairs)
    if (Path(folder) / "modules.json").is_file():
        by_modules_ND = _by_modules(exported, Path(folder), texts)
        # One by one: with 8-bit weights a vector depends on the whole batch.
        one_by_one_ND = np.concatenate([exported.read([text]) for text in texts])
        same_vectors(by_modules_ND, one_by_one_ND, texts, 0.9999)
    return lowest


def _by_modules(exported: "OnnxEncoder", folder: Path, texts: Sequence[str]) -> Vectors:
    """Apply the modules of sentence-transformers to the states of the graph, text by text."""
    from sentence_transformers.util import import_from_string

    modules = [
        import_from_string(each["type"]).load(str(folder / each["path"]))
        for each in read_json(folder / "modules.json")[1:]
    ]
    vectors = []
    with torch.no_grad():
        for text in texts:
            features = exported.states(text)
            for module in modules:
                features = module(features)
            vectors.append(features["sentence_embedding"].numpy())
    return np.concatenate(vectors)


class OnnxEncoder(InRoles):
    """An ONNX export as an `Encoder`, on the CPU.

    Attributes:
        dim: D.
        tokenizer: Converts texts to ids, truncated as the student's texts were.
        threads: Threads of onnxruntime.
        prompts: What it puts before every text, by role.

    Args:
        folder: A folder that `export_onnx` wrote, or a graph in it.
        threads: Threads of onnxruntime; 0 takes as many as torch does.

    Raises:
        BadInput: onnxruntime is not installed, or the folder is not an ONNX export.
    """

    def __init__(self, folder: str | Path, *, threads: int = 0) -> None:
        _require_packages("onnxruntime")
        self.graph, home = _located(Path(folder))
        self.threads = threads or torch.get_num_threads()
        try:
            self._session = open_session(self.graph, self.threads)
        except Exception as error:  # the errors of onnxruntime have no common base class
            raise _unreadable(self.graph, error) from error
        self._counted = _counted(self._session)
        inputs = [each.name for each in self._session.get_inputs()]
        outputs = {each.name: each.shape for each in self._session.get_outputs()}
        require(
            sorted(inputs) == sorted(INPUTS) and OUTPUT in outputs,
            f"a graph must take {', '.join(INPUTS)} and give {OUTPUT}",
            graph=str(self.graph),
            inputs=inputs,
            outputs=list(outputs),
            remedy="Export the student again, or measure the weights that the graph was made from.",
        )
        self.dim = int(outputs[OUTPUT][1])
        stated = read_folder(home)
        self.tokenizer, self.prompts = FastTokenizer(home, stated.length), stated.prompts

    def encoded(self, role: str, texts: Sequence[str]) -> Vectors:
        """Encode texts of a role, (N, D), in their order."""
        return self.read([self.prompts.of(role) + text for text in texts])

    def read(self, texts: Sequence[str]) -> Vectors:
        """Encode texts as they are, without a prompt, (N, D), in their order."""
        ids, offsets = self.tokenizer(texts)
        starts, lengths = offsets[:-1], np.diff(offsets)
        vectors_ND = np.empty((len(texts), self.dim), np.float32)
        for rows in token_batches(lengths, _BATCH_TOKENS):
            tokens = pad(ids, starts[rows], lengths[rows], self.tokenizer.pad_id)
            inputs = graph_inputs(tokens.input_ids_BT, tokens.attention_mask_BT)
            vectors_ND[rows] = self._session.run([OUTPUT], inputs)[0]
        return vectors_ND

    def states(self, text: str) -> dict[str, Tensor]:
        """Compute the states of a text's tokens, as the modules of sentence-transformers take them."""
        ids, offsets = self.tokenizer([text])
        tokens = pad(ids, offsets[:1], np.diff(offsets), self.tokenizer.pad_id)
        inputs = graph_inputs(tokens.input_ids_BT, tokens.attention_mask_BT)
        states_BTH = torch.from_numpy(self._session.run([STATES], inputs)[0])
        return {"token_embeddings": states_BTH, "attention_mask": tokens.attention_mask_BT}

    def sizes(self) -> dict[str, float]:
        """The student's parameters, where the graph states them, and ``megabytes`` of the graph's files."""
        files = (self.graph, self.graph.with_name(f"{self.graph.name}_data"))
        return self._counted | {
            "megabytes": sum(file.stat().st_size for file in files if file.is_file()) / 1e6
        }


def _located(path: Path) -> tuple[Path, Path]:
    """The graph and the folder of its tokenizer, from the folder or from the graph's own file."""
    if path.is_file():
        return path, path.parent.parent if path.parent.name == FOLDER else path.parent
    graph = graph_of(path)
    if graph is None:
        raise BadInput(
            f"An ONNX export holds {FOLDER}/{GRAPHS[ONNX]} or {FOLDER}/{GRAPHS[ONNX_INT8]}, but {path} does "
            "not. Write one with: stillhouse export STAGE FOLDER --format onnx."
        )
    return graph, path


def _counted(session: Any) -> dict[str, float]:
    """The student's parameters by kind, as the graph's metadata state them."""
    noted = session.get_modelmeta().custom_metadata_map.get(_METADATA, "{}")
    return {name: float(value) for name, value in json.loads(noted).items() if name.startswith("parameters")}


class _Flat(nn.Module):
    """A student from two tensors to one or two, as a graph requires; ``outputs`` names them."""

    def __init__(self, student: Any, *, states: bool) -> None:
        super().__init__()
        self.student = student
        # States come first: clients of optimum's graphs pool the first output, whatever its name.
        self.outputs = (STATES, OUTPUT) if states else (OUTPUT,)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        encoding = self.student(Tokens(input_ids, attention_mask))
        found = {OUTPUT: encoding.embedding_BD}
        if STATES in self.outputs:
            found[STATES] = encoding.hidden[-1]
        return tuple(found[name] for name in self.outputs)


def write_graph(student: Any, file: Path, *, states: bool = False) -> None:
    """Write a student's graph alone, as `export_onnx` does; it may also return the last states of all tokens.

    Raises:
        BadInput: The student's graph cannot be written.
    """
    flat = _Flat(student, states=states)
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
    """Return whether the graph gives the student's vectors for another batch than it was written with."""
    example = _example(flat, *lengths)
    found = map(
        torch.from_numpy, open_session(file, threads=0).run(list(flat.outputs), graph_inputs(*example))
    )
    expected: tuple[Tensor, ...] = flat(*example)
    real_BT1 = example[1].cpu()[:, :, None]
    return all(_close(one, other.cpu(), real_BT1) for one, other in zip(found, expected, strict=True))


def _close(found: Tensor, expected: Tensor, real_BT1: Tensor) -> bool:
    """Return whether two outputs agree, the states of real tokens alone."""
    if found.shape != expected.shape:
        return False
    if found.ndim == 3:
        found, expected = found * real_BT1, expected * real_BT1
    return torch.allclose(found, expected, rtol=1e-2, atol=1e-3)


def open_session(file: Path, threads: int) -> Any:
    """Open a graph in onnxruntime, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Errors are raised; nothing else is worth printing.
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def graph_inputs(*inputs_BT: Tensor) -> dict[str, Any]:
    """Tokens and mask as a graph takes them."""
    return {name: value.cpu().numpy() for name, value in zip(INPUTS, inputs_BT, strict=True)}


def _export(flat: _Flat, example: tuple[Tensor, Tensor], file: Path) -> None:
    dynamic = torch.export.Dim.DYNAMIC
    graph = torch.onnx.export(
        flat,
        example,
        input_names=list(INPUTS),
        output_names=list(flat.outputs),
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
        output_names=list(flat.outputs),
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in INPUTS}
        | {name: {0: "batch"} | ({1: "tokens"} if name == STATES else {}) for name in flat.outputs},
        dynamo=False,
    )


def quantise(file: Path) -> None:
    """Replace a graph by one with 8-bit weights, made by onnxruntime's own quantiser.

    The weights use 7 of the bits. CPUs without VNNI add two products of 8 bits in 16, which overflows with
    larger weights: the vectors of a model with large ones had cosines of 0.7 there, and 0.99 elsewhere.

    What follows the states of the tokens (a projection) keeps its weights: sentence-transformers computes it
    in float32 itself, and must give the same vectors.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(file)
    # The exporter's optimiser leaves outdated shapes of tensors that it has transposed; they are inferred
    # anew.
    del graph.graph.value_info[:]
    with _quiet():
        quantize_dynamic(
            graph,
            file,
            per_channel=True,
            weight_type=QuantType.QInt8,
            reduce_range=True,
            nodes_to_exclude=_after_states(graph.graph),
        )
    file.with_suffix(".onnx.data").unlink(missing_ok=True)


def _after_states(graph: Any) -> list[str]:
    """Name the nodes that compute something from the states of the tokens, if the graph returns them."""
    known, names = {STATES} & {output.name for output in graph.output}, []
    for node in graph.node:  # In an order in which every input is computed before.
        if known.intersection(node.input):
            known.update(node.output)
            # The quantiser splits a Gemm into a product of this name and a sum.
            names += [node.name, f"{node.name}_MatMul"]
    return names


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
