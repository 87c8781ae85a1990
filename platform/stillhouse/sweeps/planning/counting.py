"""Inputs and products of a command, counted on its own texts: rows, tokens, bytes."""

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
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
from stillhouse.experiments.fields import changed
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Preparation
from stillhouse.experiments.shares import examples_of
from stillhouse.teachers.loading import tokenizer_of
from stillhouse.teachers.weights import on_this_machine
from stillhouse.training.in_memory import prompt_of
from stillhouse.training.table import student_reader
from stillhouse.values.data import Examples, Model, Store, TextTable, TokenTable
from stillhouse.values.graph import reached
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

SAMPLE = 20_000
"""Texts that are read of a large corpus."""
COUNTED = 200_000
"""Texts of a table that are tokenised whole; of more, `SAMPLE` are."""
_HEAD_BYTES = 4_000_000


@dataclass(frozen=True)
class Counted:
    """An experiment's data, as far as it was read to be counted.

    Attributes:
        setting: What a plan is made from: named, and counted as far as that can be.
        stores: The teacher's vectors that the command makes or finds.
        workspace: Where the texts were read: the workspace itself, or a folder that is removed again.
        refit: The same for a refit; None where none is asked for.
        factor: How many times as many texts to distil on there are as were read.
        unread_s: Estimated seconds of reading the others.
    """

    setting: Setting
    stores: tuple[Store, ...]
    workspace: Workspace
    refit: Setting | None = None
    factor: float = 1.0
    unread_s: float = 0.0

    def times(self, table: TextTable) -> float:
        """Return how many times as many rows a table has in truth."""
        return self.factor if table in _distilled_on(self.setting) else 1.0

    def rows(self, table: TextTable) -> int:
        """Number of rows of a table, in truth or estimated."""
        return round(self.times(table) * len(open_texts(self.workspace, table)))

    def tokens(self, table: TextTable, model: Model, max_length: int, prompt: str = "") -> int:
        """Number of tokens of a table; of a large one estimated from evenly spread texts."""
        rows = len(open_texts(self.workspace, table))
        texts = sample_of(self.workspace, table, rows if rows <= COUNTED else SAMPLE)[1]
        ids, _ = FastTokenizer(Path(model.path), max_length)([prompt + text for text in texts])
        return round(self.rows(table) * len(ids) / max(1, len(texts)))

    def bytes(self, table: TextTable) -> float:
        """Bytes of a table of texts."""
        files = self.workspace.path(table).rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file()) * self.times(table)


def _distilled_on(setting: Setting) -> list[TextTable]:
    """The tables of the texts to distil on."""
    source = setting.get(Sentences)
    return [] if source is None else [store.texts for store in source.store.stores]


@contextlib.contextmanager
def counted(data: Preparation, asked: Callable[[Preparation], Iterable[object]]) -> Iterator[Counted]:
    """Read an experiment's data to count it; what is small is kept in the workspace, as by its run.

    ``asked`` is what the command makes of it.

    Raises:
        BadInput: The data cannot be read, or the rows of a large corpus cannot be estimated.
    """
    began, source = time.monotonic(), data.experiment.source

    def read(part: Preparation) -> Counted:
        return Counted(part.setting, tuple(reached(Store, *asked(part))), part.workspace, part.refit)

    if not isinstance(source, Sentences) or source.is_pydocs or source.reader.at_hand(data):
        yield read(data)
        return
    with tempfile.TemporaryDirectory(prefix="stillhouse-") as folder:
        scratch = Workspace(Path(folder) / "runs")
        scratch.claim()
        few, times = _smaller(source, Path(folder))
        say(f"  reading {SAMPLE:,} texts of {source.described} at most, to estimate the rest")
        part = changed(data.experiment, few)
        known = read(Preparation(part, scratch, data.embedding, data.refresh, data.read, data.found))
        rows = sum(len(open_texts(scratch, table)) for table in set(_distilled_on(known.setting)))
        # As many are held out of few texts as of many: a fifth at most for dev and for test each.
        apart = min(2 * source.held_out, rows * 2 // 3)
        wanted = times * (rows + apart)
        factor = (min(wanted, source.count or wanted) - apart) / rows
        seconds = (time.monotonic() - began) * max(0.0, factor - 1)
        yield dataclasses.replace(known, factor=factor, unread_s=seconds)


def _smaller(source: Sentences, folder: Path) -> tuple[dict[str, Any], float]:
    """Return the changes that make a large corpus small, and how many times as many texts it has."""
    corpus = source.corpus
    listed = hub_name(corpus) is None and "://" not in corpus and not source.sources
    files = list_files(corpus)[1] if listed else []
    largest = Path(max(files, key=lambda file: file.size).path) if files else None
    if largest is None or largest.suffix in (*PACKED, ".parquet", ".arrow"):
        of = "this corpus" if largest is None else "compressed files"
        rule = f"the number of texts must be known to plan with {of}"
        require(bool(source.count), rule, corpus=corpus, remedy="Give --sentences N.")
        few = min(SAMPLE, source.count or 0)
        return {"sentences.count": few}, (source.count or 0) / few
    with largest.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    head = head[: head.rfind(b"\n") + 1] or head
    place = folder / largest.name
    place.write_bytes(head)
    times = sum(file.size for file in files) / len(head)
    return {"sentences.corpus": str(place), "sentences.count": None}, times


def stores_to_make(known: Counted, workspace: Workspace) -> list[tuple[Store, int]]:
    """The stores that are not finished, with the number of tokens that their teacher reads."""
    found = []
    for store in known.stores:
        if known.workspace is not workspace or not workspace.finished(store):
            model = store.teacher.checkpoint and on_this_machine(store.model)
            tokens = known.tokens(store.texts, model, store.max_length, store.prompt) if model else 0
            found.append((store, tokens))
    return found


def token_tables(known: Counted, stages: Iterable[Stage]) -> list[tuple[TokenTable, int]]:
    """The token tables that stages read, each once, with their number of tokens."""
    tables: dict[str, TokenTable] = {}
    for stage in stages:
        reader = student_reader(stage, tokenizer_of(stage))
        tables |= {table.fingerprint: table for table in reader.tables(stage.examples).values()}
    return [
        (table, known.tokens(table.texts, table.tokenizer, table.max_length, prompt_of(table)))
        for table in tables.values()
    ]


def suite_tokens(known: Counted, stage: Stage) -> float:
    """Tokens that a student encodes for an evaluation; evaluators of other texts count nothing."""
    total = 0.0
    for arguments in (each.kwargs for each in (stage.dev.evaluators if stage.dev else ())):
        for value in arguments.values():
            most = arguments.get("pairs") if value is arguments.get("store") else None
            parts = value.columns if isinstance(value, Examples) else getattr(value, "__dict__", {})
            for table in (each for each in parts.values() if isinstance(each, TextTable)):
                rows = max(1, known.rows(table))
                tokens = known.tokens(table, tokenizer_of(stage), stage.max_length)
                total += tokens * min(1.0, (most or rows) / rows)
    return total


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
