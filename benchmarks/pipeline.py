"""Cost of the Ray Data path: a text file to a finished store, compared with a plain loop over token ids.

Ours reads, cleans and deduplicates the file, cuts it into shards, starts two teacher actors of one thread
each, tokenises, embeds, writes and checks the shards. The peer has the token ids in memory and runs the same
forward pass, in the same precision and with batches by length, with two threads in one process. It runs over
every tenth row before and after ours, so that a machine that drifts is seen; its rate is taken as the mean.

    python benchmarks/pipeline.py [--layers 6] [--sentences 100000]
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from clusters import own_ray
from harness import Row, arguments, at_least, finish
from models import first_layers
from sentences import numbered, text_file

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.corpora.reading.corpus import ReadOptions
from stillhouse.corpora.reading.ingest import ingest
from stillhouse.teachers.embedding import build_stores, resolve_compute
from stillhouse.teachers.forward import Forward, default_batch_tokens
from stillhouse.teachers.loading import as_encoder, load_teacher
from stillhouse.teachers.store import open_store
from stillhouse.values.data import Model, Store, TextTable

ACTORS, EVERY, LENGTH, COSINE = 2, 10, 128, 0.999


class Plain:
    """The peer: a model, token ids, and one loop."""

    def __init__(self, model: Model, texts: list[str], compute: str) -> None:
        tokenizer = FastTokenizer(Path(model.path), LENGTH)
        store = Store(TextTable(""), model, max_length=LENGTH, compute=compute)
        teacher = as_encoder(load_teacher(store, Workspace(Path("unused"))), store)
        self._forward = Forward(teacher, tokenizer.pad_id, default_batch_tokens("cpu", ACTORS), compute)
        self._ids, self._offsets = tokenizer(texts)
        self.vectors = self._forward(*tokenizer(texts[:256]))

    def rate(self) -> float:
        """Sentences a second of one more pass."""
        torch.set_num_threads(ACTORS)
        began = time.perf_counter()
        self.vectors = self._forward(self._ids, self._offsets)
        return len(self.vectors) / (time.perf_counter() - began)


def ours(workspace: Workspace, file: Path, model: Model, compute: str) -> tuple[Store, dict[str, float]]:
    """From the file to the store: the store, and the seconds of each part; Ray is up, nothing else is."""
    began = time.time()
    table = ingest(workspace, str(file), ReadOptions())
    read = time.time()
    store = Store(table, model, max_length=LENGTH, compute=compute)
    build_stores(workspace, [store], actors=ACTORS, threads=1)
    ended = time.time()
    first = min(shard.stat().st_mtime for shard in workspace.path(store).glob("*.arrow"))
    parts = {"whole": ended - began, "reading": read - began, "until the first shard": first - read}
    return store, parts


def lowest_cosine(workspace: Workspace, store: Store, plain: Plain) -> float:
    """Agreement of the peer's vectors and ours for the same rows."""
    rows = np.arange(0, EVERY * len(plain.vectors), EVERY)
    stored = open_store(workspace, store).gather(rows)
    norms = np.linalg.norm(stored, axis=1) * np.linalg.norm(plain.vectors, axis=1)
    return float(((stored * plain.vectors).sum(axis=1) / norms).min())


def main() -> int:
    """Peer, ours, peer."""
    parser = arguments(__doc__)
    parser.add_argument("--layers", type=int, default=0, help="of the real teacher; default all, quick 1")
    parser.add_argument("--sentences", type=int, default=0, help="default 100 000, quick 4096")
    options = parser.parse_args()
    count = options.sentences or (4096 if options.quick else 100_000)
    layers = options.layers or (1 if options.quick else 6)
    texts, compute = numbered(count), resolve_compute("cpu")
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        corpus = text_file(folder, count)
        model, workspace = first_layers(folder, layers), Workspace(folder / "runs")
        plain = Plain(model, texts[::EVERY], compute)
        rates = [plain.rate()]
        with own_ray() as started:
            store, parts = ours(workspace, corpus, model, compute)
        rates.append(plain.rate())
        manifest, cosine = read_manifest(workspace.path(store)), lowest_cosine(workspace, store, plain)
    assert manifest["rows"] == count, f"{manifest['rows']} rows of {count} were embedded"
    assert cosine >= COSINE, f"the lowest cosine to the plain loop is {cosine}"
    rate, peer = count / parts["whole"], float(np.mean(rates))
    row: dict[str, Any] = at_least(100 * rate / peer, 90, " %")
    detail = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items())
    said = [
        f"{detail}; before it Ray's own start {started:.1f} s",
        f"the actors' forward passes and files {manifest['seconds'] / ACTORS:.1f} s",
        f"lowest cosine to the loop {cosine:.5f}",
    ]
    return finish(
        [
            Row(
                f"a text file of {count:,} sentences to a store, {layers} layers of the teacher, "
                f"{ACTORS} actors of one thread",
                f"a plain loop over token ids in memory, {ACTORS} threads",
                **row,
                ours=f"{rate:.0f} sentences/s",
                peer=f"{rates[0]:.0f} before, {rates[1]:.0f} after",
                note="; ".join(said),
            )
        ],
        options,
    )


if __name__ == "__main__":
    sys.exit(main())
