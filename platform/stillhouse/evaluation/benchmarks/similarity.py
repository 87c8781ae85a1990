"""The suites of semantic similarity and translation: STS, STS between languages, Tatoeba."""

import numpy as np

from stillhouse.errors import require
from stillhouse.evaluation.benchmarks.common import Benchmark, Figures, Options, missing, opened
from stillhouse.evaluation.bitexts import FOLDERS as BITEXTS
from stillhouse.evaluation.bitexts import find_bitexts, measure_bitext, sha256_of_bitexts
from stillhouse.evaluation.crosslingual_sts import (
    FOLDERS,
    CrossLingualSTS,
    crosslingual_sets,
    resolve_crosslingual_sts,
)
from stillhouse.evaluation.sts import SETS, STS, resolve_sts, unscored
from stillhouse.types import Encoder

_PRINTED = {"STSB": "STS-B", "SICK": "SICK-R"}
_TRANSLATED = {"sts2017": "STS2017", "extended": "STS2017-extended", "stsb": "STS-B"}


def sts(root: str, options: Options) -> Benchmark:
    """STS12-16, STS-B, SICK-R in the papers' order: Spearman × 100 *all*, *mean*, *wmean*; Avg of *all*."""
    split = "test" if options.final else "dev"
    data = resolve_sts(root, split)
    evaluator = STS(data)

    def measure(model: Encoder) -> Figures:
        flat = evaluator(model)
        figures: Figures = {}
        for name in data.sets:
            all_ = f"sts_{name.lower()}_spearman_cosine"
            found = {"all": all_, "mean": f"{all_}_mean", "wmean": f"{all_}_wmean"}
            kept = {kind: 100 * flat[key] for kind, key in found.items() if key in flat}
            figures[_PRINTED.get(name, name)] = kept
        figures["Avg"] = {"all": float(np.mean([each["all"] for each in figures.values()]))}
        return figures

    absent = [_PRINTED.get(name, name) for name in SETS[split] if name not in data.sets]
    empty = ", ".join(f"{count} of {name}" for name, count in unscored(data).items())
    notes = missing(f"{split} files of", absent, "sts/senteval")
    notes += (f"pairs without a gold score, left out: {empty}",) if empty else ()
    return Benchmark(measure, notes, opened(options, data))


def xsts(root: str, options: Options) -> Benchmark:
    """STS2017, and STS-B with the sides in two languages: Spearman × 100."""
    wanted = (
        (("sts2017", "test"), ("extended", "test"), ("stsb", "test")) if options.final else (("stsb", "dev"),)
    )
    there = [each for each in wanted if crosslingual_sets(root, *each)]
    require(
        bool(there),
        "STS files of several languages lie under the data root",
        root=root,
        remedy=f"Put them into {' or '.join(FOLDERS[layout][0] for layout, _ in wanted)} there.",
    )
    data = {layout: resolve_crosslingual_sts(root, layout, split) for layout, split in there}
    evaluators = {_TRANSLATED[layout]: CrossLingualSTS(each) for layout, each in data.items()}

    def measure(model: Encoder) -> Figures:
        return {
            name: {
                figure.removeprefix("xsts_").removesuffix("_spearman_cosine_x100"): value
                for figure, value in evaluator(model).items()
            }
            for name, evaluator in evaluators.items()
        }

    notes = [
        f"no {split} files of {_TRANSLATED[layout]}: they would lie in {FOLDERS[layout][0]}"
        for layout, split in wanted
        if (layout, split) not in there
    ]
    return Benchmark(measure, tuple(notes), opened(options, *data.values()))


def translation(root: str, options: Options) -> Benchmark:
    """Tatoeba, 1000 sentences of LASER and the test sets of OPUS-MT: accuracy × 100 both ways."""
    sets = find_bitexts(root)
    require(
        bool(sets),
        "Tatoeba files lie under the data root",
        root=root,
        remedy=f"Put them into {' or '.join(folders[0] for folders in BITEXTS.values())} there.",
    )
    for each in sets.values():
        each.read()

    def measure(model: Encoder) -> Figures:
        figures = {name: measure_bitext(each, model) for name, each in sets.items()}
        for layout in BITEXTS:
            own = [value for name, value in figures.items() if name.startswith(f"{layout}.")]
            if len(own) > 1:
                figures[f"{layout}.avg"] = {key: float(np.mean([v[key] for v in own])) for key in own[0]}
        return figures

    return Benchmark(measure, (), opened(options, sha256_of_bitexts(sets)), across=False)
