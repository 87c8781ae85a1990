"""Open, sample and resume a store of 10⁹ rows, whose shards of one size are links to one file.

    python benchmarks/billion.py

A fresh process opens it, reads batches in both orders of training, and begins at a row far inside. What is
read is real; only the bytes of equal shards are shared, so that 72 GB of shards take 17 MB of disk.
It is no part of `make bench`.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from harness import ROOT  # first: it makes the package importable

from stillhouse.core.artifacts import sha256_of, write_json, write_manifest
from stillhouse.corpora.tables import ROWS_PER_SHARD, shard_count, shard_size
from stillhouse.teachers.build_state import QUARANTINE
from stillhouse.teachers.shards import encoded, part_name
from stillhouse.teachers.store import StoreReader
from stillhouse.training.sampler import ExampleOrder, Order, ShardOrder

DIM, BATCH, BATCHES, FAR, TOGETHER = 32, 128, 200, 0.9, 4


def make(folder: Path, rows: int) -> None:
    """Write a finished store of a number of rows, with as many files as a real one."""
    folder.mkdir(parents=True)
    made: dict[int, tuple[Path, str]] = {}
    shards, first = [], 0
    for index in range(shard_count(rows)):
        size, path = min(shard_size(ROWS_PER_SHARD, index), rows - first), folder / part_name(index)
        if size in made:
            path.hardlink_to(made[size][0])
        else:
            vectors_NE = np.random.default_rng(size).standard_normal((size, DIM)).astype(np.float16)
            path.write_bytes(encoded(first + np.arange(size), vectors_NE, 0, "float16"))
            made[size] = path, sha256_of(path)
        stated = {"bytes": path.stat().st_size, "sha256": made[size][1]}
        shards.append({"name": path.name, "first": first, "rows": size, "quarantined": 0, **stated})
        first += size
    write_json(folder / QUARANTINE, [])
    counts = {"rows": rows, "table_rows": rows, "input_rows": rows, "duplicates": 0, "quarantined": 0}
    write_manifest(folder, {**counts, "dim": DIM, "dtype": "float16", "shards": shards})


def read(folder: Path) -> None:
    """Print what opening, the first batch, a batch far inside, and many batches take in this process."""
    began = time.perf_counter()
    store = StoreReader(folder)
    print(f"open {len(store):,} rows in {len(store.starts):,} shards: {since(began)}")
    orders: dict[str, ExampleOrder] = {
        "rows of a shuffled window": Order(len(store), seed=1),
        f"windows of {TOGETHER} shards": ShardOrder(store.starts, len(store), seed=1, together=TOGETHER),
    }
    for name, order in orders.items():
        for place in (0, int(FAR * len(store))):
            began = time.perf_counter()
            order.take(place, BATCH)
            print(f"{name}: the rows of the batch at {place:,}: {since(began)}")
        began = time.perf_counter()
        for number in range(BATCHES):
            vectors_BE = store.gather(order.take(place + number * BATCH, BATCH))
            assert vectors_BE.shape == (BATCH, DIM) and vectors_BE.any(axis=1).all()
        print(f"{name}: {BATCHES} batches of {BATCH} vectors from there: {since(began)}")
    print(f"memory, mapped files among it: {psutil.Process().memory_info().rss / 1e9:.2f} GB")


def since(began: float) -> str:
    """Seconds since a moment."""
    return f"{time.perf_counter() - began:.3f} s"


def main() -> None:
    """Make the store, and read it in another process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read)
        return
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "store", options.rows)
        words = [sys.executable, __file__, "--read", f"{folder}/store"]
        subprocess.run(words, check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
