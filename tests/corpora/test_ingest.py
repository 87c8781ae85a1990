import json
import os
from pathlib import Path

import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace, read_manifest, remove
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading import ingest as module
from stillhouse.corpora.reading.corpus import ReadOptions
from stillhouse.corpora.reading.ingest import ingest
from stillhouse.corpora.reading.sources import corpus_label
from stillhouse.corpora.reading.understood import recorded
from stillhouse.corpora.tables import open_texts

OPTIONS = ReadOptions()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "some corpus.v1.txt"
    path.write_bytes(b"One row.\nTwo rows.\n\nOne row\nThree rows.\ncaf\xe9\n")
    return path


def test_rows_read_equal_rows_accounted_for(workspace: Workspace, corpus: Path) -> None:
    table = ingest(workspace, str(corpus), OPTIONS)
    manifest = read_manifest(workspace.path(table))
    counts = {name: manifest[name] for name in ("input_rows", "rows", "quarantined", "duplicates")}
    assert counts == {"input_rows": 6, "rows": 3, "quarantined": 2, "duplicates": 1}
    assert open_texts(workspace, table)[[0, 1, 2]] == ["One row.", "Two rows.", "Three rows."]
    assert table.label == "some-corpus-v1"
    assert manifest["origin"]["source"] == str(corpus)
    assert json.dumps(manifest["origin"])


def test_rows_that_become_several_texts_are_told_apart(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One here. Two here. One here.\nThree here.\n")
    with recorded() as found:
        ingest(workspace, str(tmp_path / "a.txt"), ReadOptions(split_sentences=True))
    (read,) = found
    assert (read.read, read.kept, read.duplicates) == (4, 3, 1) and read.note == "2 rows make 4 texts"


def test_a_second_call_reads_no_file(
    workspace: Workspace, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ingest(workspace, str(corpus), OPTIONS)
    with monkeypatch.context() as patched:
        patched.delattr(module, "read_texts")
        assert ingest(workspace, str(corpus), OPTIONS) == first
        with pytest.raises(NameError):
            ingest(workspace, str(corpus), OPTIONS, refresh=True)
    assert ingest(workspace, str(corpus), OPTIONS, refresh=True) == first


def test_a_changed_file_or_option_is_read_again(workspace: Workspace, corpus: Path) -> None:
    first = ingest(workspace, str(corpus), OPTIONS)
    longer = ingest(workspace, str(corpus), ReadOptions(max_words=1, longer="cut"))
    assert longer.sha256 != first.sha256
    corpus.write_text("Another row.\n")
    assert len(open_texts(workspace, ingest(workspace, str(corpus), OPTIONS))) == 1
    corpus.write_text("Another ROW.\n")
    os.utime(corpus, ns=(1, 1))
    assert open_texts(workspace, ingest(workspace, str(corpus), OPTIONS))[[0]] == ["Another ROW."]


def test_a_removed_table_is_built_again(workspace: Workspace, corpus: Path) -> None:
    first = ingest(workspace, str(corpus), OPTIONS)
    remove(workspace.path(first))
    assert ingest(workspace, str(corpus), OPTIONS) == first
    assert workspace.finished(first)


def test_bad_input_leaves_nothing(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n \n\n")
    with pytest.raises(BadInput, match="a has none: 3 rows were read, of which 3 empty"):
        ingest(workspace, str(tmp_path / "a.txt"), OPTIONS)
    files = [path.name for path in workspace.root.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert files == ["workspace.json"]
    with pytest.raises(BadInput, match=r"the corpus .* does not exist"):
        ingest(workspace, str(tmp_path / "b.txt"), OPTIONS)


@each_row(
    ("source", "label"),
    [
        ("/data/wiki/*.txt.gz", "wiki"),
        ("s3://bucket/pages", "pages"),
        ("s3://bucket/pages/*.txt?endpoint_override=127.0.0.1:9000&scheme=http", "pages"),
        ("hf:user/set-name:config:train", "set-name"),
        ("/data/wiki/**/*", "wiki"),
        ("////", "corpus"),
        ("s3://AKIAKEY:hunter2hunter2@bucket", "bucket"),
        ("s3://AKIAKEY:hunter2hunter2@bucket/*.txt", "bucket"),
        ("s3://AKIAKEY:hunter2hunter2@bucket/pages/*.txt", "pages"),
    ],
)
def test_labels(source: str, label: str) -> None:
    assert corpus_label(source) == label


def test_text_in_another_encoding_names_the_flag(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "german.txt"
    path.write_bytes("Füße und Äpfel\nGrüße aus Köln\n".encode("latin-1"))
    with pytest.raises(BadInput, match="--encoding latin-1"):
        ingest(workspace, str(path), OPTIONS)
    path.write_bytes(path.read_bytes() + b"Some plain words.\n")
    ingest(workspace, str(path), OPTIONS)
    assert "--encoding" in capsys.readouterr().err
