"""SIGTERM acts like Ctrl-C while a command runs, and handlers changed by libraries are restored."""

import os
import signal

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
