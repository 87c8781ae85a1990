"""A labelled task: texts, or pairs of texts, each with a class."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stillhouse.core.errors import require
from stillhouse.core.type_casts import check_types
from stillhouse.corpora.published.glue import TASKS, read_task, resolve_task, task_name
from stillhouse.corpora.wordnet import wordnet_files
from stillhouse.experiments.data_kind import DataKind
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.values.data import AllRows, Examples, TextTable, sample
from stillhouse.values.setting import TaskData
from stillhouse.values.stage import DevSuite

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    def prepare(self, context: "Preparation") -> TaskData:
        """Read the rows, and register what measures the test rows."""
        from stillhouse.experiments.sources_read import task_read
        from stillhouse.experiments.task_rows import read_labelled_task, unmeasured_rows

        task, final = read_labelled_task(context.workspace, self.name, self.root)
        task_read(context.workspace, self.name, self.root, task.examples).say()
        if context.training:
            name = task_name(self.name)
            rows = unmeasured_rows(context.barrier, task.examples, name, self.root)
            task = replace(task, examples=rows)
        context.test += final
        context.reads(task.examples.columns["text"])
        context.facts |= {"task": self.name}
        return task

    @staticmethod
    def share(value: TaskData, fraction: float) -> TaskData:
        """A share of the rows, in the proportions of their labels."""
        return replace(value, examples=sample(value.examples, fraction))

    def complete(self, value: TaskData, context: "Preparation") -> TaskData:
        """Vary the rows where a WordNet is given."""
        from stillhouse.experiments.task_rows import augmented_rows

        if not self.wordnet or not context.training:
            return value
        varied = augmented_rows(
            context.barrier, value.examples, self.wordnet, copies=self.copies, most=self.rows
        )
        return replace(value, augmented=varied)
