"""Held-out texts stay held out, whatever else the corpus contains."""

from collections.abc import Iterator

import pytest

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora import splits
from stillhouse.corpora.splits import split_table
from stillhouse.corpora.tables import Texts, open_texts, write_texts
from stillhouse.values.data import TextTable


def texts_of(workspace: Workspace, table: TextTable) -> list[str]:
    texts = open_texts(workspace, table)
    return texts[range(len(texts))]


def test_the_parts_are_disjoint_and_whole(workspace: Workspace) -> None:
    table = write_texts(workspace, "t", (f"Sentence number {i}." for i in range(1000)))
    train, dev, test = (
        set(texts_of(workspace, part)) for part in split_table(workspace, table, held_out=100)
    )
    assert not train & dev and not train & test and not dev & test
    assert len(train | dev | test) == 1000
    assert 60 < len(dev) < 140 and 60 < len(test) < 140


def test_the_texts_are_read_once(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    texts = write_texts(workspace, "words", [f"text {row}" for row in range(100)])

    class Counted(Texts):
        def __iter__(self) -> Iterator[str]:
            for text in super().__iter__():
                read.append(text)
                yield text

    monkeypatch.setattr(splits, "open_texts", lambda workspace, table: Counted(workspace.path(table)))
    split_table(workspace, texts, held_out=20)
    assert len(read) == 100


def test_a_second_call_returns_the_same_split(workspace: Workspace) -> None:
    table = write_texts(workspace, "t", (f"Sentence number {i}." for i in range(200)))
    assert split_table(workspace, table) == split_table(workspace, table)


def test_too_few_texts_are_refused(workspace: Workspace) -> None:
    table = write_texts(workspace, "t", ["One.", "Two."])
    with pytest.raises(BadInput, match="at least 50 texts"):
        split_table(workspace, table)
