"""One rule for counts: every kind of data, in every form of file, is read whole or drawn from the whole."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace
from stillhouse.corpora.mixing import MixSource, mix_texts
from stillhouse.corpora.reading.corpus import ReadOptions
from stillhouse.corpora.reading.ingest import ingest
from stillhouse.corpora.reading.labelled import read_labelled, read_scored
from stillhouse.corpora.reading.parallel import ParallelCorpus
from stillhouse.corpora.reading.row_limit import Taking, smallest
from stillhouse.corpora.reading.translations import write_parallel
from stillhouse.corpora.tables import open_rows, open_texts
from stillhouse.experiments.data_kind import PYDOCS_PAIRS, PYDOCS_SENTENCES, data_kinds, of_pydocs
from stillhouse.values.data import Examples, TextTable

ROWS, TOPICS = 600, 20
PER_TOPIC = ROWS // TOPICS


def _table(names: str, *, scored: bool = False) -> pd.DataFrame:
    """Rows that are sorted by topic."""
    topics = [(row // PER_TOPIC, row) for row in range(ROWS)]
    frame = pd.DataFrame(
        {name: [f"topic {topic}: the {name} {row}" for topic, row in topics] for name in names.split()}
    )
    return frame.assign(score=1.5) if scored else frame


def _jsonl(frame: pd.DataFrame, path: Path) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    return str(path)


def _plain(frame: pd.DataFrame, folder: Path) -> str:
    (folder / "a.txt").write_text("\n".join(frame["text"]) + "\n")
    return str(folder / "a.txt")


def _zipped(frame: pd.DataFrame, folder: Path) -> str:
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(Path(_jsonl(frame, folder / "b")).read_bytes()))
    return str(folder / "a.jsonl.gz")


def _separated(separator: str, name: str, header: bool) -> Callable[[pd.DataFrame, Path], str]:
    def write(frame: pd.DataFrame, folder: Path) -> str:
        frame.to_csv(folder / name, sep=separator, index=False, header=header)
        return str(folder / name)

    return write


def _parquet(frame: pd.DataFrame, folder: Path) -> str:
    frame.to_parquet(folder / "a.parquet")
    return str(folder / "a.parquet")


def _folder(frame: pd.DataFrame, folder: Path) -> str:
    for part in range(3):
        _jsonl(frame[part * ROWS // 3 : (part + 1) * ROWS // 3], folder / f"{part}.jsonl")
    return str(folder)


def _stream(frame: pd.DataFrame, folder: Path) -> str:
    (folder / "hub").mkdir()
    _jsonl(frame, folder / "hub/a.jsonl")
    return f"hf:{folder / 'hub'}"


CSV, TSV = _separated(",", "a.csv", True), _separated("\t", "a.tsv", True)


def _texts(workspace: Workspace, source: str, count: int | None) -> list[str]:
    return _of(workspace, ingest(workspace, source, ReadOptions(limit=count)))


def _mixed(workspace: Workspace, source: str, count: int | None) -> list[str]:
    mixed = mix_texts(workspace, [MixSource(source, 1)], count=count or 10 * ROWS, held_out=10)
    return [
        text for (part,) in (mixed.train, mixed.dev, mixed.test) if part for text in _of(workspace, part[0])
    ]


def _pairs(workspace: Workspace, source: str, count: int | None) -> list[str]:
    return _queries(workspace, read_labelled(workspace, source, limit=count), "query")


def _scores(workspace: Workspace, source: str, count: int | None) -> list[str]:
    return _queries(workspace, read_scored(workspace, source, limit=count), "query")


def _translations(workspace: Workspace, source: str, count: int | None) -> list[str]:
    return _queries(workspace, write_parallel(workspace, [ParallelCorpus(source, limit=count)]), "source")


def _of(workspace: Workspace, table: TextTable) -> list[str]:
    return list(open_texts(workspace, table))


def _queries(workspace: Workspace, examples: Examples, column: str) -> list[str]:
    return open_texts(workspace, examples.columns[column])[open_rows(workspace, examples)[column]]


KINDS: dict[str, tuple[Any, pd.DataFrame, tuple[Any, ...]]] = {
    "sentences": (_texts, _table("text"), (_plain, CSV, TSV, _parquet, _zipped, _folder, _stream)),
    "source": (_mixed, _table("text"), (_plain, CSV, _parquet, _zipped, _folder)),
    "pairs": (_pairs, _table("query passage"), (CSV, TSV, _parquet, _zipped, _folder, _stream)),
    "scores": (
        _scores,
        _table("query positive negative", scored=True),
        (CSV, TSV, _parquet, _zipped, _folder, _stream),
    ),
    "translations": (_translations, _table("source target"), (_separated("\t", "a.tsv", False), _stream)),
}


@each_row(("kind", "at"), [(kind, at) for kind, (_, _, forms) in KINDS.items() for at in range(len(forms))])
def test_a_number_is_drawn_from_the_whole_and_no_number_takes_all(
    kind: str, at: int, workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read, frame, forms = KINDS[kind]
    folder = tmp_path / "data"
    folder.mkdir()
    source = forms[at](frame, folder)
    every, first = list(frame.iloc[:, 0]), list(frame.iloc[:100, 0])
    assert sorted(read(workspace, source, None)) == sorted(every)
    capsys.readouterr()
    taken = read(workspace, source, 100)
    told = capsys.readouterr().err
    assert len(taken) == len(set(taken)) == 100 and set(taken) <= set(every)
    if forms[at] is _stream:
        assert sorted(taken) == sorted(first) and re.search("the first of the stream|the rest was not", told)
        return
    topics = {text.partition(":")[0] for text in taken}
    assert len(topics) > TOPICS * 3 / 4, "from the whole of the file"
    assert re.search(r"100 of 600 [a-z ]+(, drawn by hash| of )", told), told
    assert set(read(workspace, source, 60)) < set(taken), "a smaller number is a part of it"


def test_a_number_beyond_the_file_changes_nothing(workspace: Workspace, tmp_path: Path) -> None:
    source = _plain(_table("text"), tmp_path)
    assert (
        _texts(workspace, source, ROWS)
        == _texts(workspace, source, 10 * ROWS)
        == list(_table("text")["text"])
    )


def test_no_kind_has_sizes_of_its_own_but_pydocs() -> None:
    for kind in data_kinds().values():
        assert getattr(kind, "count", None) is None, kind.key
    for usual in (PYDOCS_SENTENCES, PYDOCS_PAIRS):
        assert [of_pydocs(count, usual) for count in (None, 0, 7)] == [usual, 0, 7]


def test_equal_rows_count_once() -> None:
    taking = Taking[int](3)
    assert list(taking.of((row % 10 for row in range(5000)), lambda row: b"%d" % row)) == list(
        Taking[int](3).of(range(10), lambda row: b"%d" % row)
    )
    assert (taking.read, taking.taken, taking.partial) == (5000, 3, True)
    again = Taking[int](3, distinct=False)
    assert len(set(again.of((row % 2 for row in range(50)), lambda row: b"%d" % row))) == 1
    assert smallest((f"text {row}" for row in range(9)), 20) == list(range(9))
    assert smallest((f"text {row}" for row in range(900)), 5) != list(range(5))
