"""What a model costs on this machine, and the size of an index of a million of its vectors."""

from stillhouse.core.types import StudentHolder
from stillhouse.evaluation.benchmark import Benchmark, Options
from stillhouse.evaluation.cost import (
    index_megabytes,
    int8_megabytes,
    measure_speed,
    onnx_megabytes,
    sizes,
)
from stillhouse.evaluation.finite_encoder import FiniteEncoder
from stillhouse.evaluation.items import Figures
from stillhouse.students.export.onnx import require_extra

NEEDS_DATA = False
MTEB_TASKS: tuple[str, ...] = ()
FLAGS = {"onnx": {"action": "store_true", "help": "also the size as ONNX"}}


def prepare(root: str, options: Options) -> Benchmark:
    """Check that ONNX is installed if its sizes are requested; ``root`` is not used."""
    if options.flag("onnx"):
        require_extra()

    def measure(checked: FiniteEncoder) -> Figures:
        model = checked.model
        module = model.student if isinstance(model, StudentHolder) else model
        dim = checked.encode(["a text"]).shape[1]
        figures = {**sizes(module), "megabytes_int8": int8_megabytes(module)}
        figures |= onnx_megabytes(module) if options.flag("onnx") else {}
        return {
            "model": figures | {"dimension": float(dim)},
            "speed": measure_speed(model),
            "index_mb_per_million": index_megabytes(dim),
        }

    return Benchmark(measure)
