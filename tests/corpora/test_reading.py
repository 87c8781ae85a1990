import bz2
import contextlib
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.corpus import ReadOptions, TokenLimit, read_texts
from stillhouse.corpora.reading.rows import Rejected
from stillhouse.corpora.reading.schema import Schema
from stillhouse.corpora.reading.sources import list_files, split_options
from stillhouse.values.data import Model

ROWS = ["The first row is here.", "Second row, naïve café.", "And a third, 東京."]
PLAIN = ReadOptions()


def usable(source: str | Path, options: ReadOptions = PLAIN) -> list[str]:
    return [text for text in read_texts(str(source), options) if isinstance(text, str)]


def rejected(source: str | Path, options: ReadOptions = PLAIN) -> list[tuple[str, str]]:
    read = read_texts(str(source), options)
    return [(row.reason, row.raw) for row in read if isinstance(row, Rejected)]


def write_all_formats(folder: Path) -> list[Path]:
    import pyarrow.parquet as pq

    lines = "".join(row + "\n" for row in ROWS)
    objects = "".join(json.dumps({"id": i, "text": row}) + "\n" for i, row in enumerate(ROWS))
    files = {
        "plain.txt": lines.encode(),
        "windows.txt": lines.replace("\n", "\r\n").encode("utf-8-sig"),
        "zipped.txt.gz": gzip.compress(lines.encode()),
        "zipped_but_does_not_say_so.txt": gzip.compress(lines.encode()),
        "rows.jsonl": objects.encode(),
        "without_suffix": objects.encode(),
        "zipped.jsonl.gz": gzip.compress(objects.encode()),
        "rows.csv": ("id,text\n" + "".join(f'{i},"{row}"\n' for i, row in enumerate(ROWS))).encode(),
        "rows.tsv": ("id\ttext\n" + "".join(f"{i}\t{row}\n" for i, row in enumerate(ROWS))).encode(),
        "wiki_00": ('<doc id="1" url="u" title="A title">\nA title\n\n' + lines + "\n</doc>\n").encode(),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    pq.write_table(pa.table({"id": [0, 1, 2], "text": ROWS}), folder / "rows.parquet")
    return [*(folder / name for name in files), folder / "rows.parquet"]


def test_every_format_gives_the_same_rows(tmp_path: Path) -> None:
    for path in write_all_formats(tmp_path):
        assert usable(path) == ROWS, path.name


def test_a_folder_and_a_glob_read_their_files_by_name(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "b.txt").write_text("Two.\n")
    (tmp_path / "a.txt").write_text("One.\n")
    (tmp_path / "deep" / "c.txt").write_text("Three.\n")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".hidden.txt").write_text("Hidden.\n")
    assert usable(tmp_path) == ["One.", "Two.", "Three."]
    assert usable(tmp_path / "*.txt") == ["One.", "Two."]
    assert usable(tmp_path / "**" / "*.txt") == ["One.", "Two.", "Three."]


def test_other_file_systems_go_through_pyarrow(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One.\n")
    (tmp_path / "b.jsonl").write_text('{"text": "Two."}\n')
    assert usable(f"file://{tmp_path}") == ["One.", "Two."]
    assert usable(f"file://{tmp_path}/*.jsonl") == ["Two."]
    assert usable(f"file://{tmp_path}/*.jsonl?use_mmap=true") == ["Two."]
    assert usable(f"file://{tmp_path}/a.txt") == ["One."]
    with pytest.raises(BadInput, match=r"the corpus .* does not exist"):
        usable(f"file://{tmp_path}/none")


GLOBS = (
    "*.txt",
    "?.txt",
    "[ab].txt",
    "*",
    "**",
    "*/*.txt",
    "**/*.txt",
    "**/deep/*",
    "a*/**/*.txt",
    "**/**/c.txt",
    ".*",
    "**/.hidden.txt",
    ".git/*",
    "none*",
)


@each_row("pattern", GLOBS)
def test_a_remote_glob_matches_what_a_local_one_does(tmp_path: Path, pattern: str) -> None:
    """So `*` does not cross a `/`: the file system lists everything below, and the pattern chooses."""
    for name in ("a.txt", "b.txt", ".hidden.txt", "ab/a.txt", "ab/deep/c.txt", "x/.hidden.txt", ".git/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("A text.\n")

    def listed(source: str) -> list[str]:
        try:
            return [file.path for file in list_files(source)[1]]
        except BadInput:
            return []

    local, remote = listed(f"{tmp_path}/{pattern}"), listed(f"file://{tmp_path}/{pattern}")
    assert remote == local
    assert bool(local) == (pattern not in ("none*", ".*", "**/.hidden.txt")), "the test's files are matched"


@each_row(
    ("source", "address", "options"),
    [
        ("s3://b/a.txt", "s3://b/a.txt", ""),
        ("s3://b/?.txt", "s3://b/?.txt", ""),
        ("s3://b/year=202?/month=1/a.txt", "s3://b/year=202?/month=1/a.txt", ""),
        ("s3://b/year=202?/month=1?/*", "s3://b/year=202?/month=1?/*", ""),
        ("s3://b/part-?.txt?region=eu-west-1", "s3://b/part-?.txt", "?region=eu-west-1"),
        ("s3://b/*?endpoint_override=h:1&scheme=http", "s3://b/*", "?endpoint_override=h:1&scheme=http"),
        ("s3://b/*?endpoint_override=http://h:1/", "s3://b/*", "?endpoint_override=http://h:1/"),
    ],
)
def test_options_of_a_file_system_are_no_wildcards(source: str, address: str, options: str) -> None:
    assert split_options(source) == (address, options)


def test_a_dataset_saved_by_the_datasets_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.jsonl").write_text('{"text": "One."}\n{"text": null}\n{"text": "Two."}\n')
    source = f"hf:{tmp_path / 'set'}::train"
    assert usable(source) == ["One.", "Two."]
    assert rejected(source)[0][0] == "no text"
    with pytest.raises(BadInput, match="body"):
        usable(source, ReadOptions(column="body"))
    with pytest.raises(BadInput, match="must be a data set that can be loaded"):
        usable(f"hf:{tmp_path / 'nothing'}")
    with pytest.raises(BadInput, match="hf:name"):
        usable("hf:a:b:c:d")


def test_running_text_is_cut_into_sentences(tmp_path: Path) -> None:
    text = "It has 3.5 m of rain, e.g. in May. Dr. Smith measured it! Is that so?"
    cut = ["It has 3.5 m of rain, e.g. in May.", "Dr. Smith measured it!", "Is that so?"]
    (tmp_path / "wiki_00").write_text(f'<doc id="1" title="Rain">\nRain\n\n{text}\n</doc>\n')
    (tmp_path / "a.txt").write_text(text + "\n")
    assert usable(tmp_path / "wiki_00") == cut
    assert usable(tmp_path / "wiki_00", ReadOptions(split_sentences=False)) == [text]
    assert usable(tmp_path / "a.txt") == [text]
    assert usable(tmp_path / "a.txt", ReadOptions(split_sentences=True)) == cut


def test_only_the_first_title_line_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "wiki_00").write_text('<doc id="1" title="Rain">\nRain\n\nIt falls.\nRain\n</doc>\n')
    assert usable(tmp_path / "wiki_00") == ["It falls.", "Rain"]


def test_limits(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"One\nOne two\nOne two three four\nOne {'x' * 20_000}\n")
    options = ReadOptions(min_words=2, max_words=3)
    assert usable(tmp_path / "a.txt", options) == ["One two"]
    reasons = [reason for reason, _ in rejected(tmp_path / "a.txt", options)]
    assert reasons == ["fewer than 2 words", "more than 3 words", "more than 20000 characters"]
    assert len(usable(tmp_path / "a.txt", ReadOptions(limit=2))) == 2


def test_undecodable_lines_are_dropped_individually(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"Good.\n" + "caf\xe9\n".encode("latin-1") + b"\nAlso good.\n")
    assert usable(tmp_path / "a.txt") == ["Good.", "Also good."]
    assert [reason for reason, _ in rejected(tmp_path / "a.txt")] == ["not utf-8", "empty"]
    assert usable(tmp_path / "a.txt", ReadOptions(encoding="latin-1")) == ["Good.", "café", "Also good."]


def test_unusable_json_rows_are_rejected_with_a_reason(tmp_path: Path) -> None:
    lines = ['{"text": "Good."}', "{broken", "[1]", '{"other": 1}', '{"text": 3}', "", '{"text": "caf\xe9"}']
    (tmp_path / "a.jsonl").write_bytes("\n".join(lines).encode("latin-1"))
    reasons = [reason for reason, _ in rejected(tmp_path / "a.jsonl")]
    assert usable(tmp_path / "a.jsonl") == ["Good."]
    assert reasons == ["not JSON", "not a JSON object", "no text", "text is not text", "empty", "not utf-8"]


def test_wide_encodings_are_refused_unless_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("One.\nTwo.\n".encode("utf-16"))
    with pytest.raises(BadInput, match=r"a\.txt must be utf-8.*UTF-16 byte order mark.*--encoding"):
        usable(tmp_path / "a.txt")
    assert usable(tmp_path / "a.txt", ReadOptions(encoding="utf-16")) == ["One.", "Two."]


@each_row(
    ("name", "data", "options", "message"),
    [
        ("a.txt", b"\x89PNG\r\n\x00\x00\x01", PLAIN, "zero bytes"),
        ("a.txt", b"", PLAIN, "at least one nonempty file"),
        ("a.txt", b"One.\n", ReadOptions(column="text"), "Omit the column"),
        ("a.csv", b"id,body,kind\n1,x,y\n", PLAIN, "id.*body.*kind.*Say which one"),
        ("a.csv", b"id,body\n1,x\n", ReadOptions(column="boddy"), "Its columns: id, body. Did you mean body"),
        ("a.jsonl", b'{"id": 1, "body": "x"}\n', ReadOptions(column="text"), "Its columns: id, body"),
        ("a.parquet", b"PAR1 but not really", PLAIN, "must be a complete Parquet file"),
        ("a.txt.gz", gzip.compress(b"One.\n" * 9999, mtime=0)[:-40], PLAIN, "must be complete"),
        ("a.csv", b"PK\x03\x04\0\0", PLAIN, "zip archive"),
        ("a.jsonl", b'["One.", "Two."]\n["Three."]\n', PLAIN, "one object per line"),
    ],
)
def test_a_bad_file_is_refused(
    tmp_path: Path, name: str, data: bytes, options: ReadOptions, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput, match=message):
        list(read_texts(str(tmp_path / name), options))


def test_a_parquet_column_of_another_type_is_refused(tmp_path: Path) -> None:
    write_all_formats(tmp_path)
    with pytest.raises(BadInput, match=r"column id of .*rows\.parquet must hold text.*int64"):
        usable(tmp_path / "rows.parquet", ReadOptions(column="id"))
    with pytest.raises(BadInput, match=r"Its columns: id, text\. Did you mean text"):
        usable(tmp_path / "rows.parquet", ReadOptions(column="txt"))


def test_a_missing_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"the corpus .* does not exist"):
        usable(tmp_path / "none.txt")
    with pytest.raises(BadInput, match=r"the corpus .* does not exist"):
        usable(tmp_path / "*.txt")
    with pytest.raises(BadInput, match="at least one file"):
        usable(tmp_path)


@each_row(
    "options",
    [{"min_words": 0}, {"limit": 0}, {"encoding": "utf-9"}, {"max_words": -1}],
)
def test_options_out_of_range(options: dict[str, int]) -> None:
    with pytest.raises(BadInput):
        ReadOptions(**options)  # type: ignore[arg-type]


def test_a_ragged_row_of_csv_is_set_aside_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        'text,label\nOne row.,1\nA row, cut short.,1\nNo label.\n"Good, too.",0\n'
    )
    found = list(read_texts(str(tmp_path / "a.csv"), ReadOptions()))
    assert [row for row in found if isinstance(row, str)] == ["One row.", "Good, too."]
    reasons = [row.reason for row in found if isinstance(row, Rejected)]
    assert reasons[0].startswith("3 fields instead of 2") and reasons[1] == "1 fields instead of 2"


def test_wide_text_without_a_mark_names_the_flag(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Füße\n".encode("utf-16-be") * 3)
    with pytest.raises(BadInput, match=r"--encoding utf-16.*utf-16-le or utf-16-be"):
        list(read_texts(str(tmp_path / "a.txt"), ReadOptions()))


def test_parquet_that_pyarrow_cannot_decode_is_bad_input(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["one row", "two rows"] * 50}), path, compression="none")
    whole = path.read_bytes()
    for at in range(4, len(whole) - 8, 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with contextlib.suppress(BadInput):
            list(read_texts(str(path), ReadOptions()))


OBJECTS = [{"text": f"text {i}"} for i in range(1000)]
QUOTED = ['"' * (i in (10, 900)) + f"text {i}" for i in range(1000)]
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda given: bytes(pa.compress(given, codec="zstd", asbytes=True)),
}
ZST = COMPRESS["zst"]


@each_row(
    ("name", "content", "expected"),
    [
        ("a.tsv", "text\n" + "".join(f"{text}\n" for text in QUOTED), QUOTED),
        (
            "a.csv",
            "id;text\n1;Das ist Satz 1\n2;Das, ja, ist Satz 2\n",
            ["Das ist Satz 1", "Das, ja, ist Satz 2"],
        ),
        ("a.csv", "text\nNA\nNull\nnone\n", ["NA", "Null", "none"]),
        ("a.csv", "First one here.\nSecond one.\n", "looks like data: 'First one here.'"),
        ("a.csv", "iron\nzinc\n", "looks like data: 'iron'"),
        ("a.csv", 'text\n"a" b\n', "row that begins on line 2"),
        ("a.json", json.dumps(OBJECTS), [row["text"] for row in OBJECTS]),
        ("a.json", json.dumps(OBJECTS, indent=2), [row["text"] for row in OBJECTS]),
        ("a.jsonl", '{"title": "T"}\n{"title": "U", "text": "a"}\n', ["a"]),
        ("a.jsonl", '\ufeff{"text": null}\n{"text": NaN}\n{"text": "a"}\n', ["a"]),
        ("a.tsv", "\ufefftext\tid\na\t1\n", ["a"]),
        *((f"a.jsonl.{suffix}", '{"text": "a"}\n', ["a"]) for suffix in COMPRESS),
    ],
)
def test_files_are_read_as_they_are_or_refused(
    tmp_path: Path, name: str, content: str, expected: Any
) -> None:
    pack = COMPRESS.get(name.rpartition(".")[2], bytes)
    (tmp_path / name).write_bytes(pack(content.encode()))
    if isinstance(expected, str):
        with pytest.raises(BadInput, match=expected):
            list(read_texts(str(tmp_path / name), ReadOptions()))
        return
    found = read_texts(str(tmp_path / name), ReadOptions())
    assert [text for text in found if isinstance(text, str)] == expected


def test_the_clone_of_a_data_set_is_its_data_alone(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "data").mkdir()
    for name in ("README.md", ".git/HEAD", "dataset_infos.json", "data/a.jsonl", "data/AA_wiki_00"):
        (tmp_path / name).write_text('{"text": "a"}\n')
    _, files, skipped = list_files(str(tmp_path))
    assert [Path(file.path).name for file in files] == ["AA_wiki_00", "a.jsonl"]
    assert skipped == ["README.md", "dataset_infos.json"]


def stated(columns: str = "", **more: str) -> ReadOptions:
    return ReadOptions(schema=Schema(columns, owner="sentences", **more))


@each_row(
    ("name", "content", "options", "expected"),
    [
        ("a.csv", "First one here.\nSecond one.\n", stated(header="no"), ["First one here.", "Second one."]),
        ("a.csv", "iron\nzinc\n", stated(header="yes"), ["zinc"]),
        ("a.csv", "1|One.\n2|Two.\n", stated("text: 2", header="no"), ["One.", "Two."]),
        ("a.csv", "n;text\n1;a, b\n", stated(delimiter=","), "1 with the delimiter ','"),
        ("a.csv", "n~text\n1~a, b\n", stated(delimiter="~"), ["a, b"]),
        ("a.csv", "text,sentence\na,b\n", stated(), "Say which one holds"),
        ("a.csv", "text,sentence\na,b\n", stated("text: sentence"), ["b"]),
        ("a.csv", "text,sentence\na,b\n", stated("text: sentense"), "Did you mean sentence"),
        ("a.jsonl", '{"text": "a", "n": 4}\n{"text": "b", "n": 1}\n', stated(positive="n >= 2"), ["a"]),
        ("a.txt", "a\n", stated("text: body"), "has no column"),
        ("a.csv", "What is it?,Who?\nIt is this.,Me.\n", stated(), "looks like data: 'What is it"),
        ("a.jsonl", '{"n": "T"}\n' * 101 + '{"n": "U", "text": "a"}\n', stated(), "line 102 .*Say which one"),
        ("a.tsv", "text\tn\none\rtwo\t1\n", stated(), ["one two"]),
    ],
)
def test_fields_settle_what_a_file_does_not_say(
    tmp_path: Path, name: str, content: str, options: ReadOptions, expected: Any
) -> None:
    (tmp_path / name).write_text(content)
    if isinstance(expected, str):
        with pytest.raises(BadInput, match=expected):
            usable(tmp_path / name, options)
        return
    assert usable(tmp_path / name, options) == expected


@each_row(
    ("fields", "message"),
    [
        ({"columns": "txt: a"}, r"sentences\.columns must name roles: text, unused.*Did you mean text"),
        ({"header": "maybe"}, r"sentences\.header in"),
        ({"delimiter": "::"}, "one character, or tab"),
        ({"positive": "good"}, "such as `score >= 4`"),
        ({"labels": "0: bad"}, "must mean one of"),
        ({"language": "klingon"}, "must be a known language"),
    ],
)
def test_fields_that_cannot_be_understood_are_refused(fields: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Schema(**fields, owner="sentences").check()


def test_a_cut_file_is_refused_with_the_last_row(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"text": f"{i} {i * i} {i**3}"}) + "\n" for i in range(20_000))
    for suffix, pack in (
        ("gz", gzip.compress),
        ("bz2", lambda given: bz2.compress(given, 1)),
        ("xz", lzma.compress),
        ("zst", ZST),
    ):
        path = tmp_path / f"a.jsonl.{suffix}"
        path.write_bytes(pack(rows.encode())[:-60])
        with pytest.raises(BadInput, match=rf"a\.jsonl\.{suffix} must be complete.*failed after row \d+"):
            usable(path)


CHINESE = "今天天气很好。我们去公园散步吧！你想一起来吗？当然可以。" * 30


def test_limits_in_words_are_refused_for_text_without_blanks(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(CHINESE + "\n")
    assert usable(tmp_path / "a.txt") == [CHINESE]
    for options in (ReadOptions(min_words=3), ReadOptions(max_words=32, longer="pack")):
        with pytest.raises(BadInput, match=r"a limit in words must be of text with blanks.*Chinese"):
            usable(tmp_path / "a.txt", options)


def test_long_texts_are_packed_and_cut_by_what_the_student_reads(tmp_path: Path, tiny_model: Path) -> None:
    (tmp_path / "a.txt").write_text(CHINESE + "\n")
    limit = TokenLimit(Model("", path=str(tiny_model)), 16, "read this: ")
    packed = usable(tmp_path / "a.txt", ReadOptions(longer="pack", tokens=limit, deduplicate=False))
    assert "".join(packed) == CHINESE and len(packed) > 30
    assert all(limit(text) for text in packed) and not limit(packed[0] + packed[1])
    (beginning,) = usable(tmp_path / "a.txt", ReadOptions(longer="cut", tokens=limit))
    assert CHINESE.startswith(beginning) and limit(beginning) and not limit(CHINESE[: len(beginning) + 1])
