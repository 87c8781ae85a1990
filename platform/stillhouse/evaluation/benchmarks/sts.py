"""STS12-16, STS-B and SICK-R in the papers' order: Spearman × 100, *all*, *mean* and *wmean*."""

from stillhouse.core.identity import fingerprint
from stillhouse.core.types import Encoder
from stillhouse.evaluation.benchmark import About, Benchmark, Options, itemised, missing, opened
from stillhouse.evaluation.items import Measured, average, measured
from stillhouse.evaluation.sts import SETS, STS, correlations, resolve_sts, unscored

NEEDS_DATA = True
MTEB_TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R")

_PRINTED = {"STSB": "STS-B", "SICK": "SICK-R"}


def prepare(root: str, options: Options) -> Benchmark:
    """Read the sets; *Avg* is the mean of *all* over the sets, *Avg of 3* over three that are there."""
    split = "test" if options.final else "dev"
    data = resolve_sts(root, split)
    evaluator = STS(data)
    averaged = "Avg" if data.sets == SETS[split] else f"Avg of {len(data.sets)}"

    def measure(model: Encoder) -> Measured:
        scores = evaluator.scores(model)
        items = {_PRINTED.get(name, name): correlations(parts, 100) for name, parts in scores.items()}
        items[averaged] = {"all": average(each["all"] for each in items.values())}
        return measured(items)

    absent = [_PRINTED.get(name, name) for name in SETS[split] if name not in data.sets]
    empty = ", ".join(f"{count} of {name}" for name, count in unscored(data).items())
    notes = missing(f"{split} files of", absent, "sts/senteval")
    notes += (f"pairs without a gold score, left out: {empty}",) if empty else ()
    sets = {
        _PRINTED.get(name, name): About(split, fingerprint(resolve_sts(root, split, (name,))), "pairs")
        for name in data.sets
    }
    return itemised(measure, notes, sets=sets, opens=opened(options, data))
