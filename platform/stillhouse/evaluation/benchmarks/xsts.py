"""STS in several languages and between them: STS2017, and STS-B with its sides in two languages."""

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import fingerprint
from stillhouse.core.types import Encoder
from stillhouse.evaluation.benchmark import About, Benchmark, Options, itemised, opened
from stillhouse.evaluation.crosslingual_sts import (
    FOLDERS,
    CrossLingualSTS,
    averages,
    crosslingual_sets,
    resolve_crosslingual_sts,
)
from stillhouse.evaluation.items import Items, Measured, average, measured
from stillhouse.evaluation.sts import correlations

NEEDS_DATA = True
MTEB_TASKS = ("STS17",)

_PRINTED = {"sts2017": "STS2017", "extended": "STS2017-extended", "stsb": "STS-B"}


def prepare(root: str, options: Options) -> Benchmark:
    """Read the sets; the figures are Spearman × 100."""
    layouts = (
        (("sts2017", "test"), ("extended", "test"), ("stsb", "test")) if options.final else (("stsb", "dev"),)
    )
    found = [each for each in layouts if crosslingual_sets(root, *each)]
    if not found:
        folders = " or ".join(FOLDERS[layout][0] for layout, _ in layouts)
        raise BadInput(
            f"no STS files of several languages under the data root {root!r}. Put them in {folders}."
        )
    data = {layout: resolve_crosslingual_sts(root, layout, split) for layout, split in found}
    evaluators = {_PRINTED[layout]: CrossLingualSTS(each) for layout, each in data.items()}

    def measure(model: Encoder) -> Measured:
        items: dict[str, dict[str, Items]] = {}
        for name, evaluator in evaluators.items():
            figures = {
                pair: correlations([scores], 100)["all"] for pair, scores in evaluator.scores(model).items()
            }
            means = {
                kind: average(figures[pair] for pair in pairs) for kind, pairs in averages(figures).items()
            }
            items[name] = figures | means
        return measured(items)

    notes = [
        f"no {split} files of {_PRINTED[layout]}: expected in {FOLDERS[layout][0]}"
        for layout, split in layouts
        if (layout, split) not in found
    ]
    sets = {_PRINTED[each.layout]: About(each.split, fingerprint(each), "pairs") for each in data.values()}
    return itemised(measure, tuple(notes), sets=sets, opens=opened(options, *data.values()))
