"""A process that nothing feeds ends; one that rests does not."""

import subprocess
import sys
import time

import pytest
from rows import each_row

from stillhouse.core.watchdog import Watchdog

_HANGS = """
import time
from stillhouse.core.watchdog import Watchdog
with Watchdog(1.0) as watchdog:
    watchdog.feed()
    {then}
    print("went on", flush=True)
"""


def ended(then: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", _HANGS.format(then=then)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_hangs_is_ended_with_its_stack() -> None:
    began = time.monotonic()
    hung = ended("time.sleep(40)")
    assert time.monotonic() - began < 20
    assert hung.returncode == 1 and not hung.stdout
    assert "Timeout" in hung.stderr and "<string>" in hung.stderr


@each_row(
    "then",
    [
        "watchdog.rest(); time.sleep(1.5)",
        "[(time.sleep(0.3), watchdog.feed()) for _ in range(6)]",
        "watchdog.__exit__(None, None, None); time.sleep(1.5)",
    ],
)
def test_what_is_fed_or_rests_goes_on(then: str) -> None:
    assert ended(then).stdout == "went on\n"


def test_without_a_limit_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faulthandler.dump_traceback_later", lambda *_, **__: pytest.fail("watched"))
    with Watchdog(0.0) as watchdog:
        watchdog.feed()
