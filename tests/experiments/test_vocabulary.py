"""Word vectors are an artifact like others: compared with what was written, made again, published."""

from pathlib import Path

import pytest

from stillhouse.core.artifacts import Workspace
from stillhouse.core.remotes import Remote
from stillhouse.corpora.tables import write_texts
from stillhouse.experiments.kinds.word_vectors import COUNT
from stillhouse.experiments.vocabulary import WordTable, word_vectors
from stillhouse.sweeps.workspace_check import verify
from stillhouse.values.data import TextTable

TEXTS = ["the cat sat", "the moon rose over the river", "a cat and the moon"]
FILES = ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "runs")


@pytest.fixture
def table(workspace: Workspace) -> TextTable:
    return write_texts(workspace, "t", TEXTS)


def folder_of(workspace: Workspace) -> Path:
    (folder,) = (path for path in workspace.listed(WordTable.kind))
    return folder


@pytest.mark.parametrize("source", [COUNT, "file"])
@pytest.mark.parametrize(
    "name", ["model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json"]
)
def test_damaged_word_vectors_are_told_and_written_again(
    workspace: Workspace,
    table: TextTable,
    source: str,
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if source == "file":
        source = str(tmp_path / "glove.txt")
        Path(source).write_text("the 1 2 3\ncat 3 4 5\nmoon 6 7 8\n")
    model = word_vectors(workspace, source, [table])
    path = folder_of(workspace) / name
    before = path.read_bytes()
    content = bytearray(before)
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    (found,) = [each for each in verify(workspace.root) if each.problems]
    assert found.kind == WordTable.kind and found.path == path.parent and name in found.problems[0]
    assert word_vectors(workspace, source, [table]) == model
    assert path.read_bytes() == before and list((workspace.root / "quarantine").rglob(name))
    assert f"{name} has changed" in capsys.readouterr().err
    assert not [each for each in verify(workspace.root) if each.problems]


def test_word_vectors_of_the_remote_are_fetched(
    table: TextTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "remote").mkdir()
    remote = Remote(str(tmp_path / "remote"))
    made = []
    for name in ("runs", "elsewhere"):
        workspace = Workspace(tmp_path / name, remote)
        workspace.publish(table)
        made.append(word_vectors(workspace, COUNT, [table]).sha256)
    assert made[0] == made[1]
    assert capsys.readouterr().err.count("random vectors for") == 1
