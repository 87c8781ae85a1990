"""What readers say that they took a source for: ten files of different kinds, and again from the cache."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.corpus import ReadOptions
from stillhouse.corpora.reading.ingest import ingest
from stillhouse.corpora.reading.labelled import read_labelled, read_scored
from stillhouse.corpora.reading.parallel import ParallelCorpus
from stillhouse.corpora.reading.schema import Schema
from stillhouse.corpora.reading.translations import write_parallel
from stillhouse.corpora.reading.understood import Understood, recorded, restored

ENGLISH = ["Iron rusts when it meets the rain.", "The bees dance for the others.", "This is about the sea."]
GERMAN = ["Das Eisen rostet im Regen.", "Die Bienen tanzen für die anderen.", "Es geht um das Meer."]


def zstd(given: bytes) -> bytes:
    return bytes(pa.compress(given, codec="zstd", asbytes=True))


def corpus(options: ReadOptions = ReadOptions()) -> Any:  # noqa: B008
    return lambda workspace, path: ingest(workspace, path, options)


def translated(**more: Any) -> Any:
    schema = Schema(owner="parallel", **more)
    return lambda workspace, path: write_parallel(
        workspace, [ParallelCorpus(path, language="de", schema=schema)]
    )


def written(folder: Path, name: str, content: str) -> str:
    packs: dict[str, Callable[[bytes], bytes]] = {"zst": zstd, "gz": gzip.compress}
    pack = packs.get(name.rpartition(".")[2], bytes)
    (folder / name).write_bytes(pack(content.encode()))
    return str(folder / name)


TEXTS = "id\ttext\n" + "".join(f"{i}\t{'' if i else chr(34)}{text}\n" for i, text in enumerate(ENGLISH))
SEVERAL = 'text,n\n"Iron rusts\nin the rain.",1\n"The bees dance.",2\n'
SCORED = {"query": "q", "positive": "right", "negative": "wrong", "score": 2.5}
SIDES = list(zip(ENGLISH, GERMAN, strict=True))
NLI = [("Bees dance.", "They do.", 1), ("Bees dance.", "They do not.", 0), ("Bees dance.", "", 2)]


@each_row(
    ("name", "content", "read", "lines"),
    [
        (
            "a.tsv.zst",
            TEXTS,
            corpus(),
            [
                "a-tsv: TSV (quotation marks are text, zstd), English; 3 rows read: 3 kept, 0 duplicates, "
                "0 set aside; not used: id",
                '  text      <- text         "Iron rusts when it meets the rain.',
            ],
        ),
        (
            "a.csv",
            SEVERAL,
            corpus(),
            [
                "a: CSV (delimiter ','), English; 2 rows read: 2 kept, 0 duplicates, 0 set aside; "
                "1 rows span several lines; not used: n",
                "  text      <- text         Iron rusts in the rain.",
            ],
        ),
        (
            "a.txt.gz",
            "\n".join([*GERMAN, GERMAN[0], ""]),
            corpus(),
            ["a: text, one per line (gzip), German; 4 rows read: 3 kept, 1 duplicates, 0 set aside"],
        ),
        (
            "a.csv",
            "Iron rusts.;4\nBees dance.;2\n",
            corpus(ReadOptions(schema=Schema("text: 1", positive="2 >= 3", header="no", owner="sentences"))),
            [
                "a: CSV (delimiter ';', no header); 2 rows read: 1 kept, 0 duplicates, "
                "1 not 2 >= 3 (not used); ",
                "  text      <- 1            Iron rusts.",
            ],
        ),
        (
            "a.jsonl",
            "".join(json.dumps({"text": f"text {i}"}) + "\n" for i in range(50)),
            corpus(ReadOptions(limit=9)),
            ["a: JSON; 9 of 50 rows, drawn by hash, 0 set aside", "  text      <- text         text "],
        ),
        (
            "n.jsonl",
            "".join(json.dumps(dict(zip(("premise", "hypothesis", "label"), row))) + "\n" for row in NLI),  # noqa: B905
            lambda workspace, path: read_labelled(
                workspace,
                path,
                negatives=1,
                schema=Schema(labels="0: contradiction, 1: entailment, 2: neutral"),
            ),
            [
                "n: JSON, English; 3 rows read: 1 kept, 0 duplicates, 1 contradiction (hard negatives), "
                "1 without a sentence; labels 1 (entailment): 1, 0 (contradiction): 1, 2 (neutral): 1",
                "  query     <- premise      Bees dance.",
                "  passage   <- hypothesis   They do.",
                "  label     <- label",
            ],
        ),
        (
            "s.jsonl",
            json.dumps(SCORED) + "\n",
            lambda workspace, path: read_scored(workspace, path),
            [
                "s: JSON; 1 rows read: 1 kept, 0 duplicates, 0 set aside; 1 hard negatives each",
                "  query     <- query        q",
                "  positive  <- positive",
                "  negative  <- negative",
                "  score     <- score",
            ],
        ),
        (
            "s.csv",
            "frage,gut,schlecht,note\nq,right,wrong,2.5\n",
            lambda workspace, path: read_scored(
                workspace,
                path,
                schema=Schema(
                    "query: frage, positive: gut, negatives: schlecht, score: note", owner="scores"
                ),
            ),
            [
                "s: CSV (delimiter ','); 1 rows read: 1 kept, 0 duplicates, 0 set aside; 1 hard negatives",
                "  query     <- frage        q",
            ],
        ),
        (
            "p.tsv",
            "English\tGerman\n" + "".join(f"{a}\t{b}\n" for a, b in SIDES),
            translated(),
            [
                "p: columns with a header, delimiter '\\t', en-de; 3 rows read: 3 kept, 0 duplicates",
                "  source    <- English      Iron rusts when it meets the rain.",
                "  target    <- German       Das Eisen rostet im Regen.",
            ],
        ),
        (
            "p.tsv",
            "".join(f"{i}\t{a}\t{i + 7}\t{b}\n" for i, (a, b) in enumerate(SIDES)),
            translated(),
            [
                "p: columns with no header, delimiter '\\t', en-de; 3 rows read: 3 kept, 0 duplicates, "
                "0 set aside; not used: 1, 3",
                "  source    <- 2            Iron rusts when it meets the rain.",
            ],
        ),
    ],
)
def test_what_was_read_is_said_and_adds_up(
    workspace: Workspace, tmp_path: Path, name: str, content: str, read: Any, lines: list[str]
) -> None:
    source = written(tmp_path, name, content)
    with recorded() as found:
        read(workspace, source)
    (understood,) = found
    for line, expected in zip(understood.lines(), lines, strict=False):
        assert line.startswith(expected)
    set_aside = sum(understood.aside.values())
    assert understood.limit or understood.read == understood.kept + understood.duplicates + set_aside
    assert restored(json.loads(json.dumps(understood.noted()))) == understood


def test_it_is_said_again_from_the_cache(workspace: Workspace, tmp_path: Path) -> None:
    source = written(tmp_path, "a.tsv.zst", TEXTS)
    said: list[list[Understood]] = []
    for _ in range(2):
        with recorded() as found:
            ingest(workspace, source, ReadOptions())
        said.append(found)
    assert said[0] == said[1] and len(said[0]) == 1


@each_row(
    ("columns", "header", "expected"),
    [
        ("", "", [("Hallo da", "Hi there")]),
        ("source: 2, target: 1", "", [("Hi there", "Hallo da")]),
        ("source: 3, target: 1", "", "must have the column '3'"),
        ("", "yes", "at least one usable pair"),
    ],
)
def test_columns_say_which_side_is_which(
    tmp_path: Path, workspace: Workspace, columns: str, header: str, expected: Any
) -> None:
    from stillhouse.corpora.reading.parallel import read_parallel

    source = written(tmp_path, "p.tsv", "Hallo da\tHi there\n")
    given = ParallelCorpus(source, language="de", schema=Schema(columns, header=header, owner="parallel"))
    if isinstance(expected, str):
        with pytest.raises(BadInput, match=expected):
            write_parallel(workspace, [given])
        return
    assert list(read_parallel(given)) == expected


def test_sides_that_are_the_wrong_way_round_are_refused(tmp_path: Path, workspace: Workspace) -> None:
    source = written(tmp_path, "p.tsv", "".join(f"{b}\t{a}\n" for a, b in SIDES))
    with pytest.raises(BadInput, match=r"must be in German, but its sources are.*parallel\.columns"):
        write_parallel(workspace, [ParallelCorpus(source, language="de")])


def test_what_yaml_makes_of_no_is_understood() -> None:
    from stillhouse.experiments.fields import experiment_of

    given = {"corpus": "a.txt", "columns": {"text": 2, "unused": ["x"]}, "header": False, "language": False}
    source: Any = experiment_of({"sentences": given}).source
    assert source.schema("sentences").named() == {"text": ["2"], "unused": ["x"]}
    assert (source.header, source.language) == ("no", "no"), "no is Norwegian, too"
