"""SST-2, QQP, MNLI, MRPC and RTE: GLUE's tab-separated files, or JSON with both texts in one field.

GLUE (Wang et al., ICLR 2019) publishes no labels of its test splits: figures are on dev.
Quotation marks are plain text in all of these files.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from stillhouse.core.errors import BadInput, nearest
from stillhouse.core.json_text import parse_json


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
        second: Column of the second text; empty for single texts.
        label: Column of the label.
        labels: Names of the classes in the order of their ids.
        files: Split to the possible names of its file.
        rows: Number of rows of the published splits.
        other_names: Names of classes in other versions of the files.
        unlabelled: Label of rows on which the annotators did not agree; they are skipped.
        short_rows: Whether the published file has truncated lines; they are skipped.
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
    """A split of a task, identified by its content.

    Attributes:
        task: Name of the task in `TASKS`.
        split: Name of the split.
        sha256: Hash of the file.
        path: Path of the file; not part of the identity.
    """

    task: str
    split: str
    sha256: str
    path: str = field(default="", metadata={"identity": False})


def resolve_task(task: str, folder: str | Path, split: str) -> LabelledData:
    """Find a split in the folder of a task.

    Args:
        task: ``sst2``, ``qqp``, ``mnli``, ``mrpc`` or ``rte``.
        folder: Folder of its files.
        split: ``train``, ``dev`` (MNLI: ``dev_matched`` and ``dev_mismatched``; ``dev`` is a sample that does
            not distinguish them), or ``test`` if its labels are public.

    Raises:
        BadInput: If there is no such task, split or file.
    """
    if task not in TASKS:
        raise BadInput(f"unknown task `{task}`. {nearest(task, list(TASKS))}")
    files = TASKS[task].files
    if split not in files:
        raise BadInput(f"{task} has no labelled split `{split}`. {nearest(split, list(files))}")
    found = [Path(folder) / name for name in files[split] if (Path(folder) / name).is_file()]
    if not found:
        raise BadInput(
            f"no {split} file of {task} in {folder}. It must be called {' or '.join(files[split])}."
        )
    return LabelledData(task, split, hashlib.sha256(found[0].read_bytes()).hexdigest(), str(found[0]))


def read_task(data: LabelledData) -> list[Row]:
    """Read the rows of a split, in their order.

    Raises:
        BadInput: If the file has changed since `resolve_task`, lacks a column, or has a malformed row.
    """
    path, task = Path(data.path), TASKS[data.task]
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != data.sha256:
        raise BadInput(
            f"the file of a plan's task must not change, but {path} has changed. Start again with the "
            "current file."
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} must be UTF-8, but has {error.reason} at byte {error.start}.") from None
    rows = _json_rows(path, text, task) if path.suffix == ".json" else _tsv_rows(path, text, task)
    if not rows:
        raise BadInput(f"{path} must have labelled rows, but has none.")
    return rows


def counts(data: LabelledData, rows: Sequence[Row]) -> dict[str, int]:
    """Count the rows, in total, as published (if known), and per class."""
    task, published = TASKS[data.task], TASKS[data.task].rows.get(data.split)
    each = {f"rows_{name}": sum(row.label == label for row in rows) for label, name in enumerate(task.labels)}
    return {"rows": len(rows), **({"rows_published": published} if published else {}), **each}


def _tsv_rows(path: Path, text: str, task: Task) -> list[Row]:
    # Only a line feed ends a line: texts contain other separators.
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
    if name not in header:
        raise BadInput(
            f"{path} has no column {name!r}, but {', '.join(header)}. GLUE's own test files have no labels: "
            "use dev."
        )
    return header.index(name)


def _json_rows(path: Path, text: str, task: Task) -> list[Row]:
    """Read objects with ``label`` and ``sentence`` ("first sentence: …", and on another line "second …")."""
    try:
        content: Any = parse_json(text)
    except ValueError as error:
        raise BadInput(f"{path} must be JSON, but is not: {error}.") from None
    if not isinstance(content, list):
        raise BadInput(f"{path} must be a list of objects, but is {type(content).__name__}.")
    rows = []
    for at, item in enumerate(content, start=1):
        where = f"{path}, object {at}"
        if not isinstance(item, dict) or not isinstance(item.get("sentence"), str) or "label" not in item:
            found = ", ".join(item) if isinstance(item, dict) else f"type {type(item).__name__}"
            raise BadInput(f"{where}: must be an object with a text `sentence` and `label`, but has {found}.")
        parts = [part.partition(": ")[2] for part in item["sentence"].split("\n")]
        if len(parts) != (2 if task.second else 1) or not all(parts):
            raise BadInput(
                f"{where}: `sentence` must have {2 if task.second else 1} named texts, but has {len(parts)}."
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


def task_name(given: str) -> str:
    """``SST-2`` as ``sst2``."""
    return given.lower().replace("-", "")
