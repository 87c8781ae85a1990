"""Every corpus format through the real command line: reading, embedding and counting."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rows import each_row

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.teachers.store import verify_store
from stillhouse.teachers.store_admin import list_stores

ROWS = [f"The {colour} cat sat on mat number {i}." for i in range(30) for colour in ("red", "blue")]


def text(folder: Path) -> str:
    (folder / "c.txt").write_text("\n".join(ROWS))
    return str(folder / "c.txt")


def json_lines(folder: Path) -> str:
    (folder / "c.jsonl").write_text("".join(json.dumps({"id": 1, "text": row}) + "\n" for row in ROWS))
    return str(folder / "c.jsonl")


def comma_separated(folder: Path) -> str:
    (folder / "c.csv").write_text("id,text\n" + "".join(f'1,"{row}"\n' for row in ROWS))
    return str(folder / "c.csv")


def tab_separated(folder: Path) -> str:
    (folder / "c.tsv").write_text("id\ttext\n" + "".join(f"1\t{row}\n" for row in ROWS))
    return str(folder / "c.tsv")


def parquet(folder: Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ROWS}), folder / "c.parquet")
    return str(folder / "c.parquet")


def wikipedia(folder: Path) -> str:
    document = '<doc id="1" url="u" title="Cats">\nCats\n\n' + "\n".join(ROWS) + "\n</doc>\n"
    (folder / "wiki_00").write_text(document)
    return str(folder / "wiki_00")


def a_folder(folder: Path) -> str:
    (folder / "a.txt").write_text("\n".join(ROWS[:20]))
    (folder / "b.txt.gz").write_bytes(gzip.compress("\n".join(ROWS[20:]).encode()))
    return str(folder)


def a_glob(folder: Path) -> str:
    a_folder(folder)
    (folder / "notes.md").write_text("not this one")
    return f"{folder}/*.txt*"


def a_file_system(folder: Path) -> str:
    return f"file://{text(folder)}"


def a_hub_name(folder: Path) -> str:
    (folder / "data").mkdir()
    lines = "".join(json.dumps({"text": row}) + "\n" for row in ROWS)
    (folder / "data" / "train.jsonl").write_text(lines)
    return f"hf:{folder / 'data'}::train"


FORMS = (
    text,
    json_lines,
    comma_separated,
    tab_separated,
    parquet,
    wikipedia,
    a_folder,
    a_glob,
    a_file_system,
    a_hub_name,
)


def embed(root: Path, corpus: str, teacher: Path, *more: str) -> int:
    flags = [
        "--corpus",
        corpus,
        "--teacher",
        str(teacher),
        "--set",
        "sentences.held_out=10",
        "--sentences",
        "0",
        *more,
    ]
    return main(["embed", "--local", "--root", str(root), "--max-length", "16", *flags])


@each_row("form", FORMS)
def test_every_corpus_format_is_read_and_embedded(
    form: Callable[[Path], str], tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    corpus, root = tmp_path / "corpus", tmp_path / "runs"
    corpus.mkdir()
    report = tmp_path / "report.json"
    assert embed(root, form(corpus), tiny_model, "--json", str(report)) == 0
    stores = list_stores(Workspace(root))
    assert len(stores) == 3 and sum(store.rows for store in stores) == len(ROWS)
    assert all(verify_store(store.path) == [] for store in stores)
    facts: dict[str, Any] = json.loads(report.read_text())
    (understood,) = facts["data"]["sources"]
    assert (understood["read"], understood["kept"], understood["language"]) == (len(ROWS), len(ROWS), "en")
    assert facts["sentences"] == max(store.rows for store in stores) and facts["pairs"] == 0


def test_the_report_accounts_for_every_row(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, root = tmp_path / "c.txt", tmp_path / "runs"
    corpus.write_bytes("\n".join([*ROWS, ROWS[0], "", "  "]).encode() + b"\ncaf\xe9\n")
    assert embed(root, str(corpus), tiny_model) == 0
    output = capsys.readouterr().err
    assert f"64 rows read: {len(ROWS)} kept, 1 duplicates, 2 empty, 1 not utf-8; reasons in " in output
    quarantine = Path(output.partition("reasons in ")[2].partition(";")[0])
    assert "give --encoding" in output
    reasons = [json.loads(line)["reason"] for line in quarantine.read_text().splitlines()]
    assert reasons == ["empty", "empty", "not utf-8"]
    manifest = read_manifest(quarantine.parent)
    assert manifest["input_rows"] == manifest["rows"] + manifest["quarantined"] + manifest["duplicates"]


def test_limits_encoding_and_deduplication_can_be_set(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.txt").write_bytes("\n".join([*ROWS, ROWS[0], "Ein Café."]).encode("latin-1"))
    more = [
        "--set",
        "sentences.encoding=latin-1",
        "--set",
        "sentences.min_words=3",
        "--set",
        "sentences.deduplicate=false",
    ]
    assert embed(tmp_path / "runs", str(tmp_path / "c.txt"), tiny_model, *more) == 0
    assert "62 rows read: 61 kept, 0 duplicates, 1 fewer than 3 words" in capsys.readouterr().err


def test_wikipedia_is_split_into_sentences(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paragraphs = "\n".join(" ".join(ROWS[start : start + 6]) for start in range(0, len(ROWS), 6))
    (tmp_path / "wiki_00").write_text(f'<doc id="1" url="u" title="Cats">\nCats\n\n{paragraphs}\n</doc>\n')
    assert embed(tmp_path / "runs", str(tmp_path / "wiki_00"), tiny_model) == 0
    assert f"WikiExtractor, English; {len(ROWS)} rows read: {len(ROWS)} kept" in capsys.readouterr().err


def test_the_texts_of_every_variant_of_a_file_are_embedded(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.txt").write_text("\n".join(f"A dog barks {i} times." for i in range(70)))
    path = tmp_path / "file.yaml"
    path.write_text(
        f"""
method: mse
teacher: {{name: {tiny_model}}}
max_length: 16
sentences: {{count: 0, held_out: 10}}
variants:
  cats: {{sentences: {{corpus: {text(tmp_path)}}}}}
  dogs: {{sentences: {{corpus: {tmp_path}/other.txt}}}}
scale:
  small: {{variants: {{dogs: {{sentences: {{held_out: 5}}}}}}}}
"""
    )
    root, report = tmp_path / "runs", tmp_path / "report.json"
    flags = ("--local", "--root", str(root), "--json", str(report))
    assert main(["embed", "--file", str(path), *flags]) == 0
    told = json.loads(report.read_text())
    assert told["dogs"]["sentences"] == 54 and told["cats"]["corpus"].endswith("c.txt")
    assert sum(store.rows for store in list_stores(Workspace(root))) == len(ROWS) + 70
    assert main(["embed", "--file", str(path), "--scale", "small", "--variant", "dogs", *flags]) == 0
    assert json.loads(report.read_text())["sentences"] == 57, "fewer are held out"
    capsys.readouterr()
    assert main(["embed", "--variant", "dogs", *flags]) == 2
    assert "--file" in capsys.readouterr().err
