"""The suites of semantic similarity and translation: STS, STS between languages, Tatoeba."""

from stillhouse.core.errors import require
from stillhouse.core.types import Encoder
from stillhouse.evaluation.benchmarks.bitexts import FOLDERS as BITEXTS
from stillhouse.evaluation.benchmarks.bitexts import find_bitexts, measure_bitext, sha256_of_bitexts
from stillhouse.evaluation.benchmarks.common import Benchmark, Options, itemised, missing, opened
from stillhouse.evaluation.crosslingual_sts import (
    FOLDERS,
    CrossLingualSTS,
    averages,
    crosslingual_sets,
    resolve_crosslingual_sts,
)
from stillhouse.evaluation.items import Items, Measured, average, measured
from stillhouse.evaluation.sts import SETS, STS, correlations, resolve_sts, unscored

_PRINTED = {"STSB": "STS-B", "SICK": "SICK-R"}
_TRANSLATED = {"sts2017": "STS2017", "extended": "STS2017-extended", "stsb": "STS-B"}


def sts(root: str, options: Options) -> Benchmark:
    """STS12-16, STS-B, SICK-R in the papers' order: Spearman × 100 *all*, *mean*, *wmean*; Avg of *all*."""
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

    def measure(model: Encoder) -> Measured:
        items: dict[str, dict[str, Items]] = {}
        for name, evaluator in evaluators.items():
            found = {
                pair: correlations([scores], 100)["all"] for pair, scores in evaluator.scores(model).items()
            }
            means = {kind: average(found[pair] for pair in pairs) for kind, pairs in averages(found).items()}
            items[name] = found | means
        return measured(items)

    notes = [
        f"no {split} files of {_TRANSLATED[layout]}: they would lie in {FOLDERS[layout][0]}"
        for layout, split in wanted
        if (layout, split) not in there
    ]
    return itemised(measure, tuple(notes), opens=opened(options, *data.values()))


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

    def measure(model: Encoder) -> Measured:
        items = {name: measure_bitext(each, model) for name, each in sets.items()}
        for layout in BITEXTS:
            own = [each for name, each in items.items() if name.startswith(f"{layout}.")]
            if len(own) > 1:
                items[f"{layout}.avg"] = {kind: average(each[kind] for each in own) for kind in own[0]}
        return measured(items)

    return itemised(measure, opens=opened(options, sha256_of_bitexts(sets)), across=False)
