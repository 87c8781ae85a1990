import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.parallel import ParallelCorpus, moses_pair, read_parallel
from stillhouse.corpora.reading.rows import Rejected
from stillhouse.corpora.reading.schema import Schema
from stillhouse.corpora.reading.translations import language_spans, write_parallel
from stillhouse.corpora.tables import open_rows, open_texts
from stillhouse.values.data import Examples

PAIRS = [("Go.", "Va !"), ("Run!", "Cours\x85 !"), ("A cup of tea.", "Une tasse de thé.")]
CLEANED = [("Go.", "Va !"), ("Run!", "Cours !"), ("A cup of tea.", "Une tasse de thé.")]


def columns(source: str, target: str) -> Schema:
    return Schema(columns=f"source: {source}, target: {target}", owner="parallel")


def usable(corpus: ParallelCorpus) -> list[tuple[str, str]]:
    return [pair for pair in read_parallel(corpus) if not isinstance(pair, Rejected)]


def reasons(corpus: ParallelCorpus) -> list[str]:
    return [pair.reason for pair in read_parallel(corpus) if isinstance(pair, Rejected)]


def write_moses(folder: Path, stem: str, pairs: list[tuple[str, str]], languages: tuple[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for side, language in enumerate(languages):
        text = "".join(pair[side] + "\n" for pair in pairs)
        (folder / f"{stem}.{language}").write_text(text, encoding="utf-8", newline="\n")


def pairs_of(workspace: Workspace, examples: Examples) -> list[tuple[str, str]]:
    rows = open_rows(workspace, examples)
    sides = [open_texts(workspace, examples.columns[name])[rows[name]] for name in ("source", "target")]
    return list(zip(*sides, strict=True))


def test_every_layout_gives_the_same_pairs(tmp_path: Path) -> None:
    write_moses(tmp_path, "x", PAIRS, ("en", "fr"))
    assert usable(ParallelCorpus(str(tmp_path / "x.en"), str(tmp_path / "x.fr"))) == CLEANED
    for name in ("x.en", "x.fr"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    assert usable(ParallelCorpus(str(tmp_path / "x.en.gz"), str(tmp_path / "x.fr.gz"))) == CLEANED
    lines = [f"{a}\t{b}" + "\tCC-BY 2.0" * (at % 2) for at, (a, b) in enumerate(PAIRS)]
    anki = "".join(line + "\r\n" for line in lines).encode()
    (tmp_path / "fra.txt").write_bytes(anki)
    (tmp_path / "fra.tsv.gz").write_bytes(gzip.compress(anki))
    assert usable(ParallelCorpus(str(tmp_path / "fra.txt"))) == CLEANED
    assert usable(ParallelCorpus(str(tmp_path / "fra.tsv.gz"))) == CLEANED
    many = "de\ten\tfr\n" + "".join(f"\t{a}\t{b}\n" for a, b in PAIRS)
    (tmp_path / "talks.tsv").write_text(many, newline="\n")
    assert usable(ParallelCorpus(str(tmp_path / "talks.tsv"), schema=columns("en", "fr"))) == CLEANED
    assert reasons(ParallelCorpus(str(tmp_path / "talks.tsv"), schema=columns("en", "de"))) == ["empty"] * 3
    with pytest.raises(BadInput, match="must have the column 'nl'"):
        usable(ParallelCorpus(str(tmp_path / "talks.tsv"), schema=columns("en", "nl")))


def test_files_of_different_lengths_are_refused_with_both_counts(tmp_path: Path) -> None:
    write_moses(tmp_path, "x", PAIRS, ("en", "fr"))
    (tmp_path / "x.en").write_text("Go.\n")
    for first, second in (("x.en", "x.fr"), ("x.fr", "x.en")):
        with pytest.raises(BadInput, match=r"equally many lines.*lines") as refused:
            usable(ParallelCorpus(str(tmp_path / first), str(tmp_path / second)))
        assert "x.en has 1 lines" in str(refused.value) and "x.fr has 3 lines" in str(refused.value)


def test_a_refused_corpus_leaves_no_files(tmp_path: Path, workspace: Workspace) -> None:
    write_moses(tmp_path, "x", PAIRS, ("en", "fr"))
    (tmp_path / "x.en").write_text("Go.\n")
    with pytest.raises(BadInput, match="equally many lines"):
        write_parallel(workspace, [moses_pair(str(tmp_path), "en", "fr")])
    files = [path.name for path in workspace.root.rglob("*") if path.is_file()]
    assert [name for name in files if not name.startswith("workspace.")] == []


def test_a_separator_inside_a_text_does_not_shift_columns(tmp_path: Path) -> None:
    pairs = [("one\rtwo", "eins\u2028zwei"), ("three\x0bfour", "drei vier")]
    write_moses(tmp_path, "x", pairs, ("en", "de"))
    assert usable(moses_pair(str(tmp_path), "en", "de")) == [
        ("one two", "eins zwei"),
        ("three four", "drei vier"),
    ]


def test_unusable_rows_carry_a_reason(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"Go.\tVa !\nalone\n\tonly right\nleft only\t \nbad \xff\tmauvais\n")
    corpus = ParallelCorpus(str(tmp_path / "a.txt"))
    assert usable(corpus) == [("Go.", "Va !")]
    assert reasons(corpus) == ["fewer than 2 columns", "empty", "empty", "not utf-8"]


def test_aligned_files_are_found_by_language(tmp_path: Path) -> None:
    write_moses(tmp_path / "eng-fra", "tatoeba-test-v1", PAIRS, ("eng", "fra"))
    assert usable(moses_pair(str(tmp_path), "eng", "fra")) == CLEANED
    assert usable(moses_pair(str(tmp_path), "fra", "eng")) == [(b, a) for a, b in CLEANED]
    assert usable(moses_pair(str(tmp_path / "eng-fra"), "eng", "fra")) == CLEANED
    laser = tmp_path / "laser"
    for language in ("deu", "fra"):
        write_moses(laser, f"tatoeba.{language}-eng", PAIRS[:2], (language, "eng"))
    assert usable(moses_pair(str(laser), "deu", "eng")) == CLEANED[:2]
    write_moses(tmp_path / "multi", "train", PAIRS, ("en", "de"))
    write_moses(tmp_path / "multi", "val", PAIRS[:1], ("en", "de"))
    with pytest.raises(BadInput, match=r"but has: train, val\. Leave one"):
        moses_pair(str(tmp_path / "multi"), "en", "de")
    with pytest.raises(BadInput, match="Check the folder"):
        moses_pair(str(tmp_path / "nowhere"), "en", "de")


def test_a_dataset_saved_by_the_datasets_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))

    def written(name: str, rows: list[dict[str, object]]) -> str:
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return f"hf:{tmp_path / name}::train"

    flat = written("flat", [{"english": a, "non_english": b} for a, b in PAIRS])
    assert usable(ParallelCorpus(flat)) == CLEANED
    assert usable(ParallelCorpus(flat, schema=columns("non_english", "english"))) == [
        (b, a) for a, b in CLEANED
    ]
    nested = written("nested", [{"translation": {"en": a, "fr": b}} for a, b in PAIRS])
    assert usable(ParallelCorpus(nested, schema=columns("en", "fr"))) == CLEANED
    for source, sides in ((nested, ("en", "de")), (flat, ("english", "french"))):
        with pytest.raises(BadInput, match="must have the column"):
            usable(ParallelCorpus(source, schema=columns(*sides)))
    assert usable(ParallelCorpus(nested)) == CLEANED
    (tmp_path / "a.jsonl").write_text('{"translation": {"en": "a", "fr": "b"}}\n{"other": 1}\n')
    assert reasons(ParallelCorpus(str(tmp_path / "a.jsonl"))) == ["empty"]
    many = written("many", [{"translation": {"en": a, "fr": b, "de": a}} for a, b in PAIRS])
    assert usable(ParallelCorpus(many, language="de")) == [(a, a) for a, _ in CLEANED]
    with pytest.raises(BadInput, match=r"two columns of sentences"):
        usable(ParallelCorpus(many))
    with pytest.raises(BadInput, match="must be a data set that can be loaded"):
        usable(ParallelCorpus(f"hf:{tmp_path / 'nothing'}"))


def test_several_languages_become_one_artifact(tmp_path: Path, workspace: Workspace) -> None:
    write_moses(tmp_path, "x", [*PAIRS, ("Go.", "Va !"), ("Stop!", "")], ("en", "fr"))
    (tmp_path / "deu.txt").write_text("Go.\tGeh.\nGo.\tLos!\nGo.\tGeh.\n")
    corpora = [
        moses_pair(str(tmp_path), "en", "fr"),
        ParallelCorpus(str(tmp_path / "deu.txt"), language="de", limit=2),
    ]
    examples = write_parallel(workspace, corpora)
    assert pairs_of(workspace, examples) == [*CLEANED, ("Go.", "Geh."), ("Go.", "Los!")]
    assert list(open_rows(workspace, examples)["source"]) == [0, 1, 2, 0, 0]
    assert [len(open_texts(workspace, examples.columns[name])) for name in ("source", "target")] == [3, 5]
    manifest = read_manifest(workspace.path(examples))
    assert manifest["rows"] == 5
    french, german = manifest["parallel"]
    assert {k: french[k] for k in ("language", "rows", "read", "duplicates", "set_aside")} == {
        "language": "fr",
        "rows": 3,
        "read": 5,
        "duplicates": 1,
        "set_aside": {"empty": 1},
    }
    assert (german["rows"], german["read"], german["set_aside"]) == (2, 3, {})
    assert language_spans(workspace, examples) == [("fr", range(0, 3)), ("de", range(3, 5))]
    assert not list(workspace.root.glob(".parallel-*"))
    again = write_parallel(workspace, corpora)
    assert again.fingerprint == examples.fingerprint
    assert write_parallel(workspace, corpora[::-1]).fingerprint != examples.fingerprint


def test_a_source_that_is_not_a_corpus_is_refused(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "empty.txt").write_text("\t\nalone\n")
    with pytest.raises(BadInput, match=r"at least one usable pair.*'empty': 1"):
        write_parallel(workspace, [ParallelCorpus(str(tmp_path / "empty.txt"))])
    with pytest.raises(BadInput, match="parallel corpora >= 1"):
        write_parallel(workspace, [])
    with pytest.raises(BadInput, match=r"the corpus .* does not exist"):
        usable(ParallelCorpus(str(tmp_path / "nothing.txt")))
    with pytest.raises(BadInput, match="limit > 0"):
        ParallelCorpus("x", limit=0)
    (tmp_path / "wide.tsv").write_bytes("a\tb\r\n".encode("utf-16"))
    with pytest.raises(BadInput, match="UTF-16 byte order mark"):
        usable(ParallelCorpus(str(tmp_path / "wide.tsv")))
    (tmp_path / "two").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "two" / name).write_text("a\tb\n")
    with pytest.raises(BadInput, match="must be one file"):
        usable(ParallelCorpus(str(tmp_path / "two")))


def test_only_parallel_corpora_have_spans(workspace: Workspace) -> None:
    from stillhouse.corpora.tables import write_rows, write_texts

    table = write_texts(workspace, "texts", ["one", "two"])
    examples = write_rows(workspace, {"query": table}, {"query": np.arange(2)}, "pairs")
    with pytest.raises(BadInput, match="a parallel corpus"):
        language_spans(workspace, examples)
