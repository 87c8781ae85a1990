"""The geometry of a model's vectors, on the texts of STS-B."""

from pathlib import Path

import numpy as np

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import fingerprint
from stillhouse.core.types import Encoder
from stillhouse.evaluation.benchmark import About, Benchmark, Options, opened
from stillhouse.evaluation.covariance import draw_covariance, feature_correlation
from stillhouse.evaluation.items import Figures
from stillhouse.evaluation.sts import STS, resolve_sts
from stillhouse.evaluation.vector_geometry import alignment, effective_rank, random_pair_cosine, uniformity

NEEDS_DATA = True
MTEB_TASKS: tuple[str, ...] = ()
FLAGS = {
    "figures": {"type": "path", "metavar": "DIR", "help": "draw the covariance of the features as PNG"},
}

POSITIVE_ABOVE = 4.0
"""Pairs with a higher gold score are positive pairs."""


def prepare(root: str, options: Options) -> Benchmark:
    """Measure alignment of the positive pairs; uniformity, rank, cosine and correlation of all texts."""
    figures_folder: Path | None = options.flag("figures")
    if figures_folder is not None and figures_folder.exists() and not figures_folder.is_dir():
        raise BadInput(f"--figures must be a folder, but {figures_folder} is a file.")
    data = resolve_sts(root, "test" if options.final else "dev", ("STSB",))
    sts = STS(data)
    (pairs,), row_of = sts.sets["STSB"], sts.row_of
    positive = [(row_of[a], row_of[b]) for a, b, gold in pairs if gold > POSITIVE_ABOVE]
    if not positive:
        raise BadInput(f"STS-B must have pairs with a score above 4, but the file under {root} has none.")
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
        if figures_folder is not None:
            title = f"Covariance of features, {len(vectors):,} texts of STS-B"
            draw_covariance(vectors, title, figures_folder / "covariance.png")
        return {"STS-B": figures}

    sets = {"STS-B": About(data.split, fingerprint(data), "texts", len(row_of))}
    return Benchmark(measure, sets=sets, opens=opened(options, data), digits=4)
