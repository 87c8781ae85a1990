"""From ``--task`` and ``--words`` to labelled examples with what selects on them, and to word vectors."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import Workspace, locked
from stillhouse.core.console import say
from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, fingerprint, spec
from stillhouse.corpora.published.glue import TASKS, LabelledData, Row, read_task, resolve_task
from stillhouse.corpora.reading.corpus import list_files
from stillhouse.corpora.reading.sentences import clean
from stillhouse.corpora.tables import open_texts
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.task_rows import augmented_rows, write_task_rows
from stillhouse.plan.data import Examples, Model, TextTable
from stillhouse.plan.setting import LabelledTask
from stillhouse.plan.stage import DevSuite

VERSION = 1
COUNT = "count"
"""In the place of a file of vectors: the words of the texts."""
DIM = 300
"""Of vectors that are not read from a file, as GloVe's."""
MOST_WORDS = 200_000
THRESHOLD_ROWS = 10_000
"""Training rows that the thresholds of untuned vectors are chosen on."""


def task_name(given: str) -> str:
    """``SST-2`` as ``sst2``."""
    return given.lower().replace("-", "")


def task_and_words(
    wanted: Experiment, workspace: Workspace, sentences: TextTable
) -> tuple[LabelledTask | None, Model | None, tuple[Spec[Any], ...]]:
    """What an experiment asks for: labelled texts, word vectors, and what measures the test split."""
    if not wanted.task:
        words = word_vectors(workspace, wanted.words, [sentences], wanted.seed) if wanted.words else None
        return None, words, ()
    task, final = read_labelled_task(workspace, wanted.task, wanted.task_root)
    tables = [sentences, task.examples.columns["text"]]
    return task, word_vectors(workspace, wanted.words, tables, wanted.seed), final


def read_labelled_task(
    workspace: Workspace, given: str, root: str
) -> tuple[LabelledTask, tuple[Spec[Any], ...]]:
    """Training rows, what selects on the dev rows, and what measures the test rows where they are public.

    Args:
        workspace: Where the texts will stand.
        given: The task's name.
        root: The folder of its files.

    Raises:
        BadInput: No such task, or a file of it is missing.
    """
    from stillhouse.evaluation.classification import Classification, CosineThreshold

    task = task_name(given)
    train = resolve_task(task, root, "train")
    splits = TASKS[task].files
    dev = resolve_task(task, root, "dev" if "dev_matched" not in splits else _mnli_dev(root))
    steering = DevSuite((spec(Classification, data=dev),), select=f"{task}_accuracy")
    public = [name for name in splits.get("test", ()) if (Path(root) / name).is_file()]
    final = (spec(Classification, data=resolve_task(task, root, "test")),) if public else ()
    classes, untuned = len(TASKS[task].labels), None
    if TASKS[task].second and classes == 2:
        bare = spec(CosineThreshold, data=dev, fit=train, fit_rows=THRESHOLD_ROWS)
        untuned = DevSuite((bare,), select=f"{task}_cosine_accuracy")
    examples = task_examples(workspace, train)
    return LabelledTask(examples, classes=classes, dev=steering, untuned=untuned), final


def task_examples(workspace: Workspace, data: LabelledData) -> Examples:
    """The rows of a split: columns ``text`` and, for pairs, ``other``; value ``label``.

    A row with an empty text is left out.
    """
    rows = [
        Row(clean(row.first), None if row.second is None else clean(row.second), row.label)
        for row in read_task(data)
    ]
    rows = [row for row in rows if row.first and row.second != ""]
    return write_task_rows(workspace, rows, f"{data.task}-{data.split}", {"task": data.task})


def with_varied_rows(
    task: LabelledTask | None, wanted: Experiment, workspace: Workspace
) -> LabelledTask | None:
    """The task with varied rows, where an experiment says by what words are varied."""
    if task is None or not wanted.wordnet:
        return task
    varied = augmented_rows(
        workspace, task.examples, wanted.wordnet, copies=wanted.augment_copies, most=wanted.augment_rows
    )
    return replace(task, augmented=varied)


def word_vectors(workspace: Workspace, source: str, tables: Sequence[TextTable], seed: int = 0) -> Model:
    """Vectors of the words that stand in some texts: published ones, or random ones that are learned.

    Args:
        workspace: Where the folder will stand.
        source: A file such as GloVe's; `COUNT` or nothing takes the words of the texts.
        tables: The texts.
        seed: Of random rows.

    Raises:
        BadInput: The file is missing or malformed, or has none of the words.
    """
    from stillhouse.corpora.word_vectors import count_words, write_vectors, write_vocabulary
    from stillhouse.teachers.weights import resolve_model

    published = source not in ("", COUNT)
    require(not published or Path(source).is_file(), "the file of word vectors exists", words=source)
    signature = {
        "version": VERSION,
        "source": list_files(source)[1] if published else COUNT,
        "texts": [table.sha256 for table in tables],
        "seed": seed,
    }
    folder = workspace.root / "words" / fingerprint(signature)
    with locked(folder.with_suffix(".lock")):
        if not (folder / "config.json").is_file():  # written last
            counted = count_words(_texts(workspace, tables), limit=0 if published else MOST_WORDS)
            if published:
                write_vectors(source, folder, keep=set(counted), seed=seed)
            else:
                write_vocabulary(counted, folder, dim=DIM, seed=seed)
            say(f"  word vectors for the {len(counted):,} words of the texts in {folder}")
    return resolve_model(str(folder))


def _mnli_dev(root: str) -> str:
    return "dev_matched" if (Path(root) / "dev_matched.tsv").is_file() else "dev"


def _texts(workspace: Workspace, tables: Sequence[TextTable]) -> Iterator[str]:
    for table in tables:
        yield from open_texts(workspace, table)
