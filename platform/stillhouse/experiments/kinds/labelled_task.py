"""A labelled task: texts, or pairs of texts, each with a class."""

from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.data_kind import DataKind
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.values.setting import TaskData


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
    read_by = "stillhouse.experiments.task_rows:TaskReader"
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
