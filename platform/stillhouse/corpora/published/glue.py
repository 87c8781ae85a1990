"""SST-2, QQP, MNLI, MRPC and RTE: GLUE's tab-separated files, or JSON with both texts in one field.

GLUE (Wang et al., ICLR 2019) publishes no labels of its test splits: figures are on dev.
Quotation marks are plain text in all of these files.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from stillhouse.core.errors import BadInput, nearest
from stillhouse.core.integrity import sha256_of
from stillhouse.corpora.reading.rows import published_table


class Row(NamedTuple):
    """A labelled text, or a labelled pair."""

    first: str
    second: str | None
    label: int


@dataclass(frozen=True)
class Task:
    """The published form of a task.

    Attributes:
        first: Column of the (first) text.
        second: Column of the second text; empty for single texts.
        label: Column of the label.
        labels: Names of the classes in the order of their ids.
        files: Split to the possible names of its file.
        other_names: Names of classes in other versions of the files.
        unlabelled: Label of rows on which the annotators did not agree; they are skipped.
        short_rows: Whether the published file has truncated lines; they are skipped.
    """

    first: str
    second: str
    label: str
    labels: tuple[str, ...]
    files: Mapping[str, tuple[str, ...]]
    other_names: Mapping[str, str] = field(default_factory=dict)
    unlabelled: str = ""
    short_rows: bool = False


_FILES = {"train": ("train.tsv", "train.json"), "dev": ("dev.tsv", "dev.json")}

TASKS = {
    "sst2": Task(
        *("sentence", "", "label", ("0", "1")),
        files={**_FILES, "test": ("test-labeled.tsv", "test.tsv")},
    ),
    "qqp": Task(
        *("question1", "question2", "is_duplicate", ("0", "1")),
        files=_FILES,
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
        unlabelled="-",
    ),
    "mrpc": Task(
        *("#1 String", "#2 String", "Quality", ("0", "1")),
        files={
            "train": ("train.tsv", "msr_paraphrase_train.txt"),
            "dev": ("dev.tsv",),
            "test": ("msr_paraphrase_test.txt",),
        },
    ),
    "rte": Task(
        *("sentence1", "sentence2", "label", ("entailment", "not_entailment")),
        files=_FILES,
        other_names={"contradiction": "not_entailment"},
    ),
}


@dataclass(frozen=True)
class LabelledData:
    """A split of a task, identified by the hash of its file, wherever that lies."""

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
    return LabelledData(task, split, sha256_of(found[0]), str(found[0]))


def read_task(data: LabelledData) -> list[Row]:
    """Read the rows of a split, in their order.

    Raises:
        BadInput: If the file has changed since `resolve_task`, lacks a column, or has a malformed row.
    """
    path, task = Path(data.path), TASKS[data.task]
    if not path.is_file() or sha256_of(path) != data.sha256:
        raise BadInput(
            f"the file of a plan's task must not change, but {path} has changed. Start again with the "
            "current file."
        )
    rows = list((_json_rows if path.suffix == ".json" else _tsv_rows)(path, task))
    if not rows:
        raise BadInput(f"{path} must have labelled rows, but has none.")
    return rows


def _tsv_rows(path: Path, task: Task) -> Iterator[Row]:
    table = published_table(path, "TSV", "\t")
    names = [name for name in (task.first, task.second, task.label) if name]
    for name in names:
        if name not in table.columns:
            raise BadInput(
                f"{path} has no column {name!r}, but {', '.join(table.columns)}. GLUE's own test files have "
                "no labels: use dev."
            )
    for at, cells in table.strict_rows():
        where, values = f"{path}, line {at}", [cells[name] for name in names if name in cells]
        if len(values) == len(names):
            yield from _labelled(task, values[:-1], values[-1], where)
        elif not task.short_rows:
            raise BadInput(f"{where}: must have {len(table.columns)} columns, but has {len(cells)}.")


def _json_rows(path: Path, task: Task) -> Iterator[Row]:
    """Read objects with ``label`` and ``sentence`` ("first sentence: …", and on another line "second …")."""
    table, count = published_table(path, "JSON"), 2 if task.second else 1
    for at, item in table.strict_rows():
        where = f"{path}, {table.unit} {at}"
        if not isinstance(item.get("sentence"), str) or "label" not in item:
            found = ", ".join(item)
            raise BadInput(f"{where}: must be an object with a text `sentence` and `label`, but has {found}.")
        texts = [part.partition(": ")[2] for part in item["sentence"].split("\n")]
        if len(texts) != count or not all(texts):
            raise BadInput(f"{where}: `sentence` must have {count} named texts, but has {len(texts)}.")
        yield from _labelled(task, texts, str(item["label"]), where)


def _labelled(task: Task, texts: Sequence[str], name: str, where: str) -> Iterator[Row]:
    """A row, unless the annotators did not agree on its label."""
    known = task.other_names.get(name, name)
    if name == task.unlabelled:
        return
    if known not in task.labels:
        raise BadInput(f"{where}: the label must be one of {', '.join(task.labels)}, but is {name!r}.")
    yield Row(texts[0], texts[1] if task.second else None, task.labels.index(known))


def task_name(given: str) -> str:
    """``SST-2`` as ``sst2``."""
    return given.lower().replace("-", "")
