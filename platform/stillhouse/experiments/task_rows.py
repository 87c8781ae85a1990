"""The rows of a labelled task as examples: those of its files, and varied ones that a teacher labels."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.identity import Spec, spec
from stillhouse.corpora.barrier import Barrier
from stillhouse.corpora.published.glue import TASKS, LabelledData, Row, read_task, resolve_task, task_name
from stillhouse.corpora.read_once import note_path, read_once
from stillhouse.corpora.reading.cleaning import clean, dedup_key
from stillhouse.corpora.reading.sources import list_files
from stillhouse.corpora.tables import open_rows, open_texts, open_values, write_rows, write_texts
from stillhouse.corpora.text_variation import augment
from stillhouse.corpora.wordnet import read_wordnet, wordnet_files
from stillhouse.evaluation.classification import Classification, CosineThreshold
from stillhouse.experiments.data_kind import Measure, Reader
from stillhouse.experiments.kinds.labelled_task import LabelledTask
from stillhouse.experiments.sources_read import task_read
from stillhouse.values.data import AllRows, Examples, TextTable
from stillhouse.values.setting import TaskData
from stillhouse.values.stage import DevSuite

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation

VERSION = 2
THRESHOLD_ROWS = 10_000
"""Training rows on which the thresholds of untuned vectors are chosen."""


class TaskReader(Reader[LabelledTask, TaskData]):
    """The reader of a labelled task."""

    def check(self, experiment: "Experiment") -> None:
        """Refuse an unknown task, and missing files of it or of WordNet."""
        resolve_task(task_name(self.kind.name), self.kind.root, "train")
        if self.kind.wordnet:
            wordnet_files(self.kind.wordnet)

    def sketch(self, experiment: "Experiment") -> TaskData:
        """Rows that are not there, with the classes of the task."""
        known = TASKS[task_name(self.kind.name)]
        texts, nothing = TextTable("placeholder"), DevSuite((), select="")
        columns = ("text", "other") if known.second else ("text",)
        rows = Examples(dict.fromkeys(columns, texts), AllRows())
        return TaskData(
            rows,
            len(known.labels),
            nothing,
            augmented=rows if self.kind.wordnet else None,
            untuned=nothing if known.second and len(known.labels) == 2 else None,
        )

    def measured(self, context: "Preparation") -> dict[str, list[str]]:
        """The rows of dev, and of test where its labels are public."""
        task = task_name(self.kind.name)
        rows = [row for split in measured_splits(task, self.kind.root) for row in read_task(split)]
        return {task: [text for row in rows for text in (row.first, row.second) if text]}

    def read(self, context: "Preparation") -> tuple[TaskData, tuple[Spec[Any], ...]]:
        """Read the rows, and name the evaluators of the test rows."""
        read = read_labelled_task(context.workspace, self.kind.name, self.kind.root)
        context.facts |= {"task": self.kind.name}
        return read

    def measures(self, context: "Preparation") -> list[Measure]:
        """The test rows; on dev a stage that is trained on the task has a suite of its own."""
        return [Measure(self.kind.key, "", None, test) for test in context.once(self.read)[1]]

    def prepare(self, context: "Preparation") -> TaskData:
        """The rows that nothing measures."""
        task, _ = context.once(self.read)
        rows = unmeasured_rows(context.barrier, task.examples, task_name(self.kind.name), self.kind.root)
        context.words.append(rows.columns["text"])
        return replace(task, examples=rows)

    def complete(self, value: TaskData, context: "Preparation") -> TaskData:
        """Vary the rows where a WordNet is given."""
        if not self.kind.wordnet:
            return value
        copies, most = self.kind.copies, self.kind.rows
        rows = augmented_rows(context.barrier, value.examples, self.kind.wordnet, copies=copies, most=most)
        return replace(value, augmented=rows)


def measured_splits(task: str, root: str) -> list[LabelledData]:
    """The splits of a task that are measured: dev, and test where its labels are public.

    Raises:
        BadInput: A file of dev is missing.
    """
    splits = TASKS[task].files
    matched = "dev_matched" in splits and (Path(root) / "dev_matched.tsv").is_file()
    dev = resolve_task(task, root, "dev_matched" if matched else "dev")
    public = any((Path(root) / name).is_file() for name in splits.get("test", ()))
    return [dev, resolve_task(task, root, "test")] if public else [dev]


def read_labelled_task(workspace: Workspace, given: str, root: str) -> tuple[TaskData, tuple[Spec[Any], ...]]:
    """Read the training rows, with evaluators of the dev rows and, where they are public, of the test rows.

    Raises:
        BadInput: The task is unknown, or one of its files is missing.
    """
    task = task_name(given)
    train = resolve_task(task, root, "train")
    dev, *tests = measured_splits(task, root)
    steering = DevSuite((spec(Classification, data=dev),), select=f"{task}_accuracy")
    final = tuple(spec(Classification, data=test) for test in tests)
    classes, untuned = len(TASKS[task].labels), None
    if TASKS[task].second and classes == 2:
        bare = spec(CosineThreshold, data=dev, fit=train, fit_rows=THRESHOLD_ROWS)
        untuned = DevSuite((bare,), select=f"{task}_cosine_accuracy")
    examples = task_examples(workspace, train)
    task_read(workspace, given, root, examples).say()
    return TaskData(examples, classes=classes, dev=steering, untuned=untuned), final


def unmeasured_rows(barrier: Barrier, examples: Examples, task: str, root: str) -> Examples:
    """Leave out the rows that a split of the task measures, and those that name a text of another evaluator.

    A pair is compared whole, in either order: the published train and dev rows of QQP share questions.
    """
    splits = measured_splits(task, root)

    def read() -> dict[str, Any]:
        measured = {_key(row) for split in splits for row in read_task(split)}
        rows = _rows_of(barrier.workspace, examples)
        kept = [row for row in rows if _key(row) not in measured]
        counts = {task: len(rows) - len(kept)}
        if not kept:
            raise barrier.refusal("rows", counts)
        if not counts[task]:
            return {"kept": None, "left_out": counts}
        unmeasured = write_task_rows(barrier.workspace, kept, f"{examples.label}-unmeasured", {"task": task})
        return {"kept": unmeasured, "left_out": counts}

    signature = {"version": VERSION, "rows": examples.fingerprint, "measured": splits}
    made = read_once(barrier.workspace, note_path(barrier.workspace, f"{task}-unmeasured", signature), read)
    barrier.report("rows", made["left_out"])
    return barrier.without(made["kept"] or examples, "rows", but=task)


def _key(row: Row) -> frozenset[bytes]:
    return frozenset(dedup_key(clean(text)) for text in (row.first, row.second) if text)


def task_examples(workspace: Workspace, data: LabelledData) -> Examples:
    """Write the rows of a split: columns ``text`` and, for pairs, ``other``; value ``label``.

    Rows with an empty text are left out.
    """
    rows = [
        Row(clean(row.first), None if row.second is None else clean(row.second), row.label)
        for row in read_task(data)
    ]
    rows = [row for row in rows if row.first and row.second != ""]
    return write_task_rows(workspace, rows, f"{data.task}-{data.split}", {"task": data.task})


def write_task_rows(
    workspace: Workspace, rows: Sequence[Row], label: str, origin: Mapping[str, Any]
) -> Examples:
    """Write rows as examples: columns ``text`` and, for pairs, ``other``, over one table; value ``label``."""
    sides = {"text": [row.first for row in rows]}
    if rows and rows[0].second is not None:
        sides["other"] = [row.second or "" for row in rows]
    known = {
        text: at for at, text in enumerate(dict.fromkeys(text for side in sides.values() for text in side))
    }
    table = write_texts(workspace, label, known, deduplicate=False, origin=origin)
    return write_rows(
        workspace,
        dict.fromkeys(sides, table),
        {column: np.array([known[text] for text in side]) for column, side in sides.items()},
        label,
        values={"label": np.array([row.label for row in rows])},
    )


def augmented_rows(barrier: Barrier, examples: Examples, wordnet: str, *, copies: int, most: int) -> Examples:
    """Write the rows of a task and varied ones, which have no label: the transfer set of Tang et al. (TS).

    No varied row may name what is measured with. The tags are the parts of speech of Open English WordNet.
    There are ``copies`` attempts to vary each row, until there are ``most`` rows; 0 means no limit.

    Raises:
        BadInput: The folder has no WordNet.
    """
    workspace = barrier.workspace
    signature = {
        "version": VERSION,
        "rows": examples.fingerprint,
        "barrier": barrier.signature,
        "wordnet": list_files(f"{wordnet}/*.yaml*")[1],
        "copies": copies,
        "most": most,
    }
    note = note_path(workspace, f"{examples.label}-augmented", signature)

    def read() -> Examples:
        rows = _rows_of(workspace, examples)
        varied: list[Row] = []
        if most == 0 or most > len(rows):
            tagger = read_wordnet(wordnet).tag
            made = augment(rows, tagger, copies=copies, limit=max(0, most - len(rows)))
            varied = [row for row in made if not any(map(barrier.bars, filter(None, row[:2])))]
        origin = {"augmented": examples.fingerprint}
        whole = write_task_rows(workspace, [*rows, *varied], f"{examples.label}-augmented", origin)
        say(f"  {whole.label}: {len(rows):,} rows and {len(varied):,} varied ones")
        return whole

    return read_once(workspace, note, read)


def _rows_of(workspace: Workspace, examples: Examples) -> list[Row]:
    ids, label_N = open_rows(workspace, examples), open_values(workspace, examples)["label"]
    sides = {name: open_texts(workspace, table)[ids[name]] for name, table in examples.columns.items()}
    others: Sequence[str | None] = sides["other"] if "other" in sides else [None] * len(label_N)
    return [
        Row(first, second, int(label))
        for first, second, label in zip(sides["text"], others, label_N, strict=True)
    ]
