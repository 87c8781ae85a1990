"""The barrier between what measures and what trains: no text that an evaluator measures with is trained on.

Every evaluator of an experiment declares its texts. A text to train on is barred if it equals one of them or
a sentence of one (see `dedup_key`), or if one of its own sentences does that has at least 5 words, or 8
characters of a script without blanks. A shorter sentence, such as "See also.", bars no text that says more.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import chain, compress
from typing import Any

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput
from stillhouse.core.types import IntArray
from stillhouse.corpora.read_once import note_path, read_once
from stillhouse.corpora.reading.cleaning import clean, dedup_key, split_sentences
from stillhouse.corpora.reading.languages import recognised
from stillhouse.corpora.reading.rows import Rejected
from stillhouse.corpora.tables import open_examples, open_texts, restrict, write_rows, write_texts
from stillhouse.values.data import AllRows, Examples, TextTable

VERSION = 3
LEAST_WORDS, LEAST_CHARACTERS = 5, 8
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_GOES_ON = re.compile(r"[^\w\s.,'’\"“”()\[\]{}/:=*+<>|`#&%$@~^\\-]\W*\w|\.[^\w\s]*\s+\S")
"""A mark that may end a sentence, and more text after it."""


class Barrier:
    """Texts that an experiment measures with, by evaluator, and the number left out of training for each.

    Attributes:
        tables: The texts of each evaluator.
        left_out: What was left out so far: rows in a word to evaluator to number.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.tables: dict[str, tuple[TextTable, ...]] = {}
        self.left_out: dict[str, Counter[str]] = {}

    def declare(self, evaluator: str, texts: Iterable[str | TextTable]) -> None:
        """Bar the texts that an evaluator measures with: texts, or tables of them."""
        given = list(texts)
        tables = [each for each in given if isinstance(each, TextTable)]
        bare = [clean(each) for each in given if isinstance(each, str)]
        tables += [write_texts(self.workspace, f"measured-{evaluator}", bare)] if bare else []
        self.tables[evaluator] = tuple(dict.fromkeys((*self.tables.get(evaluator, ()), *tables)))
        self.__dict__.pop("_evaluators", None)

    @property
    def signature(self) -> dict[str, Any]:
        """Everything that the barred texts depend on."""
        tables = {name: [table.sha256 for table in tables] for name, tables in self.tables.items()}
        return {"version": VERSION, "tables": tables}

    @cached_property
    def _evaluators(self) -> dict[bytes, str]:
        """The keys of all texts and of their sentences; what several measure with is the first one's."""
        known: dict[bytes, str] = {}
        for name, tables in self.tables.items():
            for table in tables:
                texts = open_texts(self.workspace, table)
                language = recognised(texts)
                for text in texts:
                    for part in (text, *_sentences(text, language)):
                        known.setdefault(dedup_key(part), name)
        return known

    def bars(self, text: str, language: str = "", *, but: str = "") -> str:
        """Name an evaluator but ``but`` that measures with a cleaned text or a sentence of it; else empty."""
        if not self.tables:
            return ""
        told = (sentence for sentence in _sentences(text, language) if is_telling(sentence))
        named = (self._evaluators.get(dedup_key(part), but) for part in chain([text], told))
        return next((name for name in named if name != but), "")

    def checking(self, counts: Counter[str]) -> Callable[[str, str], str | Rejected]:
        """Make what rejects the barred ones of cleaned texts of a language, and counts them by evaluator."""

        def check(text: str, language: str) -> str | Rejected:
            name = self.bars(text, language)
            counts.update([name] if name else [])
            return Rejected(text, f"measured by {name}") if name else text

        return check

    def report(self, what: str, counts: Mapping[str, int]) -> None:
        """Say how many rows of a kind, such as ``texts``, are left out, by evaluator, and remember it."""
        if self.tables and (what not in self.left_out or any(counts.values())):
            self.left_out.setdefault(what, Counter()).update(counts)
            each = ", ".join(f"{name} {counts.get(name, 0):,}" for name in self.tables)
            say(f"  {what} left out, since they measure: {sum(counts.values()):,} ({each})")

    def without_texts(self, table: TextTable) -> TextTable:
        """Leave barred texts out of a table; see `without`."""
        return self.without(Examples({"text": table}, AllRows(), table.label), "texts").columns["text"]

    def without(self, examples: Examples, what: str, *, but: str = "") -> Examples:
        """Leave out the rows that name a barred text, and those texts; the result is cached.

        The evaluator ``but`` does not count. The rows are returned as they are if none is barred.

        Raises:
            BadInput: If no row would remain.
        """
        if not self.tables:
            return examples
        signature = {"source": examples.fingerprint, "barrier": self.signature} | (
            {"but": but} if but else {}
        )
        note = note_path(self.workspace, f"{examples.label}-kept", signature)
        made = read_once(self.workspace, note, lambda: self._kept(examples, what, but))
        self.report(what, made["left_out"])
        kept: Examples | None = made["kept"]
        return kept or examples

    def _kept(self, examples: Examples, what: str, but: str) -> dict[str, Any]:
        """The rows that name no barred text, None for all of them, and the numbers of the others."""
        workspace, places = self.workspace, {"": 0, **{name: at + 1 for at, name in enumerate(self.tables)}}
        barred: dict[TextTable, IntArray] = {}
        for table in dict.fromkeys(examples.columns.values()):
            texts = open_texts(workspace, table)
            language = recognised(texts)
            names = (self.bars(text, language, but=but) for text in texts)
            barred[table] = np.array([places[name] for name in names])
        rows = open_examples(workspace, examples)
        sides = [barred[examples.columns[name]][ids].reshape(len(ids), -1) for name, ids in rows.ids.items()]
        by_N = np.concatenate(sides, axis=1).max(axis=1)
        counts = {name: int((by_N == place).sum()) for name, place in places.items() if name}
        if by_N.all():
            raise self.refusal(what, counts)
        if not by_N.any():
            return {"kept": None, "left_out": counts}
        rest, smaller, moved = restrict(rows, np.flatnonzero(by_N == 0)), {}, {}
        for table, place_N in barred.items():
            kept_texts = compress(open_texts(workspace, table), place_N == 0)
            smaller[table] = write_texts(workspace, table.label, kept_texts, deduplicate=False)
            moved[table] = np.cumsum(place_N == 0) - 1
        columns = {name: smaller[table] for name, table in examples.columns.items()}
        ids = {name: moved[examples.columns[name]][each] for name, each in rest.ids.items()}
        label = f"{examples.label}-kept"
        kept = write_rows(workspace, columns, ids, label, rest.notes, rest.values)
        return {"kept": kept, "left_out": counts}

    def refusal(self, what: str, counts: Mapping[str, int]) -> BadInput:
        """Return the error for a case in which nothing is left to train on."""
        each = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
        return BadInput(
            f"there must be enough {what} that the experiment does not measure with, but too few are left to "
            f"train on after those that measure were left out: {each}. Give other {what}."
        )


def is_telling(sentence: str) -> bool:
    """Return whether a sentence is long enough to tell which text it comes from."""
    words, characters = sentence.count(" ") + 1, len(_UNSPACED.findall(sentence))
    return words >= LEAST_WORDS or characters >= LEAST_CHARACTERS


def _sentences(text: str, language: str) -> list[str]:
    """The sentences of a cleaned text, none where it is but one."""
    return split_sentences(text, language) if _GOES_ON.search(text) else []
