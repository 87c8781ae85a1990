"""SentEval's transfer tasks in its own files: MR, CR, SUBJ, MPQA, SST-2, TREC and MRPC.

Conneau & Kiela, LREC 2018. The first four are published without splits, one file per class.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import IntArray

PLACES = ("transfer", "downstream", ".")
BY_CLASS = {
    "MR": ("MR/rt-polarity.neg", "MR/rt-polarity.pos"),
    "CR": ("CR/custrev.neg", "CR/custrev.pos"),
    "SUBJ": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": ("MPQA/mpqa.neg", "MPQA/mpqa.pos"),
}
BY_SPLIT = {
    "SST-2": {split: f"SST/binary/sentiment-{split}" for split in ("train", "dev", "test")},
    "TREC": {"train": "TREC/train_5500.label", "test": "TREC/TREC_10.label"},
    "MRPC": {split: f"MRPC/msr_paraphrase_{split}.txt" for split in ("train", "test")},
}
TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST-2", "TREC", "MRPC")
"""All tasks in the order of the papers."""


@dataclass(frozen=True)
class LabelledTexts:
    """Texts, or pairs of texts as two lists, with their classes from 0."""

    sides: tuple[list[str], ...]
    labels_N: IntArray


def task_files(root: str, task: str, *, final: bool) -> dict[str, tuple[Path, ...]] | None:
    """Find the files of a task by split (``all`` if it has no splits); None if a required file is missing."""
    if task in BY_CLASS:
        names: dict[str, tuple[str, ...]] = {"all": BY_CLASS[task]}
    else:
        names = {split: (name,) for split, name in BY_SPLIT[task].items() if final or split != "test"}
    for place in (Path(root) / each for each in PLACES):
        paths = {split: tuple(place / name for name in each) for split, each in names.items()}
        if all(path.is_file() for each in paths.values() for path in each):
            return paths
    return None


def read_tasks(task: str, files: dict[str, tuple[Path, ...]]) -> dict[str, LabelledTexts]:
    """Read every split of a task, with the same class numbers.

    Raises:
        BadInput: If a line is malformed (the message has file and line), or a split has no rows.
    """
    rows = {split: _rows(task, paths) for split, paths in files.items()}
    classes = sorted({label for each in rows.values() for label, _ in each})
    require(len(classes) >= 2, "classes >= 2", task=task, classes=classes)
    number = {label: at for at, label in enumerate(classes)}
    found = {}
    for split, each in rows.items():
        if not each:
            raise BadInput(f"the {split} split of {task} must have rows, but has none.")
        sides = tuple(list(side) for side in zip(*(texts for _, texts in each), strict=True))
        found[split] = LabelledTexts(sides, np.array([number[label] for label, _ in each]))
    return found


def _rows(task: str, paths: tuple[Path, ...]) -> list[tuple[str, tuple[str, ...]]]:
    rows: list[tuple[str, tuple[str, ...]]] = []
    for label, path in enumerate(paths):
        # SentEval reads the old sets as Latin-1; SST and MRPC are UTF-8.
        old = task in BY_CLASS or task == "TREC"
        content = path.read_bytes().decode("latin-1" if old else "utf-8-sig", errors="replace")
        for at, line in enumerate(content.split("\n"), start=1):
            if not line.strip() or (task == "MRPC" and at == 1):
                continue
            try:
                rows.append(
                    (str(label), (line.strip(),)) if task in BY_CLASS else _row(task, line.rstrip("\r"))
                )
            except (ValueError, IndexError):
                raise BadInput(f"{path}, line {at}: must be a row of {task}, but is {line[:60]!r}.") from None
    return rows


def _row(task: str, line: str) -> tuple[str, tuple[str, ...]]:
    if task == "SST-2":
        text, label = line.split("\t")
        return str(int(label)), (text.strip(),)
    if task == "TREC":
        label, rest = line.split(":", 1)
        return label, (rest.split(" ", 1)[1].strip(),)
    cells = line.split("\t")
    return str(int(cells[0])), (cells[3], cells[4])
