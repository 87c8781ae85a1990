"""The runtimes that compute a teacher's vectors: PyTorch, and what its graph is compiled or converted for.

``torch``     the teacher as `teachers.loading` loads it; always there
``compile``   the same through torch.compile; on a CPU it needs a C++ compiler
``openvino``  a graph in OpenVINO, on a CPU (extra ``openvino``)
``onnx``      a graph in ONNX Runtime, in float32 on a CPU (extra ``onnx``)

The graphs are those of `students.export.onnx`, from tokens to vectors, so they contain the pooling and
everything after it. Every process that embeds makes its own when it starts,
and compares it with PyTorch on some of the store's texts.
"""

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.model_folder import read_folder
from stillhouse.core.types import Encoding, Tokens
from stillhouse.students.export.onnx import INPUTS, OUTPUT, graph_inputs, open_session, write_graph
from stillhouse.teachers.forward import Encode, Forward, Later, default_batch_tokens
from stillhouse.teachers.loading import as_encoder, load_teacher
from stillhouse.teachers.runtime_check import Unfit, lowest_cosine, require_agreement, tokenised_sample
from stillhouse.teachers.weights import on_this_machine
from stillhouse.values.data import COMPILE, ONNX, OPENVINO, TORCH, Store

EXTRAS = {
    OPENVINO: ("openvino", "onnx", "onnxscript", "onnxruntime"),
    ONNX: ("onnx", "onnxscript", "onnxruntime"),
}
"""Packages of the extra of a runtime; the extra has the runtime's name."""
_REMEDY = "Give --teacher-runtime torch."
_COMPARED = 32
"""Texts on which a converted teacher is compared with PyTorch."""


def missing_extra(runtime: str) -> str:
    """Say which packages of a runtime's extra are missing, and what to run; empty if none is."""
    missing = [name for name in EXTRAS.get(runtime, ()) if importlib.util.find_spec(name) is None]
    remedy = f'Run: pip install "stillhouse[{runtime}]".'
    return f"the extra `{runtime}` must be installed, but {missing=}. {remedy}" if missing else ""


def why_not(runtime: str, device: str, compute: str) -> str:
    """Say why a runtime cannot run on this machine's device in a precision; empty if it can."""
    kind = torch.device(device).type
    if runtime == TORCH:
        return ""
    if runtime == COMPILE:
        if kind == "cuda":
            return "" if importlib.util.find_spec("triton") else "torch.compile needs triton on a GPU"
        if kind != "cpu":
            return f"torch.compile runs on a CPU or on CUDA, but the device is {device}"
        compilers = (os.environ.get("CXX", "g++"), "clang++")
        return "" if any(map(shutil.which, compilers)) else "torch.compile needs a C++ compiler such as g++"
    if kind != "cpu":
        return f"it runs on a CPU, but the device is {device}"
    if runtime == ONNX and compute == "bfloat16":
        return "it has no bfloat16 products on a CPU. Give --compute float32"
    return missing_extra(runtime)


def require_runtime(runtime: str, device: str, compute: str) -> None:
    """Refuse a runtime that was asked for by name and cannot run here.

    Raises:
        BadInput: A package is missing, or the device or the precision is none of the runtime's.
    """
    if reason := why_not(runtime, device, compute):
        raise BadInput(f"`teacher.runtime = {runtime}` must be able to run, but: {reason.rstrip('.')}.")


@dataclass(frozen=True)
class Running:
    """A teacher that is ready to run, in the runtime of its stores.

    ``encoder`` gives the function from tokens to vectors (B, E) for the prompt and length of a store. The
    rest is as in `Forward`, and suits the runtime.
    """

    encoder: Callable[[Store], Encode]
    batch_tokens: int
    ahead: int = 1
    quick: bool = True

    def forward(self, store: Store, pad_id: int, device: str, batch_tokens: int = 0) -> Forward:
        """The forward pass for a store of the teacher; ``batch_tokens`` of 0 takes what suits the runtime.

        Raises:
            BadInput: As of `start`, for its ``encoder``.
        """
        tokens = batch_tokens or self.batch_tokens
        return Forward(self.encoder(store), pad_id, tokens, store.compute, device, self.ahead, self.quick)


def start(store: Store, workspace: Workspace, device: str, threads: int) -> Running:
    """Make a store's teacher ready to run in the store's runtime, also for stores of other prompts.

    Raises:
        BadInput: The runtime cannot run here, or the teacher cannot be loaded. Its ``encoder`` refuses what
            cannot be converted, and vectors that differ from PyTorch's.
    """
    require_runtime(store.runtime, device, store.compute)
    usual = default_batch_tokens(device, threads)
    if store.runtime == TORCH:
        loaded = load_teacher(store, workspace, device)
        return Running(lambda each: as_encoder(loaded, each), usual)
    converted = _Converted(store.runtime, workspace, device, threads)
    if store.runtime == OPENVINO:
        # Every thread computes a batch of its own.
        return Running(converted.encoder, default_batch_tokens(device, 1), ahead=threads)
    return Running(converted.encoder, usual, quick=False)


def unconvertible(store: Store) -> str:
    """Say why a store's teacher runs in PyTorch alone; empty if it can be tried in other runtimes."""
    if store.teacher.checkpoint is None:
        return "the teacher must be a published model"
    folder = read_folder(Path(on_this_machine(store.model).path))
    if folder.static:
        return "the teacher must be a transformer, not a table of token vectors"
    if store.prompt and not folder.pools_prompt:
        return "the teacher's pooling leaves the prompt's tokens out, which is done in PyTorch alone"
    return ""


def require_convertible(store: Store) -> None:
    """Refuse a runtime that was asked for by name where the teacher runs in PyTorch alone.

    Raises:
        BadInput: See `unconvertible`.
    """
    if store.runtime != TORCH and (reason := unconvertible(store)):
        raise BadInput(f"`teacher.runtime = {store.runtime}` must be able to run, but: {reason}. {_REMEDY}")


def why_unfit(store: Store, workspace: Workspace, device: str, threads: int) -> str:
    """Convert a store's teacher, and say why its runtime cannot compute the vectors; empty if it can."""
    try:
        _Converted(store.runtime, workspace, device, threads).compared(store)
    except Exception as error:  # What runtimes and compilers raise has no common base class.
        return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    return ""


class _Converted:
    """A teacher in another runtime than PyTorch, converted once per length."""

    def __init__(self, runtime: str, workspace: Workspace, device: str, threads: int) -> None:
        self._runtime, self._workspace, self._device, self._threads = runtime, workspace, device, threads
        self._made: dict[int, Encode] = {}

    def encoder(self, store: Store) -> Encode:
        """The teacher for a store, compared with PyTorch on some of the store's texts.

        Raises:
            BadInput: It cannot be converted, or its vectors differ from PyTorch's.
        """
        require_convertible(store)
        try:
            return self.compared(store)
        except Unfit as unfit:
            raise BadInput(f"{unfit} {_REMEDY}") from unfit.__cause__

    def compared(self, store: Store) -> Encode:
        """As `encoder`; raises `Unfit` where the runtime cannot compute the vectors."""
        if store.max_length not in self._made:
            exact = replace(store, compute="float32", runtime=TORCH)
            loaded = load_teacher(exact, self._workspace, self._device)
            encode = self._convert(store, loaded)
            self._compare(store, encode, as_encoder(loaded, exact))
            self._made[store.max_length] = encode
        return self._made[store.max_length]

    def _convert(self, store: Store, loaded: nn.Module) -> Encode:
        if self._runtime == COMPILE:
            own = loaded
            if store.compute != "float32":
                own = load_teacher(replace(store, runtime=TORCH), self._workspace, self._device)
            return _compiled(as_encoder(own, store))
        with tempfile.TemporaryDirectory() as folder:
            graph = Path(folder) / "teacher.onnx"
            _write(_Teacher(loaded, as_encoder(loaded, store)), graph, store)
            opened = _in_onnx_runtime if self._runtime == ONNX else _in_openvino
            return opened(graph, self._threads, store.compute)

    def _compare(self, store: Store, encode: Encode, exact: Encode) -> None:
        ids, offsets, tokenizer = tokenised_sample(store, self._workspace, _COMPARED)
        ours = Forward(exact, tokenizer.pad_id, default_batch_tokens(self._device, 1), device=self._device)
        reference_NE = ours(ids, offsets)
        # Under autocast the same weights give what PyTorch gives in this precision.
        own = replace(ours, compute=store.compute)
        theirs = replace(own, teacher=encode, ahead=self._threads, quick=False)
        of_torch = lowest_cosine(own(ids, offsets), reference_NE)
        require_agreement(store, lowest_cosine(theirs(ids, offsets), reference_NE), of_torch)


def _compiled(encode: Callable[[Tokens], Tensor]) -> Encode:
    def of_tensors(input_ids_BT: Tensor, attention_mask_BT: Tensor) -> Tensor:
        return encode(Tokens(input_ids_BT, attention_mask_BT))

    compiled: Any = torch.compile(of_tensors, dynamic=True)
    return lambda tokens: compiled(tokens.input_ids_BT, tokens.attention_mask_BT)


def _write(teacher: nn.Module, graph: Path, store: Store) -> None:
    try:
        write_graph(teacher, graph)
    except BadInput as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0].rstrip(".")
        raise Unfit(
            f"the runtime {store.runtime} needs a teacher that torch.onnx can write as a graph, but "
            f"{store.model.name} is none: {reason}."
        ) from error


class _Teacher(nn.Module):
    """A teacher in the form of a student, as graphs are made of one."""

    def __init__(self, model: nn.Module, encode: Callable[[Tokens], Tensor]) -> None:
        super().__init__()
        self.model, self._encode = model, encode

    def forward(self, tokens: Tokens) -> Encoding:
        return Encoding(self._encode(tokens), ())


def _in_onnx_runtime(graph: Path, threads: int, compute: str) -> Encode:
    session = open_session(graph, threads)

    def encode(tokens: Tokens) -> Tensor:
        inputs = graph_inputs(tokens.input_ids_BT, tokens.attention_mask_BT)
        return torch.from_numpy(session.run([OUTPUT], inputs)[0])

    return encode


def _in_openvino(graph: Path, threads: int, compute: str) -> Encode:
    import openvino

    options = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": threads,
        "INFERENCE_PRECISION_HINT": "bf16" if compute == "bfloat16" else "f32",
        # Otherwise the processes of a pool would all sit on the same core.
        "ENABLE_CPU_PINNING": False,
    }
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(str(graph)), "CPU", options)
    free = [compiled.create_infer_request() for _ in range(threads + 1)]

    def encode(tokens: Tokens) -> Later:
        request = free.pop()
        given = zip(INPUTS, (tokens.input_ids_BT, tokens.attention_mask_BT), strict=True)
        request.start_async({name: value.numpy() for name, value in given})

        def read() -> Tensor:
            request.wait()
            vectors_BE = torch.from_numpy(request.get_output_tensor(0).data.copy())
            free.append(request)
            return vectors_BE

        return Later(read)

    return encode
