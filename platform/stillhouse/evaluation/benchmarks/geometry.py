"""The geometry of a model's vectors, on the texts of STS-B and on a text of the user's."""

from pathlib import Path

import numpy as np

from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import fingerprint
from stillhouse.core.types import Encoder, FloatArray
from stillhouse.corpora.reading.corpus import ReadOptions, read_texts, reading_of
from stillhouse.evaluation.benchmark import About, Benchmark, Options, opened
from stillhouse.evaluation.covariance import draw_covariance, feature_correlation
from stillhouse.evaluation.items import Figures
from stillhouse.evaluation.sts import STS, resolve_sts
from stillhouse.evaluation.vector_geometry import alignment, effective_rank, random_pair_cosine, uniformity

NEEDS_DATA = True
MTEB_TASKS: tuple[str, ...] = ()
FLAGS = {
    "figures": {"type": "path", "metavar": "DIR", "help": "draw the covariance of the features as PNG"},
    "texts": {"metavar": "FILE", "help": "also measure these texts, in any form that --corpus takes"},
    "count": {"type": "int", "metavar": "N", "help": "--texts: so many of them, drawn by hash; default all"},
}

POSITIVE_ABOVE = 4.0
"""Pairs with a higher gold score are positive pairs."""


def prepare(root: str, options: Options) -> Benchmark:
    """Measure alignment of STS-B's positive pairs; uniformity, rank, cosine and correlation of all texts."""
    folder: Path | None = options.flag("figures")
    if folder is not None and folder.exists() and not folder.is_dir():
        raise BadInput(f"--figures must be a folder, but {folder} is a file.")
    own = _own_texts(options)
    data = resolve_sts(root, "test" if options.final else "dev", ("STSB",))
    sts = STS(data)
    (pairs,), row_of = sts.sets["STSB"], sts.row_of
    positive = [(row_of[a], row_of[b]) for a, b, gold in pairs if gold > POSITIVE_ABOVE]
    if not positive:
        raise BadInput(f"STS-B must have pairs with a score above 4, but the file under {root} has none.")
    first, second = (np.array(side) for side in zip(*positive, strict=True))

    def figures_of(name: str, vectors_ND: FloatArray) -> dict[str, float]:
        if folder is not None:
            title = f"Covariance of features, {len(vectors_ND):,} texts of {name}"
            draw_covariance(vectors_ND, title, folder / f"covariance{f'-{name}' if name in own else ''}.png")
        aligned = {} if name in own else {"alignment": alignment(vectors_ND[first], vectors_ND[second])}
        return aligned | {
            "uniformity": uniformity(vectors_ND),
            "effective_rank": effective_rank(vectors_ND),
            "random_pair_cosine": random_pair_cosine(vectors_ND),
            "feature_correlation": feature_correlation(vectors_ND),
        }

    def measure(model: Encoder) -> Figures:
        texts = {"STS-B": list(row_of), **own}
        return {name: figures_of(name, np.asarray(model.encode(each))) for name, each in texts.items()}

    sets = {"STS-B": About(data.split, fingerprint(data), "texts", len(row_of))}
    sets |= {name: About("all", fingerprint(texts), "texts", len(texts)) for name, texts in own.items()}
    return Benchmark(measure, sets=sets, opens=opened(options, data), digits=4)


def _own_texts(options: Options) -> dict[str, list[str]]:
    """The texts of `--texts` by the name of their file; none without the flag."""
    source, count = options.flag("texts"), options.flag("count")
    if not source:
        require(count is None, "--count must go with --texts", count=count)
        return {}
    wanted = ReadOptions(limit=count)
    reading = reading_of(source, wanted)
    texts = list(reading.usable(read_texts(source, wanted, reading=reading)))
    reading.understood(len(texts)).say()
    rule = "--texts must have at least two texts, and as many as --count asks for"
    require(len(texts) >= (count or 2), rule, texts=len(texts), count=count)
    return {reading.label: texts}
