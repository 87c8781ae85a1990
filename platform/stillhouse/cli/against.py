"""`stillhouse evaluate MODEL … --against OTHER`: compare two models on the same items, figure by figure."""

from argparse import Namespace
from dataclasses import asdict
from typing import Any

from stillhouse.core.console import say, show
from stillhouse.core.errors import require
from stillhouse.evaluation.items import FiguresAndItems, Measured
from stillhouse.evaluation.paired import Paired, compare_figures
from stillhouse.reports.layout import table_lines

Compared = dict[str, dict[str, Paired]]
"""Comparisons by test set and figure."""


def check_against(options: Namespace) -> None:
    """Refuse flags that contradict each other, before any work.

    Raises:
        BadInput: ``--resamples`` comes without ``--against``, or is too small.
    """
    alone = options.resamples is None or options.against is not None
    require(alone, "--resamples goes with --against", resamples=options.resamples)
    enough = options.resamples is None or options.resamples >= 100
    require(enough, "--resamples >= 100", resamples=options.resamples)


def compared_with(model: Measured, other: Measured, options: Namespace) -> Compared:
    """Compare the figures of two models, with the seed and the number of samples of the command line."""
    return compare_figures(
        model.figures,
        other.figures,
        (model.items, other.items),
        resamples=options.resamples or 0,
        seed=options.seed or 0,
    )


def compare_suites(
    name: str, model: FiguresAndItems, other: FiguresAndItems, options: Namespace, titles: tuple[str, str]
) -> Compared:
    """Compare two models on the experiment's own suite, and print the comparison."""
    ours, theirs = (Measured({name: figures}, {name: items}) for figures, items in (model, other))
    found = compared_with(ours, theirs, options)
    show_against(name, found, options, digits=4, titles=titles)
    return found


def models_of(options: Namespace) -> list[str]:
    """Return the names of the model and, if given, of the model to compare with."""
    return [options.model, *([options.against] if options.against else [])]


def show_against(
    name: str, found: Compared, options: Namespace, digits: int, titles: tuple[str, str]
) -> None:
    """Print one line per figure: both values, the difference with its interval, p, and the share kept."""
    ones = [(set_, kind, one) for set_, figures in found.items() for kind, one in figures.items()]
    tested = any(one.items for _, _, one in ones)
    header = ["set", "figure", "model", "other", "difference"]
    header += ["95 % interval", "p", "p (Holm)", "share"] if tested else []
    cells = [[set_, kind, *_written(one, digits)][: len(header)] for set_, kind, one in ones]
    show()
    show(f"{name}: {titles[0]} against {titles[1]}")
    for line in table_lines(header, cells, {0, 1}, key=2):
        show(line)
    drawn = sorted({one.resamples for _, _, one in ones if one.resamples})
    if drawn:
        counts = " and ".join(f"{count:,}" for count in drawn)
        say(f"note: paired bootstrap and two-sided randomisation, {counts} samples, seed {options.seed or 0}")


def results_against(
    options: Namespace, found: dict[str, Compared], titles: tuple[str, str]
) -> dict[str, Any]:
    """The comparison as `--json` writes it: by suite, test set and figure."""
    return {
        "model": options.against,
        "titles": list(titles),
        "seed": options.seed or 0,
        "suites": {
            suite: {
                set_: {kind: asdict(one) for kind, one in figures.items()} for set_, figures in each.items()
            }
            for suite, each in found.items()
        },
    }


def _written(one: Paired, digits: int) -> list[str]:
    def number(value: float, sign: str = "") -> str:
        whole = abs(value) >= 1000 and value == int(value)
        return f"{value:{sign},.{0 if whole else digits}f}"

    ends = [number(end, "+") for end in (one.low, one.high) if end is not None]
    share = "" if one.share is None else f"{100 * one.share:.1f} %"
    return [
        number(one.model),
        number(one.other),
        number(one.difference, "+"),
        " … ".join(ends),
        _p(one.p),
        _p(one.p_holm),
        share,
    ]


def _p(p: float | None) -> str:
    """Format p with three decimals, or as less than the smallest of these."""
    if p is None:
        return ""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"
