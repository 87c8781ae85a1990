"""Word vectors: conversion of published formats, tokenizing of texts, and the folder's identity."""

import gzip
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from rows import each_row
from safetensors.numpy import load_file

from stillhouse.core.errors import BadInput
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.corpora.word_vector_files import count_words, write_vectors, write_vocabulary
from stillhouse.teachers.weights import resolve_model

GLOVE = """\
the 1 0 0
Cat 0 9 9
cat 0 1 0
. . . 5 5 5
Paris 0 0 2
n't 0.5 0.5 -1e-1
"""


def words(folder: Path) -> dict[str, int]:
    rows: dict[str, int] = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    return rows


def vectors(folder: Path) -> npt.NDArray[np.float32]:
    return np.asarray(load_file(folder / "model.safetensors")["words"])


def cut(folder: Path, text: str) -> list[str]:
    names = {row: word for word, row in words(folder).items()}
    return [names[int(row)] for row in FastTokenizer(folder, 128)([text])[0]]


@each_row("form", ["plain", "gzip", "word2vec", "json"])
def test_published_formats_give_the_same_folder(form: str, tmp_path: Path) -> None:
    source = tmp_path / {"gzip": "v.txt.gz", "json": "v.json"}.get(form, "v.txt")
    if form == "gzip":
        source.write_bytes(gzip.compress(GLOVE.encode()))
    elif form == "json":
        lines = [line.rsplit(" ", 3) for line in GLOVE.splitlines()]
        source.write_text(json.dumps({word: [float(n) for n in numbers] for word, *numbers in lines}))
    else:
        source.write_text(("6 3\n" if form == "word2vec" else "") + GLOVE)
    write_vectors(source, tmp_path / "folder")
    rows, found = words(tmp_path / "folder"), vectors(tmp_path / "folder")
    assert list(rows) == ["[PAD]", "[UNK]", "[MASK]", "the", "cat", "paris", "n't"]
    assert found.dtype == np.float32 and found.shape == (7, 3)
    np.testing.assert_array_equal(found[rows["cat"]], [0, 1, 0])  # published in lower case, so before "Cat"
    np.testing.assert_array_equal(found[rows["paris"]], [0, 0, 2])
    np.testing.assert_array_equal(found[0], 0)
    np.testing.assert_allclose(found[1], found[3:].mean(axis=0), rtol=1e-6)


def test_words_that_are_kept(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(GLOVE)
    write_vectors(tmp_path / "v.txt", tmp_path / "kept", keep={"paris", "dog"})
    assert list(words(tmp_path / "kept"))[3:] == ["paris"]
    assert write_vectors(tmp_path / "v.txt", tmp_path / "more", keep={"paris"}, further=1) == ["the", "paris"]
    both = write_vectors(tmp_path / "v.txt", tmp_path / "two", keep={"paris"}, further=2)
    assert both == ["the", "cat", "paris"] and vectors(tmp_path / "two")[4].tolist() == [0, 1, 0]
    assert write_vectors(tmp_path / "v.txt", tmp_path / "all", keep={"paris"}, further=-1) == [
        *("the", "cat", "paris", "n't")
    ]
    with pytest.raises(BadInput, match="kept"):
        write_vectors(tmp_path / "v.txt", tmp_path / "none", keep={"dog"})


def test_texts_are_cut_as_glove_cuts_them(tmp_path: Path) -> None:
    text = "It’s 3.5% of the U.S. market; we DON'T, can't -- well-known ``x''... Müller's"
    counts = count_words([text])
    assert counts["n't"] == counts["'s"] == 2
    write_vocabulary(counts, tmp_path, dim=4)
    assert cut(tmp_path, text) == [
        *("it", "'s", "3.5", "%", "of", "the", "u.s.", "market", ";", "we", "do", "n't", ",", "ca", "n't"),
        *("--", "well", "-", "known", "``", "x", "''", "...", "müller", "'s"),
    ]
    assert cut(tmp_path, "THE [MASK] zebra") == ["the", "[MASK]", "[UNK]"]
    assert cut(tmp_path, "") == []


def test_the_fast_tokenizer_truncates_without_special_tokens(tmp_path: Path) -> None:
    write_vocabulary(["a", "b"], tmp_path, dim=2)
    tokenizer = FastTokenizer(tmp_path, 3)
    ids, offsets = tokenizer(["a b a b a", "b"])
    assert tokenizer.pad_id == 0
    assert ids.tolist() == [3, 4, 3, 4] and offsets.tolist() == [0, 3, 4]


def test_counting() -> None:
    assert count_words(["b a", "B c b", "a"]) == {"b": 3, "a": 2, "c": 1}
    assert list(count_words(["z y x"], limit=2)) == ["x", "y"]


def test_the_identity_depends_on_the_content(tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        write_vocabulary(["a", "b"], tmp_path / name, dim=4, seed=seed)
    one, two, three = (resolve_model(str(tmp_path / name)) for name in ("one", "two", "three"))
    assert one.fingerprint == two.fingerprint != three.fingerprint
    assert Path(one.path).is_dir()


def test_random_rows_have_about_unit_length(tmp_path: Path) -> None:
    write_vocabulary((f"w{row}" for row in range(200)), tmp_path, dim=100)
    lengths = np.linalg.norm(vectors(tmp_path), axis=1)
    assert lengths[0] == 0 and 0.7 < lengths[1:].min() < lengths[1:].max() < 1.4


@each_row(
    ("content", "message"),
    [
        ("the 1 2\ncat 1\n", "line 2"),
        ("the 1 2\ncat 1 x\n", "line 2"),
        ("the 1 nan\n", "line 1"),
        ("", "no row"),
        ("the\n", "line 1"),
    ],
)
def test_malformed_files_are_refused_with_their_line(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(content)
    with pytest.raises(BadInput, match=message):
        write_vectors(tmp_path / "v.txt", tmp_path / "folder")


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for name, content in (("a.json", "{"), ("b.json", "[]"), ("c.json", '{"a": [1], "b": [1, 2]}')):
        (tmp_path / name).write_text(content)
        with pytest.raises(BadInput, match=name):
            write_vectors(tmp_path / name, tmp_path / "folder")
    (tmp_path / "v.txt").write_bytes(b"the 1 2\nc\xff 1 2\n")
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(GLOVE.encode())[:-9])
    for name in ("v.txt", "v.txt.gz"):
        with pytest.raises(BadInput, match=r"must be UTF-8|complete"):
            write_vectors(tmp_path / name, tmp_path / "folder")
    with pytest.raises(BadInput, match="must exist"):
        write_vectors(tmp_path / "none.txt", tmp_path / "folder")
    with pytest.raises(BadInput, match="words"):
        write_vocabulary([], tmp_path / "folder", dim=3)
