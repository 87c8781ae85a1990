"""The suites of labelled texts: SentEval's transfer tasks."""

import numpy as np

from stillhouse.artifacts import sha256_of
from stillhouse.corpora.sentence_tasks import BY_CLASS, TASKS, read_tasks, task_files
from stillhouse.corpora.sentence_tasks import PLACES as TRANSFER
from stillhouse.errors import require
from stillhouse.evaluation.benchmarks.common import Benchmark, Figures, Options, missing, opened
from stillhouse.evaluation.transfer import measure_task
from stillhouse.types import Encoder


def transfer(root: str, options: Options) -> Benchmark:
    """SentEval's tasks in the papers' order: accuracy × 100, of MRPC F1 too; with the test sets Avg."""
    files = {task: task_files(root, task, final=options.final) for task in TASKS}
    there = {task: paths for task, paths in files.items() if paths}
    require(
        bool(there),
        "SentEval's transfer tasks lie under the data root",
        root=root,
        remedy=f"Put its folders (MR, CR, SUBJ, MPQA, SST, TREC, MRPC) into {TRANSFER[0]} there.",
    )
    data = {task: read_tasks(task, paths) for task, paths in there.items()}

    def measure(model: Encoder) -> Figures:
        figures = {task: measure_task(task, splits, model) for task, splits in data.items()}
        reached = [each.get("accuracy", np.nan) for each in figures.values()]
        average = {"Avg": {"accuracy": float(np.mean(reached))}}
        return figures | (average if options.final else {})

    absent = [task for task in TASKS if task not in there]
    paths = [path for splits in there.values() for each in splits.values() for path in each]
    known = {path.name: sha256_of(path) for path in paths}
    opens = opened(options, known) if any(task not in BY_CLASS for task in there) else ""
    return Benchmark(measure, missing("files of", absent, TRANSFER[0]), opens)
