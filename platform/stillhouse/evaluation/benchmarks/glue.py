"""SST-2, QQP, MNLI-m/mm and MRPC of GLUE on dev: accuracy and F1 × 100, tuned, untuned and with a head."""

import hashlib
from pathlib import Path

from stillhouse.core.errors import BadInput
from stillhouse.core.types import Scorer
from stillhouse.corpora.published.glue import TASKS, Row, read_task, resolve_task
from stillhouse.corpora.published.sentence_tasks import read_tasks, task_files
from stillhouse.evaluation.benchmark import About, Benchmark, Options, itemised, missing
from stillhouse.evaluation.finite_encoder import FiniteEncoder
from stillhouse.evaluation.glue_probes import GlueSet, glue_set, measure_glue, measure_head
from stillhouse.evaluation.items import Measured, measured

NEEDS_DATA = True
MTEB_TASKS: tuple[str, ...] = ()

PLACES = {
    "sst2": ("glue/SST-2", "SST-2"),
    "qqp": ("glue/QQP*", "QQP"),
    "mnli": ("glue/MNLI*", "MNLI", "nli/mnli*"),
    "mrpc": ("glue/MRPC", "MRPC", "transfer/MRPC", "downstream/MRPC"),
}
"""Folders of a task, as glob patterns; the first folder that holds one of its splits is read."""

_MIXED = "a dev file that does not distinguish matched from mismatched"
_PRINTED = {"sst2": "SST-2", "qqp": "QQP", "mnli": "MNLI", "mrpc": "MRPC"}
_SUFFIXES = {"dev": "", "dev_matched": "-m", "dev_mismatched": "-mm"}


def prepare(root: str, options: Options) -> Benchmark:
    """Read the train and dev splits; GLUE publishes no labels of its test sets."""
    sets: dict[str, GlueSet] = {}
    about: dict[str, About] = {}
    notes: list[str] = []
    for task in PLACES:
        splits = splits_of(root, task)
        fit, measured_splits = splits.pop("train", []), splits or {"dev": []}
        for split, rows in measured_splits.items():
            if fit or rows:
                name = _PRINTED[task] + _SUFFIXES[split]
                sets[name], left_out = glue_set(task, fit if rows else [], rows or fit)
                hashed = hashlib.sha256(repr((fit, rows)).encode("utf-8", "backslashreplace"))
                about[name] = About("dev" if rows else "train", hashed.hexdigest()[:16], "texts or pairs")
                absent = [f"no {kind} file" for kind, part in (("train", fit), ("dev", rows)) if not part]
                absent += [_MIXED] if name == "MNLI" and rows else []
                notes += [f"{name}: {note}" for note in (*absent, *left_out)]
    if not sets:
        raise BadInput(
            f"no files of GLUE under the data root {root!r}. Put its folders (SST-2, QQP, MNLI, MRPC), from "
            "gluebenchmark.com, in glue."
        )

    def measure(checked: FiniteEncoder) -> Measured:
        scorer = checked.model if isinstance(checked.model, Scorer) else None
        return measured(
            {
                name: measure_glue(data, checked) | (measure_head(data, scorer) if scorer else {})
                for name, data in sets.items()
            }
        )

    found = {data.task for data in sets.values()}
    lacking = missing("files of", [_PRINTED[task] for task in PLACES if task not in found], "glue")
    return itemised(measure, (*lacking, *notes), sets=about, across=False)


def splits_of(root: str, task: str) -> dict[str, list[Row]]:
    """Read the train and dev splits of a task that exist."""
    found: dict[str, list[Row]] = {}
    folders = (folder for place in PLACES[task] for folder in sorted(Path(root).glob(place)))
    for folder in folders:
        for split in ("train", *_SUFFIXES):
            names = TASKS[task].files.get(split, ())
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
