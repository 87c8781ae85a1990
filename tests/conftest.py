"""Fixtures for all tests: a workspace, and tiny models that are cheap to run."""

import collections
import contextlib
import functools
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("STILLHOUSE_REMOTE_WAIT", "10")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # Test processes share the cores.

from tiny_model import write_tiny_model

from stillhouse.core.artifacts import Workspace

pytest_plugins = ["small_experiment", "small_world"]


@functools.cache
def starts_ray(file: str, chosen: str) -> bool:
    """Return whether a file has tests that start Ray among those of a mark expression."""
    marks = re.findall(r"mark\.ray\b.*\n.*", (Path(__file__).parent.parent / file).read_text())
    return any(chosen != "not long" or "mark.long" not in each for each in marks)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put tests that start Ray first, so that one process runs them while the others do the rest."""
    chosen = config.option.markexpr
    items.sort(key=lambda item: not starts_ray(item.nodeid.partition("::")[0], chosen))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was skipped, by reason."""
    reasons = collections.Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    for reason, number in reasons.most_common():
        terminalreporter.write_line(f"skipped {number}: {reason}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """At most two clusters at once: the file that takes longest, and all others whose tests start Ray.

    Other files go to whoever is free.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            alone = file.endswith("test_sweep_kill.py") or not starts_ray(file, config.option.markexpr)
            return file if alone else "ray"

    return ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def one_core_of_all() -> Iterator[None]:
    """Let teachers of one's own process take one core.

    Where test processes share the cores, two threads of a small product wait for each other, and cost three
    to five times as much as one.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stillhouse.experiments.teacher_placement.cores", lambda: 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Do not wait for the disk: tests end processes, and only a power cut would lose anything."""
    from sqlalchemy import Engine, event

    def off(connection: Any, _record: Any) -> None:
        with contextlib.suppress(sqlite3.DatabaseError):
            if isinstance(connection, sqlite3.Connection):
                connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", off)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield
    event.remove(Engine, "connect", off)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Compute on one thread: a forked process does not have the others."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """An empty workspace."""
    return Workspace(tmp_path / "runs")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence-transformers folder with a random BERT: 4 layers, hidden 32, mean pooling, normalised."""
    model: Path = write_tiny_model(tmp_path_factory.mktemp("tiny"))
    return model


@pytest.fixture
def tiny_cross_encoder(tiny_model: Path, tmp_path: Path) -> Callable[[int], Path]:
    """Return a function that writes a random BERT with a number of labels and the tiny tokenizer."""
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    def write(labels: int) -> Path:
        import torch

        folder, tokenizer = tmp_path / f"head-{labels}", AutoTokenizer.from_pretrained(tiny_model)
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=24,
            initializer_range=0.5,
        )
        config.num_labels = labels
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            BertForSequenceClassification(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return write


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database with MLflow's tables, created once for all processes because that takes seconds."""
    from stillhouse.tracking.location import prepare

    folder = tmp_path_factory.getbasetemp()
    path = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "mlflow.db"
    prepare(f"sqlite:///{path}")
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a quarter of a megabyte, where mounting is permitted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def ray_folder() -> Iterator[str]:
    """A folder with a short name for a job's Ray; what is left of that Ray is ended with the test."""
    folder = tempfile.mkdtemp(prefix="sj-", dir="/tmp")
    yield folder
    for process in psutil.process_iter(["cmdline"]):
        if folder in " ".join(process.info["cmdline"] or []):
            process.kill()
    shutil.rmtree(folder, ignore_errors=True)
