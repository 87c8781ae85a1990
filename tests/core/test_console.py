"""What is printed to the terminal, and what goes to the log instead."""

import contextlib
import logging
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest
from rows import each_row

from stillhouse.core import console
from stillhouse.core.console import (
    Progress,
    diverted_chatter,
    doing,
    log_failure,
    log_in,
    never_silent,
    private_environment,
    results_aside,
    say,
    show,
    tell,
    timed_job,
    warn,
)
from stillhouse.core.job_clock import JobClock, duration


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock in seconds that the test advances."""
    now = [100.0]
    monkeypatch.setattr("stillhouse.core.console.time.monotonic", lambda: now[0])
    return now


def test_progress_shows_count_rate_and_time_left(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress("embedding", "texts")
    for seconds, done in ((0, 1000), (2, 1500), (8, 3000), (9, 3100), (10, 5000)):
        clock[0] = 100.0 + seconds
        progress(done, 5000)
    assert capsys.readouterr().err.splitlines() == [
        "  embedding: 3,000 of 5,000 texts, 250/s, 0:08 left",
        "  embedding: 5,000 of 5,000 texts, 400/s",
    ]


def test_what_is_left_is_work_and_not_a_number(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress("embedding", "texts")
    progress.every_s = 0
    for seconds, done, share in ((0, 0, 0.0), (10, 10, 0.5)):
        clock[0] = 100.0 + seconds
        progress(done, 100, share)
    assert capsys.readouterr().err.endswith("embedding: 10 of 100 texts, 1.0/s, 0:10 left\n")


def test_progress_without_a_known_total(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("reading", "rows")
    progress.every_s = 1
    progress(0, None)
    clock[0] += 2
    progress(3000, None)
    assert capsys.readouterr().err == "  reading: 3,000 rows, 1,500/s\n"


def test_progress_that_finishes_at_once_is_still_printed(capsys: pytest.CaptureFixture[str]) -> None:
    Progress("embedding", "texts")(7, 7)
    assert capsys.readouterr().err == "  embedding: 7 of 7 texts\n"


def test_the_rate_is_that_of_the_last_minute(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    """Fast at first, then slow: the time left follows what is fast or slow now."""
    progress = Progress("training", "examples")
    progress.every_s = 0
    for seconds, done in ((0, 0), (40, 4000), (100, 4060), (160, 4120), (220, 4180), (280, 4240)):
        clock[0] = 100.0 + seconds
        progress(done, 4360)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "  training: 4,000 of 4,360 examples, 100/s, 0:04 left"
    assert lines[5] == "  training: 4,240 of 4,360 examples, 1.0/s, 2:00 left"


def test_the_rate_of_large_parts_is_that_of_several(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two processes finish shards of 2,000 texts; a last one of 100 says nothing of the rate."""
    progress = Progress("embedding", "texts")
    progress.every_s = 0
    for seconds, done in ((0, 0), (100, 2000), (101, 4000), (200, 6000), (201, 8000), (290, 8100)):
        clock[0] = 100.0 + seconds
        progress(done, 12_000)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "  embedding: 8,100 of 12,000 texts, 32/s, 2:01 left"


def test_a_silent_command_says_what_it_is_doing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The innermost work that has not just begun, only after a silence, and no longer than the block."""
    monkeypatch.setattr(console, "_JUST_BEGUN_S", 0.3)
    monkeypatch.setattr(console, "SILENT_S", 0.4)
    with never_silent(), never_silent(), doing("preparing"):
        for _ in range(8):
            time.sleep(0.1)
            say("busy")
        assert set(capsys.readouterr().err.splitlines()) == {"busy"}
        with doing("reading a long file"):
            deadline = time.monotonic() + 20
            while not (printed := capsys.readouterr().err) and time.monotonic() < deadline:
                with doing("reading one of its lines"):
                    time.sleep(0.05)
    assert printed.startswith("  reading a long file, for 0:0")
    capsys.readouterr()
    time.sleep(0.6)
    assert not capsys.readouterr().err


def test_the_log_is_named_only_if_something_is_in_it(tmp_path: Path) -> None:
    assert log_in(tmp_path / "none") is None
    with diverted_chatter(tmp_path, verbose=False):
        assert log_in(tmp_path) is None
        print("a library that prints")
    (log,) = tmp_path.iterdir()
    assert log_in(tmp_path) == log


def test_library_output_goes_to_the_log_and_our_lines_to_the_screen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with diverted_chatter(tmp_path / "logs", verbose=False):
        os.write(2, b"compiled code\n")
        print("python code", file=sys.stderr)
        print("a library that prints")
        logging.getLogger("a.library").info("a library")
        warnings.warn("a warning", stacklevel=1)
        show("ours")
        say("ours as well")
        warn("ours too")
        with results_aside(when=True):
            show("aside")
    os.write(2, b"afterwards\n")
    seen = capfd.readouterr()
    assert seen.out == "ours\n"
    assert seen.err == "ours as well\nstillhouse: ours too\naside\nafterwards\n"
    (log,) = (tmp_path / "logs").iterdir()
    written = log.read_text()
    for chatter in (
        "compiled code",
        "python code",
        "a library that prints",
        "INFO a.library: a library",
        "a warning",
    ):
        assert chatter in written
    assert "ours" not in written


def test_output_is_restored_after_an_error(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (
        sys.stdout,
        sys.stderr,
        root.handlers[:],
        root.level,
        os.fstat(2).st_ino,
        sorted(os.listdir("/dev/fd")),
    )
    with contextlib.suppress(RuntimeError), diverted_chatter(tmp_path, verbose=False):
        assert os.fstat(2).st_ino != before[4]
        raise RuntimeError("in the middle")
    after = (
        sys.stdout,
        sys.stderr,
        root.handlers[:],
        root.level,
        os.fstat(2).st_ino,
        sorted(os.listdir("/dev/fd")),
    )
    assert after == before and console._screen is None


def test_nested_redirection(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with diverted_chatter(tmp_path, verbose=False), diverted_chatter(tmp_path, verbose=False):
        warn("from the inside")
        os.write(2, b"chatter\n")
    assert capfd.readouterr().err == "stillhouse: from the inside\n"


def test_verbose_redirects_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with diverted_chatter(tmp_path / "logs", verbose=True):
        os.write(2, b"chatter\n")
    assert capfd.readouterr().err == "chatter\n" and not (tmp_path / "logs").exists()


def test_a_failure_is_written_to_the_log_of_library_output(tmp_path: Path) -> None:
    with diverted_chatter(tmp_path, verbose=False):
        print("before", file=sys.stderr)
    path = log_failure(ValueError("unexpected"), tmp_path)
    (log,) = tmp_path.iterdir()
    assert path == log and log.read_text().splitlines() == ["before", "ValueError: unexpected"]


def test_settings_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    private_environment()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_a_failure_whose_folder_cannot_be_written_is_logged_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").write_text("")
    path = log_failure(ValueError("unexpected"), tmp_path / "file" / "logs")
    assert path.parent == tmp_path and "unexpected" in path.read_text()


def test_lines_of_a_job_begin_with_its_clock(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with timed_job() as job, timed_job() as same:
        assert same is job
        progress = Progress("embedding", "texts")
        progress.every_s = 0
        progress(0, 900)
        clock[0] += 751
        progress(100, 900)
        job.left = lambda: 482.0
        clock[0] += 10
        tell("trial 3: 3,072 examples")
        clock[0] += 1
        tell("trial 4: 3,072 examples")

        def fails() -> float:
            raise OSError("a file that has gone")

        job.left = fails
        clock[0] += 60
        say("champion")
        tell("trial 5")
    tell("no job")
    assert capsys.readouterr().err.splitlines() == [
        "[0:00] embedding: 0 of 900 texts",
        "[12:31] embedding: 100 of 900 texts, 0.1/s, 1:40:08 left",
        "[12:41, about 8:00 left] trial 3: 3,072 examples",
        "[12:42, about 8:00 left] trial 4: 3,072 examples",
        "champion",
        "[13:42] trial 5",
        "  no job",
    ]


def test_a_job_counts_the_seconds_of_its_parts(clock: list[float]) -> None:
    job = JobClock()
    with job.part("delivery"):
        clock[0] += 10
        with job.part("refits", within="delivery"):
            clock[0] += 100
            assert job.spent("refits") == 100
        job.step(0, 5)
        clock[0] += 8
        job.step(1, 5)
        clock[0] += 4
        job.step(2, 5)
    assert job.seconds == {"refits": 100, "delivery": 22}
    assert job.steps is not None and job.steps[:3] == (2, 5, 12)


@each_row(
    ("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (119, "1:59"), (600, "10:00"), (13157, "3:39:17")]
)
def test_a_duration_is_minutes_and_seconds(seconds: float, text: str) -> None:
    assert duration(seconds) == text
