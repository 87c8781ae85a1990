"""The suites of labelled texts: SentEval's transfer tasks, and GLUE."""

from pathlib import Path

from stillhouse.core.artifacts import sha256_of
from stillhouse.core.errors import require
from stillhouse.core.types import Encoder
from stillhouse.corpora.published.glue import TASKS as GLUE
from stillhouse.corpora.published.glue import Row, read_task, resolve_task
from stillhouse.corpora.published.sentence_tasks import BY_CLASS, TASKS, read_tasks, task_files
from stillhouse.corpora.published.sentence_tasks import PLACES as TRANSFER
from stillhouse.evaluation.benchmarks.common import Benchmark, Options, itemised, missing, opened
from stillhouse.evaluation.finite_encoder import Checked
from stillhouse.evaluation.glue import GlueSet, glue_set, measure_glue, measure_head
from stillhouse.evaluation.items import Measured, average, measured
from stillhouse.evaluation.transfer import FAST_FOLDS, FOLDS, measure_task

GLUE_PLACES = {
    "sst2": ("glue/SST-2", "SST-2"),
    "qqp": ("glue/QQP*", "QQP"),
    "mnli": ("glue/MNLI*", "MNLI", "nli/mnli*"),
    "mrpc": ("glue/MRPC", "MRPC", "transfer/MRPC", "downstream/MRPC"),
}
"""Folders of a task, or patterns of them; the first that holds a split of it is read."""

_UNTOLD = "a dev file that does not tell matched from mismatched"
_GLUE_NAMES = {"sst2": "SST-2", "qqp": "QQP", "mnli": "MNLI", "mrpc": "MRPC"}
_MEASURED = {"dev": "", "dev_matched": "-m", "dev_mismatched": "-mm"}


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
    folds = FAST_FOLDS if options.fast else FOLDS

    def measure(model: Encoder) -> Measured:
        found = {task: measure_task(task, splits, model, folds) for task, splits in data.items()}
        figures = {task: each for task, (each, _) in found.items()}
        items = {task: each for task, (_, each) in found.items()}
        if options.final:
            items["Avg"] = {"accuracy": average(each["accuracy"] for each in items.values())}
            figures["Avg"] = {"accuracy": items["Avg"]["accuracy"].figure()}
        return Measured(figures, items)

    absent = [task for task in TASKS if task not in there]
    notes = missing("files of", absent, TRANSFER[0])
    if absent:
        notes += ("SentEval's data/get_transfer_data.bash fetches what is missing",)
    notes += (f"{folds} folds, SentEval's setting for prototypes",) if options.fast else ()
    paths = [path for splits in there.values() for each in splits.values() for path in each]
    known = {path.name: sha256_of(path) for path in paths}
    opens = opened(options, known) if any(task not in BY_CLASS for task in there) else ""
    return itemised(measure, notes, opens=opens)


def glue(root: str, options: Options) -> Benchmark:
    """SST-2, QQP, MNLI-m/mm and MRPC on dev: accuracy and F1 × 100, tuned, untuned, by a head."""
    sets: dict[str, GlueSet] = {}
    notes: list[str] = []
    for task in GLUE_PLACES:
        splits = _glue_splits(root, task)
        fit, others = splits.pop("train", []), splits or {"dev": []}
        for split, rows in others.items():
            if fit or rows:
                name = _GLUE_NAMES[task] + _MEASURED[split]
                sets[name], found = glue_set(task, fit if rows else [], rows or fit)
                without = [f"no {kind} file" for kind, there in (("train", fit), ("dev", rows)) if not there]
                without += [_UNTOLD] if name == "MNLI" and rows else []
                notes += [f"{name}: {note}" for note in (*without, *found)]
    require(
        bool(sets),
        "GLUE's files lie under the data root",
        root=root,
        remedy="Put its folders (SST-2, QQP, MNLI, MRPC), from gluebenchmark.com, into glue there.",
    )

    def measure(checked: Checked) -> Measured:
        scorer = checked.model if hasattr(checked.model, "score") else None
        return measured(
            {
                name: measure_glue(data, checked) | (measure_head(data, scorer) if scorer else {})
                for name, data in sets.items()
            }
        )

    there = {data.task for data in sets.values()}
    absent = missing("files of", [_GLUE_NAMES[task] for task in GLUE_PLACES if task not in there], "glue")
    return itemised(measure, (*absent, *notes), across=False)


def _glue_splits(root: str, task: str) -> dict[str, list[Row]]:
    """The rows of a task's splits that are there, none of them a test split."""
    found: dict[str, list[Row]] = {}
    folders = (folder for place in GLUE_PLACES[task] for folder in sorted(Path(root).glob(place)))
    for folder in folders:
        for split in ("train", *_MEASURED):
            names = GLUE[task].files.get(split, ())
            if any((folder / name).is_file() for name in names):
                found[split] = read_task(resolve_task(task, folder, split))
        if found:
            break
    senteval = task_files(root, "SST-2", final=False) if task == "sst2" and "train" not in found else None
    if senteval:
        train = read_tasks("SST-2", {"train": senteval["train"]})["train"]
        rows = zip(train.sides[0], train.labels_N.tolist(), strict=True)
        found["train"] = [Row(text, None, label) for text, label in rows]
    return found
