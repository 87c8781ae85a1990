"""Results go where a user says: into what is no file as it stands, into a file whole or not at all."""

import os
import stat
import threading
from pathlib import Path

import pytest

from stillhouse.cli.main import main
from stillhouse.core.errors import BadInput
from stillhouse.core.user_files import STDOUT, check_writable, writing


def write(path: Path, text: str = "found\n") -> None:
    check_writable(path, "--json")
    with writing(path) as file:
        file.write(text)


def test_a_file_is_replaced_whole_and_a_link_stays_a_link(tmp_path: Path) -> None:
    file, link, dangling = tmp_path / "deep" / "a.json", tmp_path / "link", tmp_path / "dangling"
    link.symlink_to(file)
    dangling.symlink_to("new.json")
    for path in (link, dangling):
        write(path)
        assert path.is_symlink() and path.resolve().read_text() == "found\n"
    with pytest.raises(RuntimeError), writing(link) as half:
        half.write("half")
        raise RuntimeError
    assert file.read_text() == "found\n" and [each.name for each in file.parent.iterdir()] == ["a.json"]


def test_a_fifo_a_device_and_a_descriptor_are_written_in_place(tmp_path: Path) -> None:
    fifo, got = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: got.append(fifo.read_text()))
    reader.start()
    write(fifo)
    reader.join(30)
    assert got == ["found\n"] and stat.S_ISFIFO(fifo.stat().st_mode)
    ours, theirs = os.openpty()
    device = Path(os.ttyname(theirs))
    write(device)
    assert os.read(ours, 99) == b"found\r\n" and stat.S_ISCHR(device.stat().st_mode)
    readable, writable = os.pipe()  # as the shell's `>(command)`
    write(Path(f"/dev/fd/{writable}"))
    assert os.read(readable, 99) == b"found\n"
    # A file that is open already is the one that is written, after what it has.
    with (tmp_path / "log").open("w") as log:
        log.write("before\n")
        log.flush()
        write(Path(f"/dev/fd/{log.fileno()}"))
        assert (tmp_path / "log").stat().st_ino == os.fstat(log.fileno()).st_ino
    assert (tmp_path / "log").read_text() == "before\nfound\n"
    for descriptor in (ours, theirs, readable, writable):
        os.close(descriptor)


def test_a_hyphen_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    write(STDOUT)
    assert capsys.readouterr() == ("found\n", "")


def test_a_working_directory_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["store", "ls", "--root", str(tmp_path)]) == 2
    assert "the working directory must exist" in capsys.readouterr().err


def test_what_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, rule in (
        (tmp_path, "--json must name a file"),
        (Path("https://example.org/a"), "not a URL"),
        (tmp_path / "file" / "a.json", "in a folder that can be written"),
        (Path("/dev/fd/999"), "--json must name what can be written"),
    ):
        with pytest.raises(BadInput, match=rule):
            check_writable(path, "--json")
