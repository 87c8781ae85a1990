"""A disk that is really full: every writer gives one message and leaves existing files unchanged."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from metrics_lines import read_metrics

from stillhouse.core.artifacts import Workspace, replacing, write_atomically, write_manifest
from stillhouse.core.errors import Hindered, mistake_in
from stillhouse.corpora.tables import write_texts
from stillhouse.teachers.shards import encoded
from stillhouse.training import checkpoint
from stillhouse.training.metrics_log import MetricsLog

WEIGHTS = {"weight": torch.zeros(100_000)}


def numpy_file(path: Path) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, np.zeros(100_000))


def shard(path: Path) -> None:
    write_atomically(path, encoded(np.arange(2000), np.zeros((2000, 200), np.float16), 0, "float16"))


WRITERS: dict[str, Callable[[Path], None]] = {
    "checkpoints/step-000000001.pt": lambda path: checkpoint.save(path.parents[1], 1, WEIGHTS),
    "student.safetensors": lambda path: checkpoint.save_weights(path, WEIGHTS),
    "part-00000.arrow": lambda path: shard(path),
    "rows.npy": numpy_file,
    "manifest.json": lambda path: write_manifest(path.parent, {"rows": list(range(100_000))}),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_gives_one_message_and_keeps_the_old_file(small_disk: Path, name: str) -> None:
    path = small_disk / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"old")
    with pytest.raises(Hindered) as report:
        WRITERS[name](path)
    assert str(report.value).startswith(f"there must be room on the disk for {path}, but it is full.")
    assert path.read_bytes() == b"old"
    assert [p for p in small_disk.rglob("*") if p.is_file()] == [path]


def test_a_corpus_that_does_not_fit_leaves_nothing(small_disk: Path) -> None:
    chance = np.random.default_rng(0)
    texts = (" ".join(map(str, chance.integers(0, 10**9, 8))) for _ in range(9000))
    with pytest.raises(Hindered, match="must be room on the disk"):
        write_texts(Workspace(small_disk), "big", texts)
    left = sorted(p.name for p in small_disk.rglob("*") if p.is_file())
    assert left == ["workspace.json"]


def test_a_metrics_log_resumes_after_its_last_complete_line(small_disk: Path) -> None:
    path, step = small_disk / "metrics.jsonl", 0
    (small_disk / "other").write_bytes(b"0" * 240_000)
    log = MetricsLog(path)
    with pytest.raises(OSError) as report:
        while True:
            step += 1
            log.append(step, step, {"loss": 0.5})
    assert isinstance(mistake_in(report.value), Hindered)
    (small_disk / "other").unlink()
    whole = len(read_metrics(path))
    assert 0 < whole < step
    again = MetricsLog(path, after=whole)
    again.append(whole + 1, whole + 1, {"loss": 0.5})
    assert [line["step"] for line in read_metrics(path)] == list(range(1, whole + 2))
