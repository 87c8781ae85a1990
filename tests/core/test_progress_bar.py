"""Progress on a terminal: a bar that is drawn in place, and whole lines above it."""

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from types import SimpleNamespace

import pytest

from stillhouse.core import progress_bar

_WORK = """
import sys, time
from stillhouse.core import console, progress_bar
progress_bar.EVERY_S = 0.0
embedding = console.Progress("embedding {a} texts", "texts")
embedding(0, 4000)
embedding(1000, 4000)
console.say("a line {between}")
embedding(3000, 4000)
console.warn("a warning")
embedding(4000, 4000)
reading = console.Progress("reading", "rows")
reading(3, None)
console.show("the end")
"""


def shown(*, columns: int, term: str = "xterm", code: str = _WORK) -> tuple[str, list[str]]:
    """Run a program on a terminal; returns what was sent to it, and what it shows at the end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": term, "TQDM_DISABLE": "1", "PYTHONIOENCODING": "utf-8"}
    program = [sys.executable, "-c", code]
    with subprocess.Popen(program, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        sent = b""
        try:
            while block := os.read(ours, 4096):
                sent += block
        except OSError:  # Linux says so when the other side is closed.
            pass
        assert running.wait() == 0, sent.decode()
    os.close(ours)
    return sent.decode(), _screen(sent.decode())


def _screen(sent: str) -> list[str]:
    """The lines that a terminal shows, where a carriage return goes back to the start of the line."""
    lines = []
    for line in sent.split("\r\n"):
        picture = ""
        for part in line.split("\r"):
            picture = part + picture[len(part) :]
        lines.append(picture.rstrip())
    return lines[:-1] if lines[-1] == "" else lines


def test_lines_are_whole_and_the_bar_leaves_nothing() -> None:
    sent, screen = shown(columns=100)
    assert screen == [
        "a line {between}",
        "stillhouse: a warning",
        next(line for line in screen if line.startswith("  embedding {a} texts: 4,000 of 4,000 texts")),
        "the end",
    ]
    assert "  embedding {a} texts:  25 % |█████               | 1,000 of 4,000 texts" in sent
    assert "  embedding {a} texts:  75 % |███████████████     | 3,000 of 4,000 texts" in sent
    assert "  reading: 3 rows" in sent and "|" not in sent[sent.index("reading") :]


def test_a_bar_fits_on_a_narrow_terminal() -> None:
    sent, screen = shown(columns=40)
    bars = [
        part for line in sent.split("\r\n") for part in line.split("\r") if "embedding {a} texts: " in part
    ]
    assert len(bars) >= 2 and all(len(bar) <= 40 for bar in bars if "%" in bar)
    assert screen[-1] == "the end"


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_erase_gets_lines(term: str) -> None:
    sent, _ = shown(columns=100, term=term)
    assert "\r " not in sent and "%" not in sent and "4,000 of 4,000" in sent


def test_a_file_gets_lines(tmp_path: Path) -> None:
    environment = {**os.environ, "TERM": "xterm"}
    with (tmp_path / "out").open("w") as file:
        subprocess.run([sys.executable, "-c", _WORK], stderr=file, check=True, env=environment, timeout=240)
    text = (tmp_path / "out").read_text()
    assert "\r" not in text and "%" not in text and "embedding {a} texts: 4,000 of 4,000 texts" in text


def test_bars_start_no_thread_and_no_lock_between_processes() -> None:
    code = _WORK + "import threading; print(threading.active_count(), progress_bar._bar_class()._lock)\n"
    _, screen = shown(columns=100, code=code)
    assert screen[-1].startswith("1 <unlocked _thread.RLock")


def test_a_notebook_with_widgets_gets_their_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    from tqdm import auto

    shell = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    for widgets in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(progress_bar, "find_spec", lambda name, found=widgets: found or None)
            progress_bar.in_notebook.cache_clear()
            progress_bar._bar_class.cache_clear()
            assert progress_bar.is_terminal(io.StringIO()) is widgets
            assert issubclass(progress_bar._bar_class(), auto.tqdm) is widgets
            assert ("{bar}" in progress_bar._layout(10, "words")) is widgets
    progress_bar.in_notebook.cache_clear()
    progress_bar._bar_class.cache_clear()
