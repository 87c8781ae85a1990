"""Semantic textual similarity in and between languages, Spearman × 100 as Ding et al. (2022) print it.

Three layouts:

* ``sts2017``: the task's own files, ``STS.input.track1.ar-ar.txt`` beside ``STS.gs.track1.ar-ar.txt``;
* ``extended``: STS2017-extended of sentence-transformers, ``STS.en-de.txt``: text, text, score;
* ``stsb``: STS-B translated (stsb-multi-mt), ``stsb-de-dev.csv`` or ``stsb_tr_dev.tsv``, line by line.
  The pair ``en-de`` is the first sentence in English and the second in German.
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

from stillhouse.core.errors import require
from stillhouse.core.types import Encoder
from stillhouse.evaluation.metrics import Values, spearman
from stillhouse.evaluation.sts import (
    Pairs,
    gold_score,
    read_lines,
    read_part,
    score_pairs,
    tab_columns,
    text_rows,
)

# Where the files of a layout may lie below a data root, and what they are called.
FOLDERS = {
    "sts2017": ("sts2017", "STS2017.eval.v1.1", "."),
    "extended": ("sts2017_extended", "STS2017-extended", "."),
    "stsb": ("stsb_multi_mt", "."),
}
_TRACK = re.compile(r"STS\.input\.track\d+([ab]?)\.([a-z]{2}-[a-z]{2})\.txt")
_EXTENDED = re.compile(r"STS\.([a-z]{2}-[a-z]{2})\.txt")
_TRANSLATED = re.compile(r"stsb[-_]([a-z]{2})[-_](dev|test)\.[ct]sv")


@dataclass(frozen=True)
class CrossLingualSTSData:
    """Files of STS between languages, known by their content.

    Attributes:
        layout: ``sts2017``, ``extended`` or ``stsb``.
        pairs: ``ar-ar``, ``en-de``, …; the two halves of track 4 are ``es-en-a`` and ``es-en-b``.
        split: ``dev`` may select; ``test`` is for the final report.
        sha256: Over the files of these pairs.
        root: Where they are; not part of the identity.
    """

    layout: str
    pairs: tuple[str, ...]
    split: str
    sha256: str
    root: str = field(default="", metadata={"identity": False})


def crosslingual_sets(root: str, layout: str, split: str) -> tuple[str, ...]:
    """The pairs of languages, of ``stsb`` the languages, whose files lie under a data root."""
    return tuple(_files(root, layout, split))


def resolve_crosslingual_sts(
    root: str, layout: str, split: str = "test", pairs: tuple[str, ...] = ()
) -> CrossLingualSTSData:
    """Find the files under a data root.

    Args:
        root: The data root, or the folder itself.
        layout: ``sts2017``, ``extended`` or ``stsb``.
        split: ``test``; of ``stsb`` also ``dev``.
        pairs: What is wanted. Empty takes every pair that is there; of ``stsb``, English with every language.

    Raises:
        BadInput: An unknown layout or split, or files that are missing.
    """
    require(layout in FOLDERS, f"layout in {tuple(FOLDERS)}", layout=layout)
    splits = ("dev", "test") if layout == "stsb" else ("test",)
    require(split in splits, f"split of {layout} in {splits}", split=split)
    there = _files(root, layout, split)
    if layout == "stsb":
        wanted = pairs or tuple(f"en-{language}" for language in sorted(there) if language != "en")
        known = {f"{first}-{second}" for first in there for second in there}
        missing = [pair for pair in wanted if pair not in known]
    else:
        wanted = pairs or tuple(sorted(there))
        missing = [pair for pair in wanted if pair not in there]
    require(
        bool(wanted) and not missing,
        f"the files of {layout} lie under the data root",
        root=root,
        split=split,
        missing=missing or "all",
        there=sorted(there),
        remedy=f"Put them into {FOLDERS[layout][0]} there.",
    )
    return CrossLingualSTSData(layout, wanted, split, _hash(there, layout, wanted), root)


class CrossLingualSTS:
    """Spearman × 100 of cosines with people's scores, in [-100, 100].

    Figures: ``{name}_{pair}_spearman_cosine_x100``; for several pairs of one language or of two also their
    plain means, ``{name}_mono_avg_spearman_cosine_x100`` and ``{name}_cross_avg_…``: the paper's Tables 1, 2.

    Args:
        data: From `resolve_crosslingual_sts`.
        name: First part of the figures' names.

    Raises:
        BadInput: The files are no longer those that ``data`` names, or one is malformed (file and line).
    """

    version: ClassVar[int] = 1

    def __init__(self, data: CrossLingualSTSData, name: str = "xsts") -> None:
        there = _files(data.root, data.layout, data.split)
        require(
            _hash(there, data.layout, data.pairs) == data.sha256,
            "the STS files are those that the plan names",
            root=data.root,
            remedy="They were changed since; start again with the files as they are.",
        )
        self.name, self.split = name, data.split
        self.sets = {pair: _read(there, data.layout, pair) for pair in data.pairs}
        self.row_of = text_rows(self.sets.values())

    def __call__(self, model: Encoder) -> dict[str, float]:
        """Encode every text once and correlate."""
        found = {pair: 100 * spearman(*scores) for pair, scores in self.scores(model).items()}
        found |= {
            name: float(np.mean([found[pair] for pair in pairs])) for name, pairs in averages(found).items()
        }
        return {f"{self.name}_{name}_spearman_cosine_x100": value for name, value in found.items()}

    def scores(self, model: Encoder) -> dict[str, tuple[Values, Values]]:
        """The cosines and the gold scores of every pair of languages."""
        vectors = model.encode(list(self.row_of))
        return {pair: score_pairs(pairs, self.row_of, vectors) for pair, pairs in self.sets.items()}


def averages(pairs: Iterable[str]) -> dict[str, list[str]]:
    """``mono_avg`` and ``cross_avg``, the pairs of one language and of two, where there are several."""
    kinds: dict[str, list[str]] = {"mono_avg": [], "cross_avg": []}
    for pair in pairs:
        kinds["mono_avg" if len(set(pair.split("-")[:2])) == 1 else "cross_avg"].append(pair)
    return {kind: each for kind, each in kinds.items() if len(each) > 1}


def _files(root: str, layout: str, split: str) -> dict[str, tuple[Path, ...]]:
    """The files of every pair, or of every language, in the first folder that has any."""
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


def _paths(there: Mapping[str, tuple[Path, ...]], layout: str, pair: str) -> list[Path]:
    keys = pair.split("-") if layout == "stsb" else [pair]
    return [path for key in keys for path in there.get(key, ())]


def _hash(there: Mapping[str, tuple[Path, ...]], layout: str, pairs: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for pair in pairs:
        for path in _paths(there, layout, pair):
            content = path.read_bytes()
            digest.update(f"{pair} {path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _read(there: Mapping[str, tuple[Path, ...]], layout: str, pair: str) -> Pairs:
    paths = _paths(there, layout, pair)
    if layout == "sts2017":
        return read_part(*paths)
    if layout == "extended":
        lines = ((at, tab_columns(paths[0], at, line, 2)) for at, line in read_lines(paths[0]))
        return [(row[0], row[1], gold_score(paths[0], at, row[2])) for at, row in lines]
    first, second = _read_table(paths[0]), _read_table(paths[1])
    aligned = [gold for _, _, gold in first] == [gold for _, _, gold in second]
    require(
        aligned,
        "translations of STS-B have the same scores line by line",
        **{path.name: f"{len(rows)} pairs" for path, rows in zip(paths, (first, second), strict=True)},
    )
    return [(a, b, gold) for (a, _, gold), (_, b, _) in zip(first, second, strict=True)]


def _read_table(path: Path) -> Pairs:
    """Text, text, score of a CSV without header; or the named columns of a tab-separated file with one."""
    if path.suffix == ".tsv":
        (_, header), *lines = read_lines(path)
        names = header.split("\t")
        wanted = ("sentence1", "sentence2", "score")
        missing = [name for name in wanted if name not in names]
        require(not missing, f"{path} has the columns", missing=missing, columns=names)
        first, second, gold = (names.index(name) for name in wanted)
        rows = [(at, tab_columns(path, at, line, max(first, second, gold))) for at, line in lines]
        return [(row[first], row[second], gold_score(path, at, row[gold])) for at, row in rows]
    text = "\n".join(line for _, line in read_lines(path))
    table = csv.reader(io.StringIO(text, newline=""))
    found: Pairs = []
    for row in table:
        require(len(row) == 3, f"{path}, line {table.line_num}: has 3 columns", columns=len(row))
        found.append((row[0], row[1], gold_score(path, table.line_num, row[2])))
    return found
