"""MS MARCO's own files as text to train on and as pairs, in the layout in which they are published."""

import gzip
from pathlib import Path

import pytest
from test_labelled import triples  # type: ignore[import-not-found]

import stillhouse
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.corpus import ReadOptions, read_texts
from stillhouse.corpora.reading.labelled import read_labelled
from stillhouse.experiments.fields import experiment_of
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences

PASSAGES = {"0": "rivers flow", "7": "cats sleep\tmuch", "8": "dogs bark", "9": "fish swim"}
QUERIES = {"100": "what flows", "101": "who sleeps", "102": "never judged"}


@pytest.fixture
def marco(tmp_path: Path) -> Path:
    folder = tmp_path / "msmarco"
    folder.mkdir()
    for name, texts in (("collection.tsv", PASSAGES), ("queries.train.tsv", QUERIES)):
        (folder / name).write_text("".join(f"{key}\t{text}\n" for key, text in texts.items()))
    (folder / "queries.dev.small.tsv").write_text("200\tnot to train on\n")
    (folder / "qrels.train.tsv").write_text("101\t0\t7\t1\n100\t0\t0\t1\n100\t0\t8\t0\n")
    (folder / "qrels.dev.small.tsv").write_text("200\t0\t9\t1\n")
    (folder / "qidpidtriples.train.full.2.tsv").write_text("100\t0\t9\n101\t7\t8\n")
    return folder


def test_passages_and_training_queries_are_the_texts(marco: Path) -> None:
    """Those of the dev split are none, and neither are judgements and triples."""
    texts = list(read_texts(str(marco), ReadOptions()))
    assert texts == ["rivers flow", "cats sleep much", "dogs bark", "fish swim", *QUERIES.values()]
    assert list(read_texts(str(marco / "queries.dev.small.tsv"), ReadOptions())) == ["not to train on"]
    (marco / "queries.dev.small.tsv").rename(marco / "queries.tsv")
    assert list(read_texts(str(marco / "queries.tsv"), ReadOptions())) == ["not to train on"]
    with pytest.raises(BadInput, match="no column 'text'"):
        list(read_texts(str(marco), ReadOptions(column="text")))


def test_a_table_with_a_header_is_read_by_its_columns(tmp_path: Path) -> None:
    (tmp_path / "collection.tsv").write_text("id\ttext\n4\tby its column\n")
    assert list(read_texts(str(tmp_path / "collection.tsv"), ReadOptions())) == ["by its column"]


def test_pairs_are_those_of_the_judgements(marco: Path, workspace: Workspace) -> None:
    """Judgements of 0 are none; ids are looked up, whatever their order."""
    expected = [("who sleeps", "cats sleep much"), ("what flows", "rivers flow")]
    for source in (marco, marco / "qrels.train.tsv"):
        assert triples(workspace, read_labelled(workspace, str(source), negatives=0)) == expected
    assert triples(workspace, read_labelled(workspace, str(marco), limit=1)) == expected[1:], "drawn"


def test_triples_bring_their_negatives(marco: Path, workspace: Workspace) -> None:
    expected = [("what flows", "rivers flow", "fish swim"), ("who sleeps", "cats sleep much", "dogs bark")]
    by_id = marco / "qidpidtriples.train.full.2.tsv"
    assert triples(workspace, read_labelled(workspace, str(by_id), negatives=1)) == expected
    text = "".join("\t".join(row) + "\n" for row in expected)
    (marco / "triples.train.small.tsv").write_text(text)
    with gzip.open(marco / "triples.train.full.tsv.gz", "wt") as file:
        file.write(text)
    for name in ("triples.train.small.tsv", "triples.train.full.tsv.gz"):
        assert triples(workspace, read_labelled(workspace, str(marco / name), negatives=1)) == expected
        pairs = triples(workspace, read_labelled(workspace, str(marco / name), negatives=0))
        assert pairs == [row[:2] for row in expected]
    with pytest.raises(BadInput, match="2 with fewer than 8 hard negatives"):
        read_labelled(workspace, str(by_id), negatives=8)


def test_a_changed_file_is_read_again(marco: Path, workspace: Workspace) -> None:
    read_labelled(workspace, str(marco))
    (marco / "queries.train.tsv").write_text("100\tanother query\n101\twho sleeps\n")
    assert ("another query", "rivers flow") in triples(workspace, read_labelled(workspace, str(marco)))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("qrels.train.tsv", "100\t0\t5\t1\n", r"qrels.train.tsv, line 1: '5' must be an id of .*collection"),
        ("qrels.train.tsv", "99\t0\t7\t1\n", r"line 1: '99' must be an id of .*queries.train.tsv"),
        ("qrels.train.tsv", "100 0 7 1\n", "line 1: must have 4 columns separated by tabs, but has 1"),
        ("queries.train.tsv", "100 what flows\n", "queries.train.tsv, line 1: must be an id and a text"),
        ("qrels.train.tsv", None, "must hold qrels.train.tsv"),
        ("queries.train.tsv", None, "queries.train.tsv must stand beside it"),
    ],
)
def test_files_that_do_not_fit_are_named(
    file: str, content: str | None, message: str, marco: Path, workspace: Workspace
) -> None:
    if content is None:
        (marco / file).unlink()
    else:
        (marco / file).write_text(content)
    with pytest.raises(BadInput, match=message):
        read_labelled(workspace, str(marco))


def test_one_folder_is_text_pairs_and_collection(marco: Path, tiny_model: Path, tmp_path: Path) -> None:
    """As IBKD's Table 3 takes it: the negatives are mined, the dev queries are divided and kept out."""
    nouns = ("river", "cat", "dog", "fish", "tree", "house", "stone", "bird")
    words = [f"the {one} and a {other}" for one in nouns for other in nouns if one != other]
    with (marco / "collection.tsv").open("a") as file:
        file.writelines(f"{1000 + at}\t{text}\n" for at, text in enumerate(words))
    with (marco / "queries.train.tsv").open("a") as file:
        file.writelines(f"{300 + at}\twhere is {text}\n" for at, text in enumerate(words[:20]))
    with (marco / "qrels.train.tsv").open("a") as file:
        file.writelines(f"{300 + at}\t0\t{1000 + at}\t1\n" for at in range(20))
    (marco / "queries.dev.small.tsv").write_text("200\tfirst of dev\n201\tsecond of dev\n")
    (marco / "qrels.dev.small.tsv").write_text("200\t0\t1030\t1\n201\t0\t1031\t1\n")
    experiment = experiment_of(
        {
            "teacher": {"name": str(tiny_model)},
            "sentences": {"corpus": str(marco), "count": 0, "held_out": 5},
            "pairs": {
                "path": str(marco),
                "count": 0,
                "negatives": 2,
                "mining": {"relative_margin": -1, "absolute_margin": -1},
            },
            "collection": {"path": str(marco), "dev": "dev.small", "test": "dev.small", "metric": "mrr@10"},
            "max_length": 16,
            "compute": "float32",
        }
    )
    prepared = stillhouse.embed(experiment, root=tmp_path / "runs")
    setting = prepared.setting
    assert prepared.facts["texts_left_out"] == 2, "the judged passages of dev"
    assert 60 < setting[Sentences].rows < len(words) + 4 + 20 + 3 - 2
    pairs = setting[Pairs].examples
    left_out = prepared.facts["pairs_left_out"]
    assert setting.rows_of(pairs) == 22 - left_out > 10, "agreement holds passages out"
    assert set(pairs.columns) == {"query", "passage", "negatives"}
    assert setting.dev.select == "collection_cosine_mrr@10"


def test_an_id_of_any_file_is_looked_up_in_its_own(marco: Path, workspace: Workspace) -> None:
    """A passage and a query may have the same id."""
    (marco / "collection.tsv").write_text("100\ta passage\n")
    (marco / "qrels.train.tsv").write_text("100\t0\t100\t1\n")
    assert triples(workspace, read_labelled(workspace, str(marco))) == [("what flows", "a passage")]
