"""A file of a finished artifact that is not as it was written is never read, and is made again."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rows import each_row

from stillhouse.core import integrity
from stillhouse.core.artifacts import (
    Workspace,
    mapped_array,
    write_array,
    write_manifest,
)
from stillhouse.core.errors import BadInput, Hindered
from stillhouse.core.tensors import read_tensors
from stillhouse.corpora.reading.corpus import ReadOptions
from stillhouse.corpora.reading.ingest import ingest
from stillhouse.corpora.tables import (
    open_judgements,
    open_rows,
    open_texts,
    write_collection,
    write_rows,
    write_texts,
)
from stillhouse.training.checkpoint import save_weights
from stillhouse.values.data import TextTable

TEXTS = [f"text number {number} about nothing" for number in range(40)]


def flip(path: Path, bit: int) -> None:
    """Flip one bit; the file keeps its size, its inode and its times, as a fault of the disk leaves them."""
    import os

    status, content = path.stat(), bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture(autouse=True)
def a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what was compared, as a new process does."""
    monkeypatch.setattr(integrity, "_compared", {})


def forget() -> None:
    integrity._compared.clear()


def test_every_flipped_bit_of_a_corpus_is_noticed_and_the_corpus_is_read_again(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS))
    table, chance = ingest(workspace, str(corpus), ReadOptions()), random.Random(0)
    (shard,) = workspace.path(table).glob("*.parquet")
    for _ in range(20):
        flip(shard, chance.randrange(8 * shard.stat().st_size))
        forget()
        assert ingest(workspace, str(corpus), ReadOptions()) == table
        assert open_texts(workspace, table)[range(40)] == TEXTS
    assert capsys.readouterr().err.count("has changed since it was written") == 20
    kept = list((workspace.root / "quarantine" / "corpora").glob("*/part-00000.parquet*"))
    assert len(kept) == 20


def test_ids_and_judgements_that_changed_are_not_read(workspace: Workspace) -> None:
    table = write_texts(workspace, "numbers", TEXTS)
    examples = write_rows(workspace, {"query": table}, {"query": np.arange(5)}, "rows")
    collection = write_collection(workspace, "c", table, table, np.array([[0, 1, 1], [2, 3, 2]]))
    for folder, name, read in (
        (workspace.path(examples), "query.npy", lambda: open_rows(workspace, examples)),
        (workspace.path(collection), "qrels.npy", lambda: open_judgements(workspace, collection).qrels_N3),
    ):
        flip(folder / name, 8 * ((folder / name).stat().st_size - 8))
        forget()
        with pytest.raises(Hindered, match=rf"{name} must be as it was written.*moved to .*quarantine"):
            read()
        assert not (folder / "manifest.json").exists(), "it counts as unfinished, and is made again"
    assert write_rows(workspace, {"query": table}, {"query": np.arange(5)}, "rows") == examples
    assert open_rows(workspace, examples)["query"].tolist() == [0, 1, 2, 3, 4]


def test_weights_that_changed_are_not_loaded(tmp_path: Path) -> None:
    save_weights(tmp_path / "student.safetensors", {"w": torch.arange(100.0)})
    write_manifest(tmp_path, {"steps": 1})
    flip(tmp_path / "student.safetensors", 8 * 300)
    with pytest.raises(Hindered, match=r"student\.safetensors must be as it was written"):
        read_tensors(tmp_path / "student.safetensors")


def test_a_truncated_file_of_weights_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_weights(path, {"w": torch.arange(100.0)})
    for length in (0, 5, 60, 300):
        path.write_bytes(path.read_bytes()[:length])
        with pytest.raises(BadInput, match=r"model.safetensors must be a complete safetensors file"):
            read_tensors(path)


OTHER_FORMS = [
    b'{"files": ["a.npy"]}',
    b'{"files": {"\\ud800": "0"}}',
    b'{"files": {"%s": "0"}}' % (b"a" * 300),
    b'{"shards": [{"name": 1, "sha256": "0"}]}',
    b'{"shards": [{"name": [], "sha256": "0"}]}',
]
"""Manifests with lists for objects, and with names that no file can have."""


@each_row("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"rows": 1', *OTHER_FORMS])
def test_a_broken_manifest_counts_as_unfinished(workspace: Workspace, content: bytes) -> None:
    table = write_texts(workspace, "numbers", TEXTS)
    (workspace.path(table) / "manifest.json").write_bytes(content)
    assert not workspace.finished(table)


def test_a_file_is_compared_once_per_process_and_again_when_it_is_replaced(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_texts(workspace, "numbers", TEXTS)
    examples = write_rows(workspace, {"query": table}, {"query": np.arange(5)}, "rows")
    hashed: list[Path] = []
    real = integrity.sha256_of

    def counted(path: Path) -> str:
        hashed.append(path)
        return real(path)

    monkeypatch.setattr(integrity, "sha256_of", counted)
    path = workspace.path(examples) / "query.npy"
    for _ in range(3):
        assert workspace.finished(examples)
        mapped_array(path)
    assert hashed == [path]
    write_array(path, np.arange(5) + 1)
    assert not workspace.finished(examples)


def test_the_shards_of_a_manifest_are_looked_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once for each of them: a store of 10^9 rows has half a million."""
    looks: list[int] = []

    class Shards(list[dict[str, Any]]):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            looks.append(1)
            return super().__iter__()

    names = [f"part-{number}.arrow" for number in range(20)]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    shards = [{"name": name, "bytes": 1, "sha256": integrity.sha256_of(tmp_path / name)} for name in names]
    (tmp_path / integrity.MANIFEST).write_text("{}")
    monkeypatch.setattr(integrity, "parse_json", lambda data: {"shards": Shards(shards)})
    assert integrity.is_whole(tmp_path, contents=True)
    assert all(integrity._sums_beside(tmp_path / name)[name] for name in names)
    assert len(looks) <= 3


def test_checking_can_be_turned_off(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write_texts(workspace, "numbers", TEXTS)
    examples = write_rows(workspace, {"query": table}, {"query": np.arange(5)}, "rows")
    path = workspace.path(examples) / "query.npy"
    flip(path, 8 * (path.stat().st_size - 1))
    monkeypatch.setenv("STILLHOUSE_VERIFY", "never")
    open_rows(workspace, examples)
    monkeypatch.setenv("STILLHOUSE_VERIFY", "sometimes")
    with pytest.raises(BadInput, match="`always`, `once` or `never`"):
        open_rows(workspace, examples)


def test_what_one_process_has_compared_may_count_for_all(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``once``, until a file is replaced; another checksum or a damaged line counts for nothing."""
    hashed: list[str] = []
    original = integrity.sha256_of

    def counted(path: Path) -> str:
        hashed.append(path.name)
        return original(path)

    def in_a_new_process() -> bool:
        for memory in (integrity._compared, integrity._records, integrity._sums):
            memory.clear()
        hashed.clear()
        return workspace.finished(examples)

    table = write_texts(workspace, "numbers", TEXTS)
    examples = write_rows(workspace, {"query": table}, {"query": np.arange(5)}, "rows")
    record, path = workspace.root / "compared.jsonl", workspace.path(examples) / "query.npy"
    monkeypatch.setattr(integrity, "sha256_of", counted)
    assert in_a_new_process() and hashed == ["query.npy"] and not record.exists()
    monkeypatch.setenv("STILLHOUSE_VERIFY", "once")
    assert in_a_new_process() and hashed == ["query.npy"]
    assert in_a_new_process() and hashed == [] and len(record.read_text().splitlines()) == 1
    record.write_text("no JSON\n[]\n7\n" + record.read_text().replace(original(path), "0" * 64))
    assert in_a_new_process() and hashed == ["query.npy"]
    assert in_a_new_process() and hashed == []
    monkeypatch.setenv("STILLHOUSE_VERIFY", "always")
    assert in_a_new_process() and hashed == ["query.npy"]
    monkeypatch.setenv("STILLHOUSE_VERIFY", "once")
    write_array(path, np.arange(5) + 1)
    assert not in_a_new_process() and hashed == ["query.npy"]


def test_what_a_killed_writer_left_is_gone_when_the_artifact_is_finished(workspace: Workspace) -> None:
    folder = workspace.path(TextTable("0", "words"))
    folder.mkdir(parents=True)
    (folder / ".ids.npy.abc.tmp").write_bytes(b"0")
    write_manifest(folder, {"rows": 0})
    assert [path.name for path in folder.iterdir()] == ["manifest.json"]
