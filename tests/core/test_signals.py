"""SIGTERM is Ctrl-C while a command runs, and what others do to the signals is undone."""

import os
import signal

import pytest

from stillhouse.cli.main import main
from stillhouse.core.signals import signals_kept, sigterm_interrupts


def test_sigterm_interrupts_and_is_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_library_that_takes_the_signals_gives_them_back() -> None:
    with sigterm_interrupts():
        with signals_kept():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_command_that_is_terminated_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stillhouse.cli.store.run", lambda options: os.kill(os.getpid(), signal.SIGTERM))
    assert main(["store", "ls"]) == 130
    assert "interrupted. The same command resumes from here." in capsys.readouterr().err
