"""Real sentences that every machine has: the docstrings of the installed packages."""

from harness import ROOT

from stillhouse.artifacts import Workspace
from stillhouse.corpora.pydocs import pydocs
from stillhouse.corpora.tables import open_texts
from stillhouse.plan import TextTable

WORKSPACE = Workspace(ROOT / "runs" / "benchmarks")
"""Kept between the scripts: the docstrings are read once."""


def table(count: int) -> TextTable:
    """So many sentences as a text table of `WORKSPACE`."""
    return pydocs(WORKSPACE, sentences=count, pairs=None).sentences


def sentences(count: int) -> list[str]:
    """So many sentences."""
    texts = open_texts(WORKSPACE, table(count))
    found = [text for shard in range(len(texts.shard_starts)) for text in texts.shard(shard)]
    return found[:count]


def numbered(count: int, whole: int = 20_000) -> list[str]:
    """So many different sentences: those there are, then the same with a number behind, as often as needed."""
    real = sentences(min(count, whole))
    return [text if copy == 0 else f"{text} ({copy})" for copy, text in _copies(real, count)]


def _copies(real: list[str], count: int) -> list[tuple[int, str]]:
    return [(row // len(real), real[row % len(real)]) for row in range(count)]
