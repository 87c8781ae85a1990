"""Names, roots and files that cannot be used are refused at once, in plain words."""

import time
from pathlib import Path

import pytest
from rows import each_row

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace, check_name
from stillhouse.core.errors import BadInput


@each_row("name", ["../../x", "..", ".", "a/b", "x" * 300, "", "a b", ".hidden", "a\nb", "a;b", "-"])
def test_a_name_that_is_no_folder_is_refused(name: str) -> None:
    if name == "-":
        check_name(name, "a sweep")
        return
    with pytest.raises(BadInput, match="the name of a sweep must be"):
        check_name(name, "a sweep")


@each_row("name", ["ibkd", "table-3", "run_2.1", "größe", "9"])
def test_ordinary_names_are_accepted(name: str) -> None:
    check_name(name, "a sweep")


def test_a_root_that_cannot_be_a_folder_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/stillhouse")):
        with pytest.raises(BadInput, match=r"a folder that can be written.*another --root"):
            Workspace(root).claim()


def test_a_missing_corpus_is_noticed_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["embed"], ["train", "ibkd"], ["sweep", "ibkd"]):
        begin = time.monotonic()
        root = ["--root", str(tmp_path / "runs")]
        assert main([*command, "--corpus", str(tmp_path / "nothing.txt"), *root]) == 2
        assert "nothing.txt' does not exist" in capsys.readouterr().err
        assert time.monotonic() - begin < 5
    assert not (tmp_path / "runs" / "stores").exists()
