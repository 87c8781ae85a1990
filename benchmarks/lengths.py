"""A pass over texts of 3 to 256 tokens: in random batches, in batches of similar length, and by tokens.

Every way reads the same texts once, so the ratio of two passes is that of the cost of a real token. On a CPU
the loop divides each batch into groups of similar length already; "as on a GPU" measures without these.
"""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from harness import Row, arguments, at_least, finish, in_turn, median, ratio
from sentences import WORKSPACE
from stages import make_stage, module_of, opened, stepping

from stillhouse.core.identity import spec
from stillhouse.core.types import Batch
from stillhouse.corpora.mixing import joined
from stillhouse.corpora.pydocs.pydocs_corpus import pydocs
from stillhouse.objectives.matching import Regression
from stillhouse.training import grouped
from stillhouse.training.prefetch import batches
from stillhouse.training.table import TrainingTable
from stillhouse.values.data import AllRows, Examples, Store, TextTable
from stillhouse.values.stage import Stage

LENGTH, BATCH = 256, 64
WAYS = {
    "random": {},
    "similar": {"length_window": True},
    "tokens": {"length_window": True, "batch_tokens": True},
}


@dataclass
class Way:
    """The batches of one way, and a module that trains on them."""

    stage: Stage
    training: TrainingTable
    given: list[Batch]

    def run(self) -> float:
        """Make one pass with the first weights, and return the seconds of its steps."""
        return sum(stepping(self.stage, module_of(self.stage, self.training), self.given))

    @property
    def real(self) -> int:
        """Tokens without padding."""
        return sum(int(batch.tokens["text"].attention_mask_BT.sum()) for batch in self.given)

    @property
    def padding(self) -> float:
        """Share of the tokens that are padding, where a batch is padded to its longest text."""
        return 1 - self.real / sum(batch.tokens["text"].attention_mask_BT.numel() for batch in self.given)


def texts(count: int) -> TextTable:
    """Queries, sentences and passages of the docstrings, so many of each."""
    docs = pydocs(WORKSPACE, sentences=count, pairs=count)
    columns = docs.pairs.columns
    return joined(WORKSPACE, "lengths", [columns["query"], docs.sentences, columns["passage"]])


def ways(quick: bool) -> dict[str, Way]:
    """The three ways over the same texts."""
    count = 64 if quick else 256
    table = texts(count)
    batch = 16 if quick else BATCH
    first = make_stage(
        spec(Regression), quick=quick, batch=batch, steps=3 * count // batch, max_length=LENGTH
    )
    (store,) = first.stores.values()
    assert isinstance(store, Store)
    stage = replace(
        first,
        examples=Examples({"text": table}, AllRows()),
        stores={"text": replace(store, texts=table, max_length=LENGTH)},
    )
    training = opened(stage)
    mean_length = float(training.lengths_of(np.arange(len(training))).mean())
    tokens = max(8 * LENGTH, round(batch * mean_length / 64) * 64)
    sizes = {"length_window": len(training), "batch_tokens": tokens}
    made = {}
    for name, chosen in WAYS.items():
        changes: dict[str, Any] = {key: sizes[key] for key in chosen}
        own = replace(stage, **changes)
        made[name] = Way(own, training, list(batches(own, training, "cpu", 0)))
    assert len({way.real for way in made.values()}) == 1, "all read the same texts"
    return made


@contextlib.contextmanager
def whole_batches() -> Iterator[None]:
    """Without the groups into which a batch is divided on a CPU."""
    before = dict(grouped.TEXTS_PER_GROUP)
    grouped.TEXTS_PER_GROUP["cpu"] = 0
    try:
        yield
    finally:
        grouped.TEXTS_PER_GROUP.update(before)


def rows(made: dict[str, Way], repeats: int, where: str, target: float) -> list[Row]:
    """Measure the three ways in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in made}
    runs = {name: (lambda name=name, way=way: seconds[name].append(way.run())) for name, way in made.items()}
    in_turn(runs, repeats, warmups=0)
    plain = made["random"]

    def figure(name: str) -> str:
        way = made[name]
        cost = 1e6 * median(seconds[name]) / way.real
        return f"{cost:.1f} µs per real token, {way.padding:.0%} padding, {len(way.given)} steps"

    named = {"similar": f"batches of {len(plain.given[0].rows['text'])} texts of similar length"}
    named["tokens"] = f"batches of {made['tokens'].stage.batch_tokens:,} tokens of similar length"
    return [
        Row(
            f"a pass over texts of 3 to {LENGTH} tokens in {what}{where}",
            "random batches",
            **at_least(ratio(seconds["random"], seconds[name]), target),
            ours=figure(name),
            peer=figure("random"),
            note=f"{sum(len(batch.rows['text']) for batch in plain.given):,} texts, {plain.real:,} real "
            f"tokens, {repeats} passes of each in turn",
        )
        for name, what in named.items()
    ]


def main() -> int:
    """Measure with the groups of a CPU, and without."""
    options = arguments(__doc__).parse_args()
    made, repeats = ways(options.quick), 1 if options.quick else min(3, options.repeats)
    found = rows(made, repeats, "", 1.0)
    with whole_batches():
        found += rows(made, repeats, ", as on a GPU", 1.5)
    return finish(found, options)


if __name__ == "__main__":
    sys.exit(main())
