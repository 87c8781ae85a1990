"""SST-2, QQP, MNLI, MRPC and RTE: the tab-separated files of GLUE, or JSON with both texts in one field.

GLUE (Wang et al., ICLR 2019) publishes no labels of its test splits: figures are on dev, and say so.
Quotation marks are text in all of these files.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.corpora.shares import chosen


class Row(NamedTuple):
    """A labelled text, or a labelled pair."""

    first: str
    second: str | None
    label: int


@dataclass(frozen=True)
class Task:
    """How a task is published.

    Attributes:
        first: Column of the (first) text.
        second: Column of the second text; empty where there is one.
        label: Column of the label.
        labels: Names of the classes in the order of their ids.
        files: Split to the names its file may have.
        rows: Rows of the published splits.
        other_names: Names of classes in other forms of the files.
        unlabelled: The label of rows on which the annotators did not agree; they are left out.
        short_rows: Whether the published file has lines that break off; they are left out.
    """

    first: str
    second: str
    label: str
    labels: tuple[str, ...]
    files: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, int]
    other_names: Mapping[str, str] = field(default_factory=dict)
    unlabelled: str = ""
    short_rows: bool = False


_FILES = {"train": ("train.tsv", "train.json"), "dev": ("dev.tsv", "dev.json")}
_TEST = ("test-labeled.tsv", "test.tsv")

TASKS = {
    "sst2": Task(
        *("sentence", "", "label", ("0", "1")),
        files={**_FILES, "test": _TEST},
        rows={"train": 67_349, "dev": 872, "test": 1821},
    ),
    "qqp": Task(
        *("question1", "question2", "is_duplicate", ("0", "1")),
        files=_FILES,
        rows={"train": 363_846, "dev": 40_430},
        other_names={"False": "0", "True": "1"},
        short_rows=True,
    ),
    "mnli": Task(
        *("sentence1", "sentence2", "gold_label", ("entailment", "neutral", "contradiction")),
        files={
            "train": _FILES["train"],
            "dev_matched": ("dev_matched.tsv",),
            "dev_mismatched": ("dev_mismatched.tsv",),
            "dev": ("dev.json",),
        },
        rows={"train": 392_702, "dev_matched": 9815, "dev_mismatched": 9832},
        unlabelled="-",
    ),
    "mrpc": Task(
        *("#1 String", "#2 String", "Quality", ("0", "1")),
        files={
            "train": ("train.tsv", "msr_paraphrase_train.txt"),
            "dev": ("dev.tsv",),
            "test": ("msr_paraphrase_test.txt",),
        },
        rows={"train": 3668, "dev": 408, "test": 1725},
    ),
    "rte": Task(
        *("sentence1", "sentence2", "label", ("entailment", "not_entailment")),
        files=_FILES,
        rows={"train": 2490, "dev": 277},
        other_names={"contradiction": "not_entailment"},
    ),
}


@dataclass(frozen=True)
class LabelledData:
    """A split of a task, known by its content.

    Attributes:
        task: Of `TASKS`.
        split: Of the task.
        sha256: Over the file.
        path: Where it is; not part of the identity.
    """

    task: str
    split: str
    sha256: str
    path: str = field(default="", metadata={"identity": False})


def resolve_task(task: str, folder: str | Path, split: str) -> LabelledData:
    """Find a split in the folder of a task.

    Args:
        task: ``sst2``, ``qqp``, ``mnli``, ``mrpc`` or ``rte``.
        folder: Where its files lie.
        split: ``train``, ``dev`` (MNLI: ``dev_matched`` and ``dev_mismatched``; ``dev`` is a sample that does
            not tell them apart), or ``test`` where its labels are public.

    Raises:
        BadInput: No such task or split, or no such file.
    """
    if task not in TASKS:
        raise BadInput(f"`{task}` is no task. {nearest(task, list(TASKS))}")
    files = TASKS[task].files
    if split not in files:
        raise BadInput(f"`{split}` is no labelled split of {task}. {nearest(split, list(files))}")
    found = [Path(folder) / name for name in files[split] if (Path(folder) / name).is_file()]
    remedy = f"It is one of {', '.join(files[split])}."
    require(bool(found), f"the {split} file of {task} is there", folder=str(folder), remedy=remedy)
    return LabelledData(task, split, hashlib.sha256(found[0].read_bytes()).hexdigest(), str(found[0]))


def read_task(data: LabelledData) -> list[Row]:
    """The rows of a split, in their order.

    Raises:
        BadInput: The file is no longer the one that ``data`` names, it lacks a column, or a row is malformed.
    """
    path, task = Path(data.path), TASKS[data.task]
    content = path.read_bytes() if path.is_file() else b""
    require(
        hashlib.sha256(content).hexdigest() == data.sha256,
        "a task's file is the one that the plan names",
        file=str(path),
        remedy="It was changed since; start again with the file as it is.",
    )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} must be UTF-8, but {error.reason} at byte {error.start}.") from None
    rows = _json_rows(path, text, task) if path.suffix == ".json" else _tsv_rows(path, text, task)
    require(bool(rows), f"{path} has labelled rows")
    return rows


def counts(data: LabelledData, rows: Sequence[Row]) -> dict[str, int]:
    """How many rows there are, how many were published (where that is known), and how many each class has."""
    task, published = TASKS[data.task], TASKS[data.task].rows.get(data.split)
    each = {f"rows_{name}": sum(row.label == label for row in rows) for label, name in enumerate(task.labels)}
    return {"rows": len(rows), **({"rows_published": published} if published else {}), **each}


def stratified(rows: Sequence[Row], fraction: float, seed: int = 0) -> list[Row]:
    """A share of the rows with the classes in their proportions, in their order; see `sampling.chosen`.

    Raises:
        BadInput: ``fraction`` out of range.
    """
    return [rows[int(row)] for row in chosen(np.array([row.label for row in rows]), fraction, seed)]


def _tsv_rows(path: Path, text: str, task: Task) -> list[Row]:
    # Only a line feed ends a line: texts hold other separators.
    head, *lines = text.removesuffix("\n").split("\n")
    header = head.removesuffix("\r").split("\t")
    places = [_place(path, header, name) for name in (task.first, task.second, task.label) if name]
    rows = []
    for at, line in enumerate(lines, start=2):
        fields = line.removesuffix("\r").split("\t")
        if len(fields) <= max(places):
            if task.short_rows:
                continue
            raise BadInput(f"{path}, line {at}: must have {len(header)} columns, but has {len(fields)}.")
        values = [fields[place] for place in places]
        if values[-1] != task.unlabelled:
            second = values[1] if task.second else None
            rows.append(Row(values[0], second, _label(task, values[-1], f"{path}, line {at}")))
    return rows


def _place(path: Path, header: list[str], name: str) -> int:
    remedy = "GLUE's own test files have no labels: take dev." if name not in header else ""
    require(name in header, f"{path} has the column", column=name, columns=header, remedy=remedy)
    return header.index(name)


def _json_rows(path: Path, text: str, task: Task) -> list[Row]:
    """Objects with ``sentence`` ("first sentence: …" and, on a line of its own, "second …") and ``label``."""
    try:
        content: Any = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{path} must be JSON, but: {error}.") from None
    require(isinstance(content, list), f"{path} is a list of objects")
    rows = []
    for at, item in enumerate(content, start=1):
        where = f"{path}, object {at}"
        if not isinstance(item, dict) or not isinstance(item.get("sentence"), str) or "label" not in item:
            raise BadInput(f"{where}: must have `sentence` and `label`, but has {list(item)}.")
        parts = [part.partition(": ")[2] for part in item["sentence"].split("\n")]
        if len(parts) != (2 if task.second else 1) or not all(parts):
            raise BadInput(
                f"{where}: `sentence` must hold {2 if task.second else 1} named texts, but does not."
            )
        if item["label"] != task.unlabelled:
            second = parts[1] if task.second else None
            rows.append(Row(parts[0], second, _label(task, str(item["label"]), where)))
    return rows


def _label(task: Task, name: str, where: str) -> int:
    known = task.other_names.get(name, name)
    if known not in task.labels:
        raise BadInput(f"{where}: the label must be one of {', '.join(task.labels)}, but is {name!r}.")
    return task.labels.index(known)
