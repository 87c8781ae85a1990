"""Damaged checkpoints and metrics logs: training continues from what can be trusted, to the same weights."""

import io
import shutil
import zipfile
from pathlib import Path

import pytest
from stand_ins import dev, stage, table, weight_figure  # type: ignore[import-not-found]

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import Hindered
from stillhouse.training import checkpoint
from stillhouse.training.fit import fit
from stillhouse.training.metrics_log import MetricsLog, read_lines
from stillhouse.training.rank_sync import Interrupted
from stillhouse.values.stage import Stage

pytestmark = pytest.mark.usefixtures("one_thread", "bare_encoder")


def plan(seed: int = 3) -> Stage:
    result: Stage = stage(budget=8 * 60, dev=dev(), evaluate_every=8 * 15, seed=seed)
    return result


def train(folder: Path, *, until: int = 10**9, seed: int = 3) -> None:
    steps = iter(range(1, 1000))
    fit(plan(seed), table(), folder, evaluate=weight_figure, stop_requested=lambda: next(steps) >= until)


def test_a_checkpoint_whose_best_one_is_gone_is_put_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training that continued from it would end without the weights to be kept."""
    for step, best in ((1, 1), (2, 1), (3, 3)):
        checkpoint.save(tmp_path, step, {"progress": {"best": [[0.5, best]]}})
    checkpoint.path_of(tmp_path, 1).unlink()
    checkpoint.heal(tmp_path)
    assert checkpoint.steps(tmp_path) == [3]
    assert "step-000000002.pt needs the checkpoint of step 1, which is gone" in capsys.readouterr().err


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    folder = tmp_path / "interrupted"
    with pytest.raises(Interrupted):
        train(folder, until=40)
    return folder


@pytest.fixture
def expected(tmp_path: Path) -> str:
    train(tmp_path / "straight")
    return str(read_manifest(tmp_path / "straight")["weights_sha256"])


def flipped(content: bytes) -> bytes:
    """Flip a bit of the largest entry; between the entries of an archive are bytes that nothing reads."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        data = max(map(archive.read, archive.namelist()), key=len)
    at = content.index(data) + len(data) // 2
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [flipped, lambda content: content[:-50], lambda content: b"", lambda content: b"not a checkpoint" * 99],
    ids=["flipped", "truncated", "empty", "garbage"],
)
@pytest.mark.parametrize("which", ["newest", "all"])
def test_a_damaged_checkpoint_is_put_aside_and_training_continues(
    tmp_path: Path,
    interrupted: Path,
    expected: str,
    capsys: pytest.CaptureFixture[str],
    damage: object,
    which: str,
) -> None:
    assert callable(damage)
    folder = shutil.copytree(interrupted, tmp_path / "damaged")
    steps = checkpoint.steps(folder)
    assert len(steps) >= 2 and steps[-1] == 40, "an older one lies beside the newest"
    for step in steps[-1:] if which == "newest" else steps:
        path = checkpoint.path_of(folder, step)
        path.write_bytes(damage(path.read_bytes()))
    train(folder)
    assert read_manifest(folder)["weights_sha256"] == expected
    told = capsys.readouterr().err
    assert "step-000000040.pt is" in told and "was moved to" in told
    assert ("from step 30" in told) == (which == "newest")


def test_a_best_checkpoint_that_is_gone_is_not_needed_at_the_end(
    tmp_path: Path, interrupted: Path, expected: str
) -> None:
    folder = shutil.copytree(interrupted, tmp_path / "damaged")
    first = checkpoint.steps(folder)[0]
    checkpoint.path_of(folder, first).write_bytes(b"")
    train(folder)
    assert read_manifest(folder)["weights_sha256"] == expected


def test_a_checkpoint_that_is_damaged_after_the_start_is_not_read(interrupted: Path) -> None:
    """The weights of the best evaluation are read at the end of a stage, long after they were written."""
    path = checkpoint.path_of(interrupted, 30)
    path.write_bytes(flipped(path.read_bytes()))
    with pytest.raises(Hindered, match=r"step-000000030.pt must be a complete checkpoint .* is damaged"):
        checkpoint.load(interrupted, 30)


def test_damaged_lines_of_a_metrics_log_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    for step in range(1, 6):
        log.append(step, step * 8, {"loss": 1.0})
    log.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"st\xffep": 2\n' + b"[]\n" + lines[3] + lines[4])
    assert [line["step"] for line in read_lines(path)] == [1, 4, 5]
    again = MetricsLog(path, after=4)
    again.append(5, 40, {"loss": 2.0})
    again.close()
    assert [line["step"] for line in read_lines(path)] == [1, 4, 5]
