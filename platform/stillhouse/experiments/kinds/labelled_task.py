"""A labelled task: texts, or pairs of texts, each with a class."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stillhouse.core.errors import require
from stillhouse.core.type_casts import check_types
from stillhouse.corpora.published.glue import TASKS, read_task, resolve_task, task_name
from stillhouse.corpora.wordnet import wordnet_files
from stillhouse.experiments.data_kind import DataKind, Measure
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.values.data import AllRows, Examples, TextTable
from stillhouse.values.setting import TaskData
from stillhouse.values.stage import DevSuite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stillhouse.core.identity import Spec
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation


@dataclass(frozen=True)
class LabelledTask(DataKind[TaskData]):
    """Labelled texts to fine-tune on.

    Attributes:
        name: ``sst2``, ``qqp``, ``mnli``, ``mrpc`` or ``rte``.
        root: Folder with the files of the task.
        wordnet: Folder with the YAML files of Open English WordNet, by which the rows of the task are varied
            for ``augment=ts``; empty for no varied rows.
        copies: Attempts to vary each row.
        rows: Number of rows, varied ones included, after which no more are made; 0 means no limit.
    """

    key = "task"
    title = "a task with labels"
    remedy = "Give --task and --task-root, and a budget with --finetune-budget."
    counts_as = "labels"
    name: str = ""
    root: str = ""
    wordnet: str = ""
    copies: int = 20
    rows: int = 800_000

    def __post_init__(self) -> None:
        """Check the ranges, and that the task comes with its folder."""
        check_types(self, "task")
        require(
            bool(self.name and self.root),
            "a task must come with the folder of its files",
            task=self.name,
            task_root=self.root,
            remedy="Give --task and --task-root.",
        )
        require(self.copies > 0, "task.copies > 0", copies=self.copies)
        require(self.rows >= 0, "task.rows >= 0", rows=self.rows)

    def brings(self) -> tuple[DataKind[Any], ...]:
        """Vectors of the words of its texts."""
        return (WordVectors(),)

    def check(self, experiment: "Experiment") -> None:
        """Refuse an unknown task, and missing files of it or of WordNet."""
        resolve_task(task_name(self.name), self.root, "train")
        if self.wordnet:
            wordnet_files(self.wordnet)

    def sketch(self, experiment: "Experiment") -> TaskData:
        """Rows that are not there, with the classes of the task."""
        known = TASKS[task_name(self.name)]
        texts, nothing = TextTable("placeholder"), DevSuite((), select="")
        columns = ("text", "other") if known.second else ("text",)
        rows = Examples(dict.fromkeys(columns, texts), AllRows())
        return TaskData(
            rows,
            len(known.labels),
            nothing,
            augmented=rows if self.wordnet else None,
            untuned=nothing if known.second and len(known.labels) == 2 else None,
        )

    def measured(self, context: "Preparation") -> "Mapping[str, list[str]]":
        """The rows of dev, and of test where its labels are public."""
        from stillhouse.experiments.task_rows import measured_splits

        task = task_name(self.name)
        rows = [row for split in measured_splits(task, self.root) for row in read_task(split)]
        return {task: [text for row in rows for text in (row.first, row.second) if text]}

    def read(self, context: "Preparation") -> "tuple[TaskData, tuple[Spec[Any], ...]]":
        """Read the rows, and name the evaluators of the test rows."""
        from stillhouse.experiments.task_rows import read_labelled_task

        task, final = read_labelled_task(context.workspace, self.name, self.root)
        context.facts |= {"task": self.name}
        return task, final

    def measures(self, context: "Preparation") -> "list[Measure]":
        """The test rows; on dev a stage that is trained on the task has a suite of its own."""
        return [Measure(self.key, "", None, test) for test in context.once(self.read)[1]]

    def prepare(self, context: "Preparation") -> TaskData:
        """The rows that nothing measures."""
        from stillhouse.experiments.task_rows import unmeasured_rows

        task, _ = context.once(self.read)
        rows = unmeasured_rows(context.barrier, task.examples, task_name(self.name), self.root)
        context.reads(rows.columns["text"])
        return replace(task, examples=rows)

    def complete(self, value: TaskData, context: "Preparation") -> TaskData:
        """Vary the rows where a WordNet is given."""
        from stillhouse.experiments.task_rows import augmented_rows

        if not self.wordnet:
            return value
        varied = augmented_rows(
            context.barrier, value.examples, self.wordnet, copies=self.copies, most=self.rows
        )
        return replace(value, augmented=varied)
