"""One teacher actor and two, each with one thread: how much quicker the second makes the same store.

The rate is that of the running pool, by the times of the shards' files: from the moment as many are written
as there are actors to the last one, since a pool's start takes the same seconds whatever there is to embed.
The two stores must be the same, byte for byte. The machine's own limit is measured as well: two plain
processes of one thread against one.

    python benchmarks/actors.py [--shards 6]
"""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from clusters import own_ray
from harness import Row, arguments, at_least, finish, median, ratio, spread
from models import first_layers
from pools import running_rate
from sentences import numbered
from served import Served, write_texts

from stillhouse.core.artifacts import Workspace, read_manifest, remove
from stillhouse.corpora.tables import ROWS_PER_SHARD
from stillhouse.corpora.tables import write_texts as write_table
from stillhouse.teachers.embedding import build_stores, resolve_compute
from stillhouse.values.data import Model, Store


def pool(workspace: Workspace, store: Store, actors: int) -> tuple[float, list[str]]:
    """Seconds a row of the running pool, and the checksums of the shards; the store is gone afterwards."""
    build_stores(workspace, [store], actors=actors, threads=1)
    seconds = 1 / running_rate(workspace, store, actors)
    shards = read_manifest(workspace.path(store))["shards"]
    remove(workspace.path(store))
    return seconds, [shard["sha256"] for shard in shards]


def machine_limit(folder: Path, model: Model, texts: list[str], repeats: int) -> float:
    """How much more two plain processes of one thread do than one, on texts in memory."""
    file, options = write_texts(folder, texts), ("ours", "--dtype", "auto", "--threads", "1")
    with Served(file, model.path, *options) as one, Served(file, model.path, *options) as two:
        gains = []
        for _ in range(repeats):
            alone = one.seconds()
            with ThreadPoolExecutor(2) as both:
                together = list(both.map(Served.seconds, (one, two)))
            gains.append(2 * alone / max(together))
    return median(gains)


def main() -> int:
    """One, two, one, two, …."""
    parser = arguments(__doc__)
    parser.add_argument("--shards", type=int, default=0, help="of 2048 sentences; default 6, quick 4")
    parser.add_argument("--layers", type=int, default=0, help="of the real teacher; default 2, quick 1")
    parser.set_defaults(repeats=2)
    options = parser.parse_args()
    count = ROWS_PER_SHARD * (options.shards or (4 if options.quick else 6))
    layers, repeats = options.layers or (1 if options.quick else 2), 1 if options.quick else options.repeats
    texts, compute = numbered(count), resolve_compute()
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        model, workspace = first_layers(folder, layers), Workspace(folder / "runs")
        limit = machine_limit(folder, model, texts[: ROWS_PER_SHARD // (8 if options.quick else 1)], repeats)
        store = Store(write_table(workspace, "sentences", texts), model, max_length=128, compute=compute)
        seconds: dict[int, list[float]] = {1: [], 2: []}
        checksums = set()
        with own_ray():
            for _ in range(repeats):
                for actors, found in seconds.items():
                    each, shards = pool(workspace, store, actors)
                    found.append(each)
                    checksums.add(tuple(shards))
    assert len(checksums) == 1, "the bytes of a store depend on the number of actors"
    rates = {actors: [1 / second for second in found] for actors, found in seconds.items()}
    return finish(
        [
            Row(
                f"two teacher actors of one thread, {count:,} sentences, {layers} layers of the teacher",
                "one such actor",
                **at_least(ratio(seconds[1], seconds[2]), 1.85),
                ours=spread(rates[2], "sentences/s"),
                peer=spread(rates[1], "sentences/s"),
                note=f"the same bytes; two plain processes give {limit:.2f} × one on this machine",
            )
        ],
        options,
    )


if __name__ == "__main__":
    sys.exit(main())
