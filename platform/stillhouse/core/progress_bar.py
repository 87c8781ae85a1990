"""The progress bar of a terminal or a notebook: one at a time, erased before a line is printed."""

import functools
import os
import sys
import threading
from importlib.util import find_spec
from typing import Any, TextIO

EVERY_S = 0.2
"""Seconds between two pictures of a bar."""
_WIDTH = 20

_bar: Any = None
_page: TextIO | None = None
_drawing = threading.RLock()


def is_terminal(page: TextIO) -> bool:
    """Return whether a stream is a terminal that can erase a line, or this process serves a notebook."""
    return in_notebook() or (page.isatty() and os.environ.get("TERM", "") not in ("", "dumb"))


@functools.cache
def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook that can show widgets."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "IPKernelApp" in getattr(shell, "config", ()) and find_spec("ipywidgets") is not None


def draw(page: TextIO, what: str, done: int, total: int | None, words: str) -> None:
    """Draw the bar of some work, with words behind it, instead of the one that is there.

    Without a total the words stand alone.
    """
    global _bar, _page
    with _drawing:
        if _bar is None or _bar.desc != what or _page is not page:
            erase()
            _bar, _page = _new(page, what), page
        _bar.n, _bar.total, _bar.bar_format = done, total, _layout(total, words)
        _bar.refresh()


def erase() -> None:
    """Erase the bar, if there is one."""
    global _bar
    with _drawing:
        if _bar is not None:
            gone, _bar = _bar, None
            gone.close()


def _layout(total: int | None, words: str) -> str:
    """Return the format that tqdm fills in: the work, the bar if there is one, and the words as they are."""
    length = "" if in_notebook() else f":{_WIDTH}"
    bar = "" if total is None else f" {{percentage:3.0f}} % |{{bar{length}}}|"
    return f"  {{desc}}:{bar} " + words.replace("{", "{{").replace("}", "}}")


def _new(page: TextIO, what: str) -> Any:
    # Libraries are told to draw no bars by the environment, which is not meant here (`disable`).
    return _bar_class()(
        desc=what, file=page, bar_format="  {desc}", leave=False, disable=False, dynamic_ncols=True
    )


@functools.cache
def _bar_class() -> Any:
    """A tqdm that keeps to itself: without the thread and the lock between processes of its own."""
    if in_notebook():
        from tqdm.auto import tqdm
    else:
        from tqdm import tqdm
    bar = type("Bar", (tqdm,), {"monitor_interval": 0})
    bar.set_lock(_drawing)  # type: ignore[attr-defined]
    return bar
