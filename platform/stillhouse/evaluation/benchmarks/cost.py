"""The cost of a model on this machine, and the size of an index of a million of its vectors."""

from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import fingerprint
from stillhouse.core.types import MeasuredSize, StudentHolder
from stillhouse.evaluation.benchmark import About, Benchmark, Options
from stillhouse.evaluation.finite_encoder import FiniteEncoder
from stillhouse.evaluation.items import Figures
from stillhouse.evaluation.serving_cost import (
    CALLS,
    TEXTS,
    index_megabytes,
    int8_megabytes,
    measure_speed,
    onnx_megabytes,
)
from stillhouse.students.export.onnx import require_extra
from stillhouse.students.sizes import sizes

NEEDS_DATA = False
MTEB_TASKS: tuple[str, ...] = ()
FLAGS = {"onnx": {"action": "store_true", "help": "also the size as ONNX"}}


def prepare(root: str, options: Options) -> Benchmark:
    """Check that ONNX is installed if its sizes are requested; ``root`` is not used."""
    if options.flag("onnx"):
        require_extra()

    def measure(checked: FiniteEncoder) -> Figures:
        model = checked.model
        dim = checked.encode(["a text"]).shape[1]
        figures = _sizes(model, onnx=options.flag("onnx"))
        if checked.megabytes_on_disk is not None:
            figures["megabytes_on_disk"] = checked.megabytes_on_disk
        return {
            "model": figures | {"dimension": float(dim)},
            "speed": measure_speed(model),
            "index_mb_per_million": index_megabytes(dim),
        }

    return Benchmark(measure, sets={"speed": About("all", fingerprint(TEXTS), "calls", CALLS)})


def _sizes(model: Any, *, onnx: bool) -> dict[str, float]:
    """The model's parameters, and its size as it is and in other formats where it is a torch module."""
    if isinstance(model, MeasuredSize):
        require(not onnx, "--onnx must be given with a model of torch, not with an ONNX export")
        return model.sizes()
    module = model.student if isinstance(model, StudentHolder) else model
    figures = {**sizes(module), "megabytes_int8": int8_megabytes(module)}
    return figures | (onnx_megabytes(module) if onnx else {})
