"""Real sentences that every machine has: the docstrings of the installed packages."""

from pathlib import Path

from harness import ROOT

from stillhouse.core.artifacts import Workspace
from stillhouse.corpora.pydocs.pydocs_corpus import pydocs
from stillhouse.corpora.reading.cleaning import dedup_key
from stillhouse.corpora.tables import open_texts
from stillhouse.values.data import TextTable

WORKSPACE = Workspace(ROOT / "runs" / "benchmarks")
"""Kept between the scripts: the docstrings are read once."""
REAL = 20_000
"""Fewer than every installation has."""


def table(count: int) -> TextTable:
    """So many sentences as a text table of `WORKSPACE`."""
    return pydocs(WORKSPACE, sentences=count, pairs=None).sentences


def sentences(count: int) -> list[str]:
    """So many sentences."""
    return list(open_texts(WORKSPACE, table(count)))[:count]


def numbered(count: int) -> list[str]:
    """So many sentences that reading keeps: up to `REAL` real ones, then these with a number behind."""
    real = list({dedup_key(text): text for text in sentences(REAL)}.values())
    return [_copy(real[row % len(real)], row // len(real)) for row in range(count)]


def text_file(folder: Path, count: int) -> Path:
    """So many of `numbered` as a corpus of one file, a line each."""
    file = folder / "corpus.txt"
    file.write_text("\n".join(numbered(count)), encoding="utf-8")
    return file


def _copy(text: str, number: int) -> str:
    return f"{text} ({number})" if number else text
