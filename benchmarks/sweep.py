"""Eight IBKD trials over 20 000 sentences, against Optuna calling sentence-transformers' trainer eight times.

Both have the same teacher and sentences, and give every trial the same number of examples in batches of the
same size (no trial is stopped early). Ours ends with its last trial: it has embedded the sentences once,
trained three MSE students along with the trials, and evaluated all of them. The peer, `distil_peer.py`,
encodes the sentences in every trial; one of its trials is run and stands for eight. A second figure has the
peer's labels computed once, by taking them out of seven of eight trials. Our workspace is kept, for
`trial_start.py` and `overhead.py`.

    python benchmarks/sweep.py
"""

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, arguments, at_least, finish
from models import TEACHER
from sentences import text_file
from served import PEERS_PYTHON, write_texts
from sweeping import KEPT, run_sweep, trials

from stillhouse.core.artifacts import MANIFEST, Workspace, read_manifest
from stillhouse.corpora.read_once import noted
from stillhouse.corpora.tables import open_texts
from stillhouse.teachers.store import StoreReader
from stillhouse.teachers.weights import resolve_model
from stillhouse.values.data import TextTable

BATCH, LENGTH, COSINE = 64, 64, 0.999
SAME = (
    *("--scheduler", "none", "--set", f"distil_batch_size={BATCH}", "--set", "distil_epochs=0"),
    *("--sentences", "0", "--evaluations", "1"),
)


def peers_python() -> str | None:
    """An interpreter with the trainer's `accelerate`: this one, or that of `make peers`."""
    if importlib.util.find_spec("accelerate") is not None:
        return sys.executable
    return str(PEERS_PYTHON) if PEERS_PYTHON.exists() else None


def peer(python: str, file: Path, held_out: int, budget: int) -> tuple[float, list[dict[str, float]], Any]:
    """Measure a trial of the peer: remaining seconds, the parts of each trial, some labels."""
    output = file.with_name("peer.json")
    given = ["--model", resolve_model(TEACHER).path, "--texts", str(file), "--output", str(output)]
    sizes = ["--trials", "1", "--budget", str(budget), "--batch", str(BATCH), "--held-out", str(held_out)]
    script = str(Path(__file__).with_name("distil_peer.py"))
    began = time.perf_counter()
    subprocess.run([python, script, *given, *sizes, "--max-length", str(LENGTH)], check=True)
    whole = time.perf_counter() - began
    found: list[dict[str, float]] = json.loads(output.read_text())
    return whole - sum(map(seconds_of, found)), found, np.load(output.with_suffix(".npy"))


def seconds_of(trial: dict[str, float], *left_out: str) -> float:
    """Seconds of a trial of the peer, without some parts."""
    return sum(trial[part] for part in ("encode", "train", "evaluate") if part not in left_out)


def split(root: Path) -> dict[str, TextTable]:
    """Our ``train``, ``dev`` and ``test`` texts, by name."""
    (note,) = (root / "sources").glob("split-*.json")
    return {table.label.rpartition("-")[2]: table for table in noted(Workspace(root), note) or ()}


def all_texts(root: Path, table: TextTable) -> list[str]:
    """Every text of a table, in order."""
    texts = open_texts(Workspace(root), table)
    return texts[np.arange(len(texts))]


def lowest_cosine(root: Path, table: TextTable, labels: Any) -> float:
    """Lowest cosine between the peer's labels and our store's vectors of the same (first) sentences."""
    (manifest,) = (root / "stores").glob(f"{table.label}-*/{MANIFEST}")
    ours = StoreReader(manifest.parent).gather(np.arange(len(labels)))
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(labels, axis=1)
    return float(((ours * labels).sum(axis=1) / norms).min())


def main() -> int:
    """Ours, then the peer."""
    options = arguments(__doc__).parse_args()
    count, held_out, budget, sentences = (2, 64, 128, 512) if options.quick else (8, 512, 2048, 20_000)
    python = peers_python()
    assert python is not None, "the peer's trainer wants `accelerate`: make peers"
    flags = (
        "--set",
        f"sentences.held_out={held_out}",
        "--distil-budget",
        str(budget),
        "--max-length",
        str(LENGTH),
    )
    with tempfile.TemporaryDirectory() as held:
        folder, root = Path(held), Path(held) / "runs" if options.quick else KEPT
        shutil.rmtree(root, ignore_errors=True)
        corpus = ("--corpus", str(text_file(folder, sentences + 2 * held_out)))
        began, ended = run_sweep(root, "--trials", str(count), *corpus, *flags, *SAME)
        done = trials(root)
        ours = max(trial.ended for trial in done) - began
        steps = {read_manifest(stage)["steps"] for trial in done for stage in trial.stages}
        tables = split(root)
        trained, dev = all_texts(root, tables["train"]), all_texts(root, tables["dev"])
        around, found, labels = peer(python, write_texts(folder, trained + dev), len(dev), budget)
        cosine, sentences = lowest_cosine(root, tables["train"], labels), len(trained)
    steps |= {int(trial["steps"]) for trial in found}
    assert steps == {budget // BATCH}, f"the budgets differ: {steps} steps"
    assert len(done) == count and cosine >= COSINE, f"{len(done)} trials, lowest cosine {cosine}"
    each = [float(np.mean([seconds_of(trial, *out) for trial in found])) for out in ((), ("encode",))]
    encode = float(np.mean([trial["encode"] for trial in found]))
    naive, once = around + count * each[0], around + encode + count * each[1]
    what = f"{count} IBKD trials of {budget:,} examples over {sentences:,} sentences, teacher included"
    rate = f"{3600 * count / ours:.0f} trials/h"
    note = (
        f"ours {ours:.0f} s to the end of the last trial, {ended - began:.0f} s with test and report; "
        f"a trial of the peer's: labels {encode:.0f} s, training and evaluation {each[1]:.0f} s; its loss is "
        f"MSE; lowest cosine of labels {cosine:.5f}"
    )
    peers = {name: f"{3600 * count / s:.0f} trials/h" for name, s in (("naive", naive), ("once", once))}
    naively = "Optuna and `SentenceTransformerTrainer`, labels in every trial"
    said: dict[str, Any] = {"ours": rate, "note": note}
    return finish(
        [
            Row(
                what,
                naively,
                **at_least(naive / ours, 5),
                **said,
                peer=f"{3600 * count / naive:.0f} trials/h",
            ),
            Row(
                what,
                "the same, labels computed once",
                target="–",
                measured=f"{once / ours:.2f}×",
                met=True,
                ours=rate,
                peer=peers["once"],
            ),
        ],
        options,
    )


if __name__ == "__main__":
    sys.exit(main())
