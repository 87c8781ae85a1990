"""What a command reads and makes, counted on its own texts: rows, tokens, bytes."""

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.errors import require
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.corpora.reading.rows import PACKED
from stillhouse.corpora.reading.sources import hub_name, list_files
from stillhouse.corpora.tables import open_texts, sample_of
from stillhouse.experiments.embedding import Embedding
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Preparation, Prepared
from stillhouse.experiments.shares import examples_of
from stillhouse.experiments.unread import Unread
from stillhouse.teachers.loading import tokenizer_of
from stillhouse.teachers.weights import on_this_machine
from stillhouse.training.table import student_reader
from stillhouse.values.data import Collection, Examples, Model, Store, TextTable, TokenTable, stores_in
from stillhouse.values.data import Teacher as AnyTeacher
from stillhouse.values.setting import Setting
from stillhouse.values.stage import DevSuite, Stage

SAMPLE = 20_000
"""Texts that are read of a large corpus."""
COUNTED = 200_000
"""Texts of a table that are tokenised whole; of more, `SAMPLE` are."""
_HEAD_BYTES = 4_000_000


@dataclass(frozen=True)
class Counted:
    """An experiment's data, as far as it was read to be counted.

    Attributes:
        prepared: What a plan is made from.
        stores: The teacher's vectors that the command makes or finds.
        workspace: Where the texts were read: the workspace itself, or a folder that is removed again.
        factor: How many times as many texts to distil on there are as were read.
        seconds: Seconds that reading took.
    """

    prepared: Prepared
    stores: tuple[Store, ...]
    workspace: Workspace
    factor: float
    seconds: float

    @property
    def share(self) -> float:
        """Share of the texts to distil on that was read."""
        return min(1.0, 1.0 / self.factor)

    def times(self, table: TextTable) -> float:
        """How many times as many rows a table has in truth."""
        source = self.prepared.setting.get(Sentences)
        main = [] if source is None else [store.texts for store in stores_in(source.store)]
        return self.factor if table in main else 1.0

    def rows(self, table: TextTable) -> int:
        """Number of rows of a table, in truth or estimated."""
        return round(self.times(table) * len(open_texts(self.workspace, table)))

    def tokens(self, table: TextTable, model: Model, max_length: int, prompt: str = "") -> float:
        """Number of tokens of a table; of a large one estimated from evenly spread texts."""
        rows = len(open_texts(self.workspace, table))
        count = rows if rows <= COUNTED else SAMPLE
        texts = sample_of(self.workspace, table, count)[1]
        ids, _ = FastTokenizer(Path(model.path), max_length)([prompt + text for text in texts])
        return self.rows(table) * len(ids) / max(1, len(texts))


@contextlib.contextmanager
def counted(
    experiment: Experiment,
    workspace: Workspace,
    teacher: AnyTeacher,
    device: str,
    *,
    refresh: bool = False,
    unread: Unread | None = None,
) -> Iterator[Counted]:
    """Read an experiment's data to count it; what is small is kept in the workspace, as by its run.

    Args:
        experiment: The experiment.
        workspace: Its workspace.
        teacher: Its teacher.
        device: Where teacher and students run.
        refresh: Whether corpora are read again.
        unread: What the command does not make.

    Raises:
        BadInput: The data cannot be read, or the rows of a large corpus cannot be estimated.
    """
    began = time.monotonic()
    skipped = unread or Unread()
    where = Embedding(local=True, device=device)
    context = Preparation(
        experiment, workspace, where, refresh, unread=skipped, found=teacher, measures=False
    )
    source = experiment.source
    if not isinstance(source, Sentences) or source.is_pydocs or source.at_hand(context):
        prepared = context.sized()
        yield Counted(prepared, tuple(context.stores), workspace, 1.0, time.monotonic() - began)
        return
    with tempfile.TemporaryDirectory(prefix="stillhouse-") as folder:
        scratch = Workspace(Path(folder) / "runs")
        scratch.claim()
        few, wanted = _smaller(source, Path(folder))
        say(f"  reading {SAMPLE:,} texts of {source.described} at most, to estimate the rest")
        part = changed(experiment, few)
        context = Preparation(part, scratch, where, unread=skipped, found=teacher, measures=False)
        prepared = context.sized()
        seconds = time.monotonic() - began
        yield Counted(
            prepared, tuple(context.stores), scratch, _times(prepared, scratch, source, wanted), seconds
        )


def _times(prepared: Prepared, workspace: Workspace, source: Sentences, wanted: float) -> float:
    """How many times as many texts to distil on there are as were read.

    As many are held out of few texts as of many.

    Args:
        prepared: What was made of the texts that were read.
        workspace: Holds them.
        source: Their source, which says how many are held out for dev and for test each.
        wanted: How many times as many texts there are in all.
    """
    main = {store.texts for store in stores_in(prepared.setting[Sentences].store)}
    read = sum(len(open_texts(workspace, table)) for table in main)
    # A split sets apart a fifth at most for either.
    apart = min(2 * source.held_out, read * 2 // 3)
    total = wanted * (read + apart)
    return ((min(total, source.count) if source.count else total) - apart) / read


def _smaller(source: Sentences, folder: Path) -> tuple[dict[str, Any], float]:
    """What makes a large corpus small, and how many times as many texts it has."""
    corpus = source.corpus
    stream = hub_name(corpus) is not None or "://" in corpus
    files = [] if stream or source.sources else list_files(corpus)[1]
    largest = Path(max(files, key=lambda file: file.size).path) if files else None
    if largest is None or largest.suffix in (*PACKED, ".parquet", ".arrow"):
        require(
            bool(source.count),
            "the number of texts must be known to plan with this corpus"
            if largest is None
            else "the number of texts must be known to plan with compressed files",
            remedy="Give --sentences N.",
            **({"corpus": corpus} if largest is None else {"file": largest.name}),
        )
        few = min(SAMPLE, source.count or 0)
        return {"sentences.count": few}, (source.count or 0) / few
    with largest.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    head = head[: head.rfind(b"\n") + 1] or head
    place = folder / largest.name
    place.write_bytes(head)
    times = sum(file.size for file in files) / len(head)
    return {"sentences.corpus": str(place), "sentences.count": None}, times


@dataclass(frozen=True)
class TextCount:
    """Texts that a command reads.

    Attributes:
        label: Name of the table.
        what: Whose tokens were counted: the teacher's or the student's.
        rows: Number of texts.
        tokens: Number of tokens.
    """

    label: str
    what: str
    rows: int
    tokens: int


def tables_to_embed(known: Counted, workspace: Workspace) -> list[tuple[Store, TextCount]]:
    """The stores that are not finished, with the texts of each and the teacher's tokens."""
    found = []
    for store in known.stores:
        if known.workspace is workspace and workspace.finished(store):
            continue
        tokens = 0.0
        if isinstance(store.teacher, Model):
            local = on_this_machine(store.teacher)
            tokens = known.tokens(store.texts, local, store.max_length, store.prompt)
        count = TextCount(store.label, "teacher", known.rows(store.texts), round(tokens))
        found.append((store, count))
    return found


def token_tables(known: Counted, stages: Sequence[Stage]) -> list[tuple[TokenTable, int, int]]:
    """The token tables that stages read, each once, with rows and tokens."""
    tables: dict[str, TokenTable] = {}
    for stage in stages:
        reader = student_reader(stage, tokenizer_of(stage))
        tables |= {table.fingerprint: table for table in reader.tables(stage.examples).values()}
    found = []
    for table in tables.values():
        prompt = table.prompts[0][1] if table.prompts else table.prompt
        tokens = known.tokens(table.texts, table.tokenizer, table.max_length, prompt)
        found.append((table, known.rows(table.texts), round(tokens)))
    return found


def suite_tokens(known: Counted, suite: DevSuite, stage: Stage) -> int:
    """Tokens that the student of a stage encodes for a suite; evaluators of other texts count nothing."""
    model = tokenizer_of(stage)
    total = 0.0
    for evaluator in suite.evaluators:
        pairs = evaluator.kwargs.get("pairs")
        for value in evaluator.kwargs.values():
            for table, most in _read_by(value, pairs):
                rows = known.rows(table)
                total += known.tokens(table, model, stage.max_length) * min(
                    1.0, (most or rows) / max(1, rows)
                )
    return round(total)


def _read_by(value: Any, pairs: int | None) -> Iterator[tuple[TextTable, int | None]]:
    """Tables that an argument of an evaluator stands for, each with the most texts that are read of it."""
    if isinstance(value, Collection):
        yield value.queries, None
        yield value.passages, None
    elif isinstance(value, Examples):
        yield from ((table, None) for table in value.columns.values())
    elif isinstance(value, Store):
        yield value.texts, pairs


def with_rows(setting: Setting, known: Counted) -> Setting:
    """The setting with the true number of rows, of which epochs are passes."""
    sentences, rows = setting.get(Sentences), dict(setting.rows)
    for value in setting.data.values():
        for examples in examples_of(value):
            if examples.fingerprint in rows:
                table = next(iter(examples.columns.values()))
                rows[examples.fingerprint] = round(known.times(table) * rows[examples.fingerprint])
    if sentences is not None:
        there = round(sentences.rows * known.factor)
        setting = setting.having(Sentences, dataclasses.replace(sentences, rows=there))
    return dataclasses.replace(setting, rows=rows)


def text_bytes(known: Counted, tables: Sequence[TextTable]) -> Mapping[TextTable, float]:
    """Bytes of the tables of texts."""
    found = {}
    for table in tables:
        folder = known.workspace.path(table)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        found[table] = size * known.times(table)
    return found
