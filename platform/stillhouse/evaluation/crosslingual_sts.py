"""Semantic textual similarity within and between languages, Spearman × 100 as in Ding et al. (2022).

Three layouts:

* ``sts2017``: the task's own files, ``STS.input.track1.ar-ar.txt`` beside ``STS.gs.track1.ar-ar.txt``;
* ``extended``: STS2017-extended of sentence-transformers, ``STS.en-de.txt`` (text, text, score);
* ``stsb``: translations of STS-B (stsb-multi-mt), ``stsb-de-dev.csv`` or ``stsb_tr_dev.tsv``, line by line.
  The pair ``en-de`` takes the first sentence in English and the second in German.
"""

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import Encoder
from stillhouse.evaluation.metrics import Values, spearman
from stillhouse.evaluation.sts import (
    CHANGED_FILES,
    Pairs,
    gold_score,
    read_lines,
    read_part,
    score_pairs,
    tab_columns,
    text_rows,
)

FOLDERS = {
    "sts2017": ("sts2017", "STS2017.eval.v1.1", "."),
    "extended": ("sts2017_extended", "STS2017-extended", "."),
    "stsb": ("stsb_multi_mt", "."),
}
"""Layout to folders below a data root that may hold its files."""

_TRACK = re.compile(r"STS\.input\.track\d+([ab]?)\.([a-z]{2}-[a-z]{2})\.txt")
_EXTENDED = re.compile(r"STS\.([a-z]{2}-[a-z]{2})\.txt")
_TRANSLATED = re.compile(r"stsb[-_]([a-z]{2})[-_](dev|test)\.[ct]sv")


@dataclass(frozen=True)
class CrossLingualSTSData:
    """Files of STS between languages, identified by their content.

    Attributes:
        layout: ``sts2017``, ``extended`` or ``stsb``.
        pairs: ``ar-ar``, ``en-de``, …; the two halves of track 4 are ``es-en-a`` and ``es-en-b``.
        split: ``dev`` may be used for selection; ``test`` is for the final report.
        sha256: Hash of the files of these pairs.
        root: Folder of the files; not part of the identity.
    """

    layout: str
    pairs: tuple[str, ...]
    split: str
    sha256: str
    root: str = field(default="", metadata={"identity": False})


def crosslingual_sets(root: str, layout: str, split: str) -> tuple[str, ...]:
    """List the pairs of languages (for ``stsb``: the languages) whose files are under a data root."""
    return tuple(_files(root, layout, split))


def resolve_crosslingual_sts(
    root: str, layout: str, split: str = "test", pairs: tuple[str, ...] = ()
) -> CrossLingualSTSData:
    """Find the files under a data root.

    Args:
        root: The data root, or the folder itself.
        layout: ``sts2017``, ``extended`` or ``stsb``.
        split: ``test``; for ``stsb`` also ``dev``.
        pairs: Required pairs. Empty takes every pair that exists; for ``stsb``, English with every language.

    Raises:
        BadInput: If the layout or split is unknown, or files are missing.
    """
    require(layout in FOLDERS, f"layout in {tuple(FOLDERS)}", layout=layout)
    splits = ("dev", "test") if layout == "stsb" else ("test",)
    require(split in splits, f"split of {layout} in {splits}", split=split)
    found = _files(root, layout, split)
    if layout == "stsb":
        chosen = pairs or tuple(f"en-{language}" for language in sorted(found) if language != "en")
        known = {f"{first}-{second}" for first in found for second in found}
        missing = [pair for pair in chosen if pair not in known]
    else:
        chosen = pairs or tuple(sorted(found))
        missing = [pair for pair in chosen if pair not in found]
    if missing or not chosen:
        raise BadInput(
            f"the data root {root!r} has no {split} files of {layout}{' for ' if missing else ''}"
            f"{', '.join(missing)}; found: {', '.join(sorted(found)) or 'none'}. Put them in "
            f"{FOLDERS[layout][0]}."
        )
    return CrossLingualSTSData(layout, chosen, split, _hash(found, layout, chosen), root)


class CrossLingualSTS:
    """Spearman × 100 of cosines with human scores, in [-100, 100].

    Figures: ``{name}_{pair}_spearman_cosine_x100``; for several pairs within one language or between two also
    the plain means, ``{name}_mono_avg_spearman_cosine_x100`` and ``{name}_cross_avg_…`` (Tables 1 and 2 of
    the paper).

    Raises:
        BadInput: If the files have changed since `resolve_crosslingual_sts`, or one is malformed; the message
            names file and line.
    """

    version: ClassVar[int] = 1
    unit: ClassVar[str] = "pairs"

    def __init__(self, data: CrossLingualSTSData, name: str = "xsts") -> None:
        files = _files(data.root, data.layout, data.split)
        if _hash(files, data.layout, data.pairs) != data.sha256:
            raise BadInput(f"{CHANGED_FILES} The STS files are in {data.root}.")
        self.name, self.split = name, data.split
        self.sets = {pair: _read(files, data.layout, pair) for pair in data.pairs}
        self.row_of = text_rows(self.sets.values())

    def __call__(self, model: Encoder) -> dict[str, float]:
        """Encode every text once and correlate."""
        found = {pair: 100 * spearman(*scores) for pair, scores in self.scores(model).items()}
        found |= {
            name: float(np.mean([found[pair] for pair in pairs])) for name, pairs in averages(found).items()
        }
        return {f"{self.name}_{name}_spearman_cosine_x100": value for name, value in found.items()}

    def counts(self) -> dict[str, int]:
        """Count the pairs of sentences of every pair of languages, and of the averages."""
        counts = {name: len(pairs) for name, pairs in self.sets.items()}
        counts |= {name: sum(counts[pair] for pair in pairs) for name, pairs in averages(counts).items()}
        return {f"{self.name}_{name}_": count for name, count in counts.items()}

    def scores(self, model: Encoder) -> dict[str, tuple[Values, Values]]:
        """Compute cosines and gold scores of every pair of languages."""
        vectors = model.encode(list(self.row_of))
        return {pair: score_pairs(pairs, self.row_of, vectors) for pair, pairs in self.sets.items()}


def averages(pairs: Iterable[str]) -> dict[str, list[str]]:
    """Group pairs into ``mono_avg`` (one language) and ``cross_avg`` (two), where there are several."""
    kinds: dict[str, list[str]] = {"mono_avg": [], "cross_avg": []}
    for pair in pairs:
        kinds["mono_avg" if len(set(pair.split("-")[:2])) == 1 else "cross_avg"].append(pair)
    return {kind: each for kind, each in kinds.items() if len(each) > 1}


def _files(root: str, layout: str, split: str) -> dict[str, tuple[Path, ...]]:
    """Find the files of every pair, or of every language, in the first folder that has any."""
    for folder in FOLDERS[layout]:
        found: dict[str, tuple[Path, ...]] = {}
        for path in sorted((Path(root) / folder).glob("*")):
            if layout == "sts2017" and (match := _TRACK.fullmatch(path.name)):
                gold = path.with_name(path.name.replace("input", "gs", 1))
                if gold.is_file():
                    found["-".join(filter(None, (match[2], match[1])))] = (path, gold)
            elif layout == "extended" and (match := _EXTENDED.fullmatch(path.name)):
                found[match[1]] = (path,)
            elif layout == "stsb" and (match := _TRANSLATED.fullmatch(path.name)) and match[2] == split:
                found[match[1]] = (path,)
        if found:
            return found
    return {}


def _paths(files: Mapping[str, tuple[Path, ...]], layout: str, pair: str) -> list[Path]:
    keys = pair.split("-") if layout == "stsb" else [pair]
    return [path for key in keys for path in files.get(key, ())]


def _hash(files: Mapping[str, tuple[Path, ...]], layout: str, pairs: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for pair in pairs:
        for path in _paths(files, layout, pair):
            content = path.read_bytes()
            digest.update(f"{pair} {path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _read(files: Mapping[str, tuple[Path, ...]], layout: str, pair: str) -> Pairs:
    paths = _paths(files, layout, pair)
    if layout == "sts2017":
        return read_part(*paths)
    if layout == "extended":
        lines = ((at, tab_columns(paths[0], at, line, 2)) for at, line in read_lines(paths[0]))
        return [(row[0], row[1], gold_score(paths[0], at, row[2])) for at, row in lines]
    first, second = _read_table(paths[0]), _read_table(paths[1])
    if [gold for _, _, gold in first] != [gold for _, _, gold in second]:
        raise BadInput(
            f"{paths[0]} and {paths[1]} must have the same scores line by line, but differ; they have "
            f"{len(first)} and {len(second)} pairs."
        )
    return [(a, b, gold) for (a, _, gold), (_, b, _) in zip(first, second, strict=True)]


def _read_table(path: Path) -> Pairs:
    """Read text, text, score from a CSV without a header, or named columns of a tab-separated file."""
    if path.suffix == ".tsv":
        (_, header), *lines = read_lines(path)
        names = header.split("\t")
        columns = ("sentence1", "sentence2", "score")
        missing = [name for name in columns if name not in names]
        if missing:
            raise BadInput(f"{path} must have the columns {', '.join(columns)}, but has {', '.join(names)}.")
        first, second, gold = (names.index(name) for name in columns)
        rows = [(at, tab_columns(path, at, line, max(first, second, gold))) for at, line in lines]
        return [(row[first], row[second], gold_score(path, at, row[gold])) for at, row in rows]
    text = "\n".join(line for _, line in read_lines(path))
    table = csv.reader(io.StringIO(text, newline=""))
    found: Pairs = []
    for row in table:
        if len(row) != 3:
            raise BadInput(f"{path}, line {table.line_num}: must have 3 columns, but has {len(row)}.")
        found.append((row[0], row[1], gold_score(path, table.line_num, row[2])))
    return found
