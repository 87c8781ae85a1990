"""The suites of the vectors themselves: how they lie in space, and what they cost."""

import numpy as np

from stillhouse.core.errors import require
from stillhouse.core.types import Encoder
from stillhouse.evaluation.benchmarks.common import Benchmark, Figures, Options, opened
from stillhouse.evaluation.cost import sizes
from stillhouse.evaluation.covariance import draw_covariance, feature_correlation
from stillhouse.evaluation.finite_encoder import Checked
from stillhouse.evaluation.footprint import index_megabytes, int8_megabytes, measure_speed, onnx_megabytes
from stillhouse.evaluation.geometry import alignment, effective_rank, random_pair_cosine, uniformity
from stillhouse.evaluation.sts import STS, resolve_sts
from stillhouse.students.export.onnx import require_extra

_POSITIVE_ABOVE = 4.0


def geometry(root: str, options: Options) -> Benchmark:
    """Of STS-B: alignment of its pairs above 4; of its texts uniformity, rank, cosine and correlation."""
    require(
        options.figures is None or options.figures.is_dir() or not options.figures.exists(),
        "--figures is a folder",
        figures=str(options.figures),
    )
    data = resolve_sts(root, "test" if options.final else "dev", ("STSB",))
    ((pairs,), row_of) = (lambda read: (read.sets["STSB"], read.row_of))(STS(data))
    positive = [(row_of[a], row_of[b]) for a, b, gold in pairs if gold > _POSITIVE_ABOVE]
    require(bool(positive), "STS-B has pairs with a score above 4", root=root)
    first, second = (np.array(side) for side in zip(*positive, strict=True))

    def measure(model: Encoder) -> Figures:
        vectors = np.asarray(model.encode(list(row_of)))
        figures = {
            "alignment": alignment(vectors[first], vectors[second]),
            "uniformity": uniformity(vectors),
            "effective_rank": effective_rank(vectors),
            "random_pair_cosine": random_pair_cosine(vectors),
            "feature_correlation": feature_correlation(vectors),
        }
        if options.figures is not None:
            title = f"Covariance of features, {len(vectors):,} texts of STS-B"
            draw_covariance(vectors, title, options.figures / "covariance.png")
        return {"STS-B": figures}

    return Benchmark(measure, (), opened(options, data), digits=4)


def cost(root: str, options: Options) -> Benchmark:
    """What the model costs on this machine, and megabytes of an index of a million of its vectors."""
    if options.onnx:
        require_extra()

    def measure(checked: Checked) -> Figures:
        model = checked.model
        module, dim = getattr(model, "student", model), checked.encode(["a text"]).shape[1]
        figures = {**sizes(module), "megabytes_int8": int8_megabytes(module)}
        figures |= onnx_megabytes(module) if options.onnx else {}
        return {
            "model": figures | {"dimension": float(dim)},
            "speed": measure_speed(model),
            "index_mb_per_million": index_megabytes(dim),
        }

    return Benchmark(measure)
