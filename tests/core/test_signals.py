"""SIGTERM acts like Ctrl-C while a command runs, and no command waits for a thread that never began."""

import os
import signal
import subprocess
import sys

import pytest

from stillhouse.cli.main import main
from stillhouse.core.signals import signals_kept, sigterm_interrupts


def test_sigterm_interrupts_and_its_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_handlers_replaced_by_a_library_are_restored() -> None:
    with sigterm_interrupts():
        with signals_kept():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_terminated_command_says_how_to_resume(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stillhouse.cli.store.run", lambda options: os.kill(os.getpid(), signal.SIGTERM))
    assert main(["store", "ls"]) == 130
    assert "interrupted. The same command resumes from here." in capsys.readouterr().err


_LOST_THREAD = """
import sys, threading
from stillhouse.cli import store
from stillhouse.cli.main import main

def no_memory(self):
    raise MemoryError

def start_a_thread(options):
    threading.Thread._set_ident = no_memory  # the first thing that a new thread does
    threading.Thread(target=print).start()

store.run = start_a_thread
sys.exit(main(["store", "ls"]))
"""


def test_a_thread_that_dies_before_it_begins_ends_the_command() -> None:
    """Python waits for it without a limit."""
    ended = subprocess.run(
        [sys.executable, "-c", _LOST_THREAD], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2, ended.stderr
    assert "must be enough memory" in ended.stderr and "Traceback" not in ended.stderr
