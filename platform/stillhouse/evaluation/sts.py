"""Semantic textual similarity: STS12-16, STS-B and SICK-R in SentEval's files.

The figure of a set is one Spearman correlation over all its pairs ("all" in the papers). Sets with several
parts also have the mean of the parts' correlations, plain and weighted by the number of pairs, as printed by
SentEval. Pairs with an empty gold score were never scored and are skipped.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.core.types import Encoder, FloatArray
from stillhouse.evaluation.items import FiguresAndItems, Items, Part, average
from stillhouse.evaluation.metrics import Values, cosines, number

PARTS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "OnWN", "images", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
TABLES = {
    ("STSB", "dev"): "STSBenchmark/sts-dev.csv",
    ("STSB", "test"): "STSBenchmark/sts-test.csv",
    ("SICK", "dev"): "SICK/SICK_trial.txt",
    ("SICK", "test"): "SICK/SICK_test_annotated.txt",
}
SETS = {"dev": ("STSB", "SICK"), "test": (*PARTS, "STSB", "SICK")}
LAYOUTS = ("sts/senteval", "downstream/STS", "downstream", "STS", ".")

Pairs = list[tuple[str, str, float]]

CHANGED_FILES = "a plan's data files must not change, but they have. Start again with the current files."


@dataclass(frozen=True)
class STSData:
    """Files of STS sets, identified by their content.

    Attributes:
        sets: ``STS12``, …, ``STSB``, ``SICK``.
        split: ``dev`` may be used for selection; ``test`` is for the final report.
        sha256: Hash of the files of these sets.
        root: Folder of the files; not part of the identity.
    """

    sets: tuple[str, ...]
    split: str
    sha256: str
    root: str = field(default="", metadata={"identity": False})


def sts_sets(root: str, split: str) -> tuple[str, ...]:
    """List the sets of a split whose files are all under a data root."""
    return tuple(name for name in SETS[split] if all(_files(root, name, split)))


def resolve_sts(root: str, split: str = "dev", sets: tuple[str, ...] = ()) -> STSData:
    """Find the sets under a data root: its ``sts/senteval``, SentEval's ``downstream``, or the folder itself.

    Args:
        root: The data root.
        split: ``dev`` or ``test``.
        sets: Required sets; empty takes all that exist, at least one.

    Raises:
        BadInput: If a set is unknown, or files are missing.
    """
    require(split in SETS, f"split in {tuple(SETS)}", split=split)
    for name in sets:
        if name not in SETS[split]:
            raise BadInput(f"unknown STS {split} set `{name}`. {nearest(name, list(SETS[split]))}")
    found = sts_sets(root, split)
    chosen = tuple(name for name in SETS[split] if name in sets) or found
    missing = [name for name in chosen or SETS[split] if name not in found]
    if missing:
        raise BadInput(
            f"the data root {root!r} has no files of the STS {split} sets {', '.join(missing)}. Put "
            "SentEval's folders (STS12-en-test, STSBenchmark, SICK, …) in sts/senteval."
        )
    return STSData(chosen, split, _hash(root, chosen, split), root)


class STS:
    """Spearman correlation of cosines with human scores, in [-1, 1].

    Figures: ``{name}_{set}_spearman_cosine`` (all); for sets with several parts also
    ``…_spearman_cosine_mean`` and ``…_wmean``; for several sets ``{name}_avg_spearman_cosine``, their mean.

    Raises:
        BadInput: If the files have changed since `resolve_sts`, or one is malformed; the message names file
            and line.
    """

    version: ClassVar[int] = 1
    unit: ClassVar[str] = "pairs"

    def __init__(self, data: STSData, name: str = "sts") -> None:
        if _hash(data.root, data.sets, data.split) != data.sha256:
            raise BadInput(f"{CHANGED_FILES} The STS files are in {data.root}.")
        self.name, self.split = name, data.split
        self.sets = {name: _read(data.root, name, data.split) for name in data.sets}
        self.row_of = text_rows(part for parts in self.sets.values() for part in parts)

    def __call__(self, model: Encoder) -> dict[str, float]:
        """Encode every text once and correlate."""
        return self.itemised(model)[0]

    def counts(self) -> dict[str, int]:
        """Count the pairs of every set and of all sets."""
        counts = {name: sum(map(len, parts)) for name, parts in self.sets.items()}
        return {self.name: sum(counts.values())} | {
            f"{self.name}_{name.lower()}_": count for name, count in counts.items()
        }

    def itemised(self, model: Encoder) -> FiguresAndItems:
        """Compute the figures, and return their pairs too."""
        items: dict[str, Items] = {}
        for name, parts in self.scores(model).items():
            for kind, each in correlations(parts).items():
                suffix = "" if kind == "all" else f"_{kind}"
                items[f"{self.name}_{name.lower()}_spearman_cosine{suffix}"] = each
        whole = [each for name, each in items.items() if name.endswith("_cosine")]
        if len(whole) > 1:
            items[f"{self.name}_avg_spearman_cosine"] = average(whole)
        return {name: each.figure() for name, each in items.items()}, items

    def scores(self, model: Encoder) -> dict[str, list[tuple[Values, Values]]]:
        """Compute cosines and gold scores of every set's pairs, part by part."""
        vectors = model.encode(list(self.row_of))
        return {
            name: [score_pairs(part, self.row_of, vectors) for part in parts]
            for name, parts in self.sets.items()
        }


def correlations(parts: Sequence[tuple[Values, Values]], scale: float = 1.0) -> dict[str, Items]:
    """Make the items of ``all``, Spearman over all pairs; for several parts also ``mean`` and ``wmean``.

    A part is the cosines and gold scores of its pairs.
    """
    first, second = (np.concatenate(side) for side in zip(*parts, strict=True))
    found = {"all": Items((Part(first, second),), "spearman", scale)}
    if len(parts) > 1:
        alike = tuple(Part(scores, gold) for scores, gold in parts)
        sized = tuple(Part(scores, gold, len(gold)) for scores, gold in parts)
        found |= {"mean": Items(alike, "spearman", scale), "wmean": Items(sized, "spearman", scale)}
    return found


def text_rows(sets: Iterable[Pairs]) -> dict[str, int]:
    """Number the distinct texts of pairs."""
    return number((first, second) for pairs in sets for first, second, _ in pairs)


def score_pairs(pairs: Pairs, row_of: Mapping[str, int], vectors: FloatArray) -> tuple[Values, Values]:
    """Compute the cosines of pairs, and return them with the gold scores."""
    first, second = [row_of[a] for a, _, _ in pairs], [row_of[b] for _, b, _ in pairs]
    return cosines(vectors[first], vectors[second]), np.array([gold for _, _, gold in pairs])


def _files(root: str, name: str, split: str) -> list[Path | None]:
    """Return the files of a set, None for each that is missing."""
    folder = f"{name}-en-test"
    kinds = ("input", "gs")
    names = [f"{folder}/STS.{kind}.{part}.txt" for part in PARTS.get(name, ()) for kind in kinds]
    names = names or [TABLES[name, split]]
    places = [Path(root) / layout for layout in LAYOUTS]
    return [next((place / file for place in places if (place / file).is_file()), None) for file in names]


def _hash(root: str, sets: tuple[str, ...], split: str) -> str:
    digest = hashlib.sha256()
    for name in sets:
        for path in _files(root, name, split):
            content = path.read_bytes() if path else b""
            digest.update(f"{name} {path.name if path else ''} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _read(root: str, name: str, split: str) -> list[Pairs]:
    paths = [path for path in _files(root, name, split) if path]
    if name in PARTS:
        return [read_part(texts, gold) for texts, gold in zip(paths[::2], paths[1::2], strict=True)]
    columns, skip = ((5, 6, 4), 0) if name == "STSB" else ((1, 2, 3), 1)
    first, second, gold = columns
    found = []
    for at, line in read_lines(paths[0])[skip:]:
        row = tab_columns(paths[0], at, line, max(columns))
        found.append((row[first], row[second], gold_score(paths[0], at, row[gold])))
    return [found]


def read_part(texts: Path, gold: Path) -> Pairs:
    """Read the scored pairs of a part: its texts from one file, their gold scores from another."""
    pairs, scores = list(read_lines(texts)), list(read_lines(gold))
    if len(pairs) != len(scores):
        raise BadInput(
            f"{texts.name} and {gold.name} in {texts.parent} must have the same number of lines, but have "
            f"{len(pairs)} and {len(scores)}."
        )
    found = []
    for (at, line), (_, score) in zip(pairs, scores, strict=True):
        if score.strip():
            first, second = tab_columns(texts, at, line, 1)[:2]
            found.append((first, second, gold_score(gold, at, score)))
    if not found:
        raise BadInput(f"{gold} must have gold scores, but has none.")
    return found


def unscored(data: STSData) -> dict[str, int]:
    """Count the pairs of each set that have no gold score and are left out; sets without any are missing."""
    golds = {name: [path for path in _files(data.root, name, data.split) if path][1::2] for name in data.sets}
    empty = {
        name: sum(not line.strip() for path in paths for _, line in read_lines(path))
        for name, paths in golds.items()
    }
    return {name: count for name, count in empty.items() if count}


def read_lines(path: Path) -> list[tuple[int, str]]:
    """Read lines with their numbers, from 1. Only line feeds end lines: texts may hold other separators."""
    content = path.read_bytes()
    content = content.removesuffix(b"\n")
    lines = []
    for at, line in enumerate(content.split(b"\n"), start=1):
        try:
            lines.append((at, line.decode("utf-8").removesuffix("\r")))
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{path}, line {at}: must be UTF-8, but has {error.reason} at byte {error.start}."
            ) from None
    return lines


def tab_columns(path: Path, at: int, line: str, last: int) -> list[str]:
    """Split line ``at`` into columns, of which there must be more than ``last``."""
    columns = line.split("\t")
    if len(columns) <= last:
        raise BadInput(
            f"{path}, line {at}: must have {last + 1} tab-separated columns, but has {len(columns)}."
        )
    return columns


def gold_score(path: Path, at: int, text: str) -> float:
    """Parse a gold score, a number from 0 to 5."""
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not 0 <= score <= 5:
        raise BadInput(
            f"{path}, line {at}: a gold score must be a number from 0 to 5, but is {text.strip()!r}."
        )
    return score
