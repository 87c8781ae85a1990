"""SentEval's transfer tasks in the papers' order: accuracy × 100, and F1 of MRPC."""

from stillhouse.core.artifacts import sha256_of
from stillhouse.core.errors import BadInput
from stillhouse.core.types import Encoder
from stillhouse.corpora.published.sentence_tasks import BY_CLASS, PLACES, TASKS, read_tasks, task_files
from stillhouse.evaluation.benchmark import About, Benchmark, Options, hash_of, itemised, missing, opened
from stillhouse.evaluation.items import Measured, average
from stillhouse.evaluation.senteval import FAST_FOLDS, FOLDS, measure_task

NEEDS_DATA = True
MTEB_TASKS: tuple[str, ...] = ()
FLAGS = {"fast": {"action": "store_true", "help": "5 folds instead of 10"}}


def prepare(root: str, options: Options) -> Benchmark:
    """Read the tasks; with the test sets, *Avg* is their mean accuracy, *Avg of 3* that of three."""
    files = {
        task: found for task in TASKS if (found := task_files(root, task, final=options.final)) is not None
    }
    if not files:
        raise BadInput(
            f"no files of SentEval's transfer tasks under the data root {root!r}. Put its folders (MR, CR, "
            f"SUBJ, MPQA, SST, TREC, MRPC) in {PLACES[0]}."
        )
    data = {task: read_tasks(task, paths) for task, paths in files.items()}
    folds = FAST_FOLDS if options.flag("fast") else FOLDS

    def measure(model: Encoder) -> Measured:
        found = {task: measure_task(task, splits, model, folds) for task, splits in data.items()}
        figures = {task: each for task, (each, _) in found.items()}
        items = {task: each for task, (_, each) in found.items()}
        if options.final:
            averaged = "Avg" if len(items) == len(TASKS) else f"Avg of {len(items)}"
            whole = average(each["accuracy"] for each in items.values())
            items[averaged], figures[averaged] = {"accuracy": whole}, {"accuracy": whole.figure()}
        return Measured(figures, items)

    absent = [task for task in TASKS if task not in files]
    notes = missing("files of", absent, PLACES[0])
    if absent:
        notes += ("SentEval's data/get_transfer_data.bash downloads what is missing",)
    notes += (f"{folds} folds, SentEval's setting for prototypes",) if options.flag("fast") else ()
    paths = [path for splits in files.values() for each in splits.values() for path in each]
    known = {path.name: sha256_of(path) for path in paths}
    opens = opened(options, known) if any(task not in BY_CLASS for task in files) else ""
    sets = {
        task: About(
            next(each for each in ("all", "test", "dev", "train") if each in splits),
            hash_of(path for each in splits.values() for path in each),
            "texts or pairs",
            # The rows behind `dev_accuracy`.
            len(data[task][next(each for each in ("all", "dev", "train") if each in splits)].labels_N),
        )
        for task, splits in files.items()
    }
    return itemised(measure, notes, sets=sets, opens=opens)
