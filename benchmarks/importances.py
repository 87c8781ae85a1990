"""How far importances and their intervals can be trusted: studies of pure noise, and of one decisive name.

Every study is drawn anew: uniform points; the quality is noise alone, or the first hyper-parameter with
noise of half its standard deviation. Printed are, over all hyper-parameters that do nothing, how often the
interval contains the mean share, how often it lies above it (which would be said of something that does
nothing), and the largest share that a bar without an interval would show.

    python benchmarks/importances.py [STUDIES]
"""

import sys
import time
from typing import Any

import numpy as np
import optuna

from stillhouse.reports.importances import Importances, needed_trials, with_intervals

STUDIES = 12
NAMES = (2, 4, 6, 8)


def trials(count: int, names: int, seed: int, *, decisive: bool) -> list[Any]:
    """Draw the finished trials of a study."""
    random = np.random.default_rng([seed, count, names])
    points, noise = random.random((count, names)), random.normal(size=count)
    deviation = 1 / np.sqrt(12)
    qualities = points[:, 0] + 0.5 * deviation * noise if decisive else noise
    unit = optuna.distributions.FloatDistribution(0, 1)
    columns = [f"x{place}" for place in range(names)]
    return [
        optuna.trial.create_trial(
            params=dict(zip(columns, map(float, point), strict=True)),
            distributions=dict.fromkeys(columns, unit),
            value=float(quality),
        )
        for point, quality in zip(points, qualities, strict=True)
    ]


def line(count: int, names: int, studies: int, *, decisive: bool) -> str:
    """Simulate studies of one size, and summarise them."""
    started = time.perf_counter()
    found = [with_intervals(trials(count, names, seed, decisive=decisive)) for seed in range(studies)]
    seconds = (time.perf_counter() - started) / studies
    nothing = [(each, one) for one in found for each in one.shares if not (decisive and each.name == "x0")]
    contain = np.mean([each.low <= one.equal_share <= each.high for each, one in nothing])
    above = np.mean([one.clear(each) for each, one in nothing])
    largest = np.mean([max(each.share for each, its in nothing if its is one) for one in found])
    told = f"{np.mean([_told(one) for one in found]):.2f}" if decisive else "-"
    return (
        f"{names:>5} {count:>6} {'x0' if decisive else 'noise':>8} {contain:>9.3f} {above:>6.3f} "
        f"{largest:>8.2f} {told:>5} {seconds:>8.1f}"
    )


def _told(found: Importances) -> bool:
    """Whether the decisive name is told from noise."""
    return any(found.clear(each) for each in found.shares if each.name == "x0")


def main() -> None:
    """Print one line per size and kind of study."""
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else STUDIES
    print(f"{studies} studies each; contains and above: shares of the intervals of names that do nothing")
    print("names trials  decides  contains  above  largest  told  seconds")
    for names in NAMES:
        for count in sorted({max(6, names), 2 * names + 2, needed_trials(names)}):
            for decisive in (False, True):
                print(line(count, names, studies, decisive=decisive), flush=True)


if __name__ == "__main__":
    main()
