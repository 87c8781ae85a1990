"""STS12-16, STS-B and SICK-R in the papers' order: Spearman × 100, *all*, *mean* and *wmean*."""

from stillhouse.core.types import Encoder
from stillhouse.evaluation.benchmark import Benchmark, Options, itemised, missing, opened
from stillhouse.evaluation.items import Measured, average, measured
from stillhouse.evaluation.sts import SETS, STS, correlations, resolve_sts, unscored

NEEDS_DATA = True
MTEB_TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R")

_PRINTED = {"STSB": "STS-B", "SICK": "SICK-R"}


def prepare(root: str, options: Options) -> Benchmark:
    """Read the sets; *Avg* is the mean of *all* over the sets."""
    split = "test" if options.final else "dev"
    data = resolve_sts(root, split)
    evaluator = STS(data)

    def measure(model: Encoder) -> Measured:
        scores = evaluator.scores(model)
        items = {_PRINTED.get(name, name): correlations(parts, 100) for name, parts in scores.items()}
        items["Avg"] = {"all": average(each["all"] for each in items.values())}
        return measured(items)

    absent = [_PRINTED.get(name, name) for name in SETS[split] if name not in data.sets]
    empty = ", ".join(f"{count} of {name}" for name, count in unscored(data).items())
    notes = missing(f"{split} files of", absent, "sts/senteval")
    notes += (f"pairs without a gold score, left out: {empty}",) if empty else ()
    return itemised(measure, notes, opens=opened(options, data))
