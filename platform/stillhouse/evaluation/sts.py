"""Semantic textual similarity: STS12-16, STS-B and SICK-R in the files of SentEval.

A set's figure is one Spearman correlation over all its pairs (the papers' "all"). Sets of several parts also
have the mean of the parts' correlations and the mean weighted by their pairs, as SentEval prints them. Pairs
with an empty gold score were never scored and are skipped.
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
from stillhouse.evaluation.items import Items, Part, average
from stillhouse.evaluation.metrics import Values, cosines

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


@dataclass(frozen=True)
class STSData:
    """Files of STS sets, known by their content.

    Attributes:
        sets: ``STS12``, …, ``STSB``, ``SICK``.
        split: ``dev`` may select; ``test`` is for the final report.
        sha256: Over the files of these sets.
        root: Where they are; not part of the identity.
    """

    sets: tuple[str, ...]
    split: str
    sha256: str
    root: str = field(default="", metadata={"identity": False})


def sts_sets(root: str, split: str) -> tuple[str, ...]:
    """The sets of a split that lie whole under a data root."""
    return tuple(name for name in SETS[split] if all(_files(root, name, split)))


def resolve_sts(root: str, split: str = "dev", sets: tuple[str, ...] = ()) -> STSData:
    """Find the sets under a data root: its ``sts/senteval``, SentEval's ``downstream``, or the folder itself.

    Args:
        root: The data root.
        split: ``dev`` or ``test``.
        sets: What is wanted; empty means all that are there, at least one.

    Raises:
        BadInput: An unknown set, or files that are missing.
    """
    require(split in SETS, f"split in {tuple(SETS)}", split=split)
    for name in sets:
        if name not in SETS[split]:
            raise BadInput(f"`{name}` is no STS {split} set. {nearest(name, list(SETS[split]))}")
    there = sts_sets(root, split)
    wanted = tuple(name for name in SETS[split] if name in sets) or there
    missing = [name for name in wanted if name not in there]
    require(
        bool(wanted) and not missing,
        f"the files of STS {split} sets lie under the data root",
        root=root,
        missing=missing or list(SETS[split]),
        remedy="Put SentEval's folders (STS12-en-test, STSBenchmark, SICK, …) into sts/senteval there.",
    )
    return STSData(wanted, split, _hash(root, wanted, split), root)


class STS:
    """Spearman of cosines with people's scores, in [-1, 1].

    Figures: ``{name}_{set}_spearman_cosine`` (all); for sets of several parts also ``…_spearman_cosine_mean``
    and ``…_wmean``; for several sets ``{name}_avg_spearman_cosine``, their plain mean.

    Args:
        data: From `resolve_sts`.
        name: First part of the figures' names.

    Raises:
        BadInput: The files are no longer those that ``data`` names, or one is malformed (file and line).
    """

    version: ClassVar[int] = 1

    def __init__(self, data: STSData, name: str = "sts") -> None:
        require(
            _hash(data.root, data.sets, data.split) == data.sha256,
            "the STS files are those that the plan names",
            root=data.root,
            remedy="They were changed since; start again with the files as they are.",
        )
        self.name, self.split = name, data.split
        self.sets = {name: _read(data.root, name, data.split) for name in data.sets}
        self.row_of = text_rows(part for parts in self.sets.values() for part in parts)

    def __call__(self, model: Encoder) -> dict[str, float]:
        """Encode every text once and correlate."""
        return self.itemised(model)[0]

    def itemised(self, model: Encoder) -> tuple[dict[str, float], dict[str, Items]]:
        """The figures, and their pairs."""
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
        """The cosines and the gold scores of every set's pairs, part by part."""
        vectors = model.encode(list(self.row_of))
        return {
            name: [score_pairs(part, self.row_of, vectors) for part in parts]
            for name, parts in self.sets.items()
        }


def correlations(parts: Sequence[tuple[Values, Values]], scale: float = 1.0) -> dict[str, Items]:
    """``all``, Spearman over all pairs of a set; of several parts also their ``mean`` and ``wmean``.

    Args:
        parts: Cosines and gold scores of each part.
        scale: What the correlations are multiplied by.
    """
    first, second = (np.concatenate(side) for side in zip(*parts, strict=True))
    found = {"all": Items((Part(first, second),), "spearman", scale)}
    if len(parts) > 1:
        alike = tuple(Part(scores, gold) for scores, gold in parts)
        sized = tuple(Part(scores, gold, len(gold)) for scores, gold in parts)
        found |= {"mean": Items(alike, "spearman", scale), "wmean": Items(sized, "spearman", scale)}
    return found


def text_rows(sets: Iterable[Pairs]) -> dict[str, int]:
    """Every different text of some pairs, and its row among the vectors."""
    texts = (text for pairs in sets for first, second, _ in pairs for text in (first, second))
    return {text: row for row, text in enumerate(dict.fromkeys(texts))}


def score_pairs(pairs: Pairs, row_of: Mapping[str, int], vectors: FloatArray) -> tuple[Values, Values]:
    """The cosines of pairs, and their gold scores."""
    first, second = [row_of[a] for a, _, _ in pairs], [row_of[b] for _, b, _ in pairs]
    return cosines(vectors[first], vectors[second]), np.array([gold for _, _, gold in pairs])


def _files(root: str, name: str, split: str) -> list[Path | None]:
    """The files of a set, None for each that is missing."""
    folder = f"{name}-en-test"
    kinds = ("input", "gs")
    wanted = [f"{folder}/STS.{kind}.{part}.txt" for part in PARTS.get(name, ()) for kind in kinds]
    wanted = wanted or [TABLES[name, split]]
    places = [Path(root) / layout for layout in LAYOUTS]
    return [next((place / file for place in places if (place / file).is_file()), None) for file in wanted]


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
    """The scored pairs of a part: its texts in one file, their gold scores in another."""
    pairs, scores = list(read_lines(texts)), list(read_lines(gold))
    require(
        len(pairs) == len(scores),
        "a gold score belongs to every pair",
        **{texts.name: f"{len(pairs)} lines", gold.name: f"{len(scores)} lines"},
        remedy=f"See {texts.parent}.",
    )
    found = []
    for (at, line), (_, score) in zip(pairs, scores, strict=True):
        if score.strip():
            first, second = tab_columns(texts, at, line, 1)[:2]
            found.append((first, second, gold_score(gold, at, score)))
    require(bool(found), "a set has scored pairs", file=str(gold))
    return found


def unscored(data: STSData) -> dict[str, int]:
    """How many pairs of each set have no gold score, where there are any; they are left out."""
    golds = {name: [path for path in _files(data.root, name, data.split) if path][1::2] for name in data.sets}
    empty = {
        name: sum(not line.strip() for path in paths for _, line in read_lines(path))
        for name, paths in golds.items()
    }
    return {name: count for name, count in empty.items() if count}


def read_lines(path: Path) -> list[tuple[int, str]]:
    """Lines with their numbers, from 1. Only a line feed ends a line: texts may hold other separators."""
    content = path.read_bytes()
    content = content.removesuffix(b"\n")
    lines = []
    for at, line in enumerate(content.split(b"\n"), start=1):
        try:
            lines.append((at, line.decode("utf-8").removesuffix("\r")))
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{path}, line {at}: must be UTF-8, but {error.reason} at byte {error.start}."
            ) from None
    return lines


def tab_columns(path: Path, at: int, line: str, last: int) -> list[str]:
    """The columns of line ``at``, refused where column ``last``, from 0, is not there."""
    columns = line.split("\t")
    if len(columns) <= last:
        raise BadInput(
            f"{path}, line {at}: must have {last + 1} tab-separated columns, but has {len(columns)}."
        )
    return columns


def gold_score(path: Path, at: int, text: str) -> float:
    """A gold score, refused unless it is a number from 0 to 5."""
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not 0 <= score <= 5:
        raise BadInput(
            f"{path}, line {at}: a gold score must be a number from 0 to 5, but is {text.strip()!r}."
        )
    return score
