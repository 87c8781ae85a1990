import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace, read_manifest, remove
from stillhouse.core.errors import BadInput
from stillhouse.corpora.pydocs import pydocs_corpus as module
from stillhouse.corpora.pydocs.docstrings import docstrings
from stillhouse.corpora.pydocs.extraction import Package, installed_packages, split_of
from stillhouse.corpora.pydocs.prose import outline, readable
from stillhouse.corpora.pydocs.pydocs_corpus import Pydocs, pydocs
from stillhouse.corpora.read_once import noted
from stillhouse.corpora.tables import open_judgements, open_rows, open_texts
from stillhouse.values.data import TextTable

SIZES: Any = {"dev_queries": 5, "dev_passages": 12, "test_queries": 5, "test_passages": 12}
VERBS = "compute return open close write read merge split sort filter load store remove append".split()
NOUNS = "array table file vector index column matrix socket thread buffer stream graph model".split()
ENDS = "before the call|after the call|for every row|in one pass|on the disk|in memory|with a lock".split("|")
SHARED = "This sentence stands in every module of the whole package."


def _sentence(draw: random.Random) -> str:
    first, second = draw.sample(NOUNS, 2)
    return f"{draw.choice(VERBS).capitalize()} the {first} of a {second} {draw.choice(ENDS)}."


def _module(draw: random.Random) -> str:
    functions = []
    for i in range(4):
        lead, *rest = [_sentence(draw) for _ in range(4)]
        body = " ".join(rest)
        functions.append(f'def f{i}():\n    """{lead}\n\n    {body}\n\n    {SHARED}\n    """\n')
    return "\n".join(functions)


@pytest.fixture(scope="module")
def site_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eighty folders of modules, along with hostile files."""
    root = tmp_path_factory.mktemp("site")
    draw = random.Random(0)
    for i in range(80):
        folder = root / "pack" / f"part{i:02d}"
        folder.mkdir(parents=True)
        (folder / "code.py").write_text(_module(draw))
    bad = root / "pack"
    (bad / "syntax.py").write_text('"""Never read this sentence at all."""\ndef (:\n')
    (bad / "latin.py").write_bytes('"""Une phrase en français, très brève."""\n'.encode("latin-1"))
    (bad / "declared.py").write_bytes(
        '# coding: latin-1\n"""Read the café as it is declared."""\n'.encode("latin-1")
    )
    (bad / "huge.py").write_text('"""Never read this huge file at all."""\n' + "x = 1\n" * 400_000)
    (bad / "nested.py").write_text(
        '"""Never read this nested file at all."""\nx = ' + "(" * 3000 + ")" * 3000
    )
    (bad / "runs.py").write_text('"""Reading must never run this module."""\nraise SystemExit("it ran")\n')
    (bad / "folder.py").mkdir()
    (bad / "loop").symlink_to(bad)
    (bad / "tests").mkdir()
    (bad / "tests" / "test_a.py").write_text('"""Never read a test of the package."""\n')
    return root


def install(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the folders of a root for the installed packages."""

    def found() -> list[Package]:
        folders = (folder for folder in sorted(root.iterdir()) if folder.is_dir())
        return [Package(folder.name, "unknown", folder) for folder in folders]

    monkeypatch.setattr(module, "installed_packages", found)


Select = Callable[..., Pydocs]


@pytest.fixture
def select(workspace: Workspace, site_packages: Path, monkeypatch: pytest.MonkeyPatch) -> Select:
    install(site_packages, monkeypatch)

    def selected(**changes: Any) -> Pydocs:
        return pydocs(workspace, **{**SIZES, **changes})

    return selected


def all_texts(workspace: Workspace, table: TextTable) -> list[str]:
    texts = open_texts(workspace, table)
    return texts[range(len(texts))]


def test_no_dev_or_test_text_is_in_training(workspace: Workspace, select: Select) -> None:
    docs = select()
    train = "\n".join(
        text
        for table in (docs.sentences, *docs.pairs.columns.values())
        for text in all_texts(workspace, table)
    )
    held_out = {
        split: [
            *all_texts(workspace, sentences),
            *all_texts(workspace, search.queries),
            *all_texts(workspace, search.passages),
        ]
        for split, sentences, search in (
            ("dev", docs.dev_sentences, docs.dev),
            ("test", docs.test_sentences, docs.test),
        )
    }
    assert [text for texts in held_out.values() for text in texts if text in train] == []
    in_test = "\n".join(held_out["test"])
    assert [text for text in held_out["dev"] if text in in_test] == []
    assert SHARED in in_test, "a text found in all splits belongs to the test split"


def test_every_query_has_one_passage_that_does_not_contain_it(workspace: Workspace, select: Select) -> None:
    docs = select()
    for search in (docs.dev, docs.test):
        queries, passages = all_texts(workspace, search.queries), all_texts(workspace, search.passages)
        qrels = open_judgements(workspace, search).qrels_N3
        assert (len(queries), len(passages)) == (5, 12)
        assert sorted(qrels[:, 0].tolist()) == list(range(5)) and set(qrels[:, 2].tolist()) == {1}
        assert len(set(qrels[:, 1].tolist())) == 5
        assert len(set(queries)) == 5 and len(set(passages)) == 12
        assert not [query for query in queries for passage in passages if query in passage]


def test_answers_are_the_rest_of_the_docstring(
    workspace: Workspace, select: Select, site_packages: Path
) -> None:
    docs = select()
    files = [path.read_bytes() for path in site_packages.glob("pack/part*/code.py")]
    docstring_of = {text.split("\n")[0]: text for file in files for text in docstrings(file)}
    rows = open_rows(workspace, docs.pairs)
    queries = open_texts(workspace, docs.pairs.columns["query"])[rows["query"]]
    passages = open_texts(workspace, docs.pairs.columns["passage"])[rows["passage"]]
    assert len(queries) > 50 and len(set(queries)) == len(queries)
    for query, passage in zip(queries, passages, strict=True):
        kept = [sentence for sentence in passage.removesuffix(".").split(". ")]
        assert all(f"{sentence}." in docstring_of[query] for sentence in kept)
        assert len(passage.split()) >= 8


def test_the_texts_do_not_depend_on_where_they_are_built(select: Select, tmp_path: Path) -> None:
    other = pydocs(Workspace(tmp_path / "other"), **SIZES)
    assert select() == other


def test_a_smaller_selection_is_a_subset_of_a_larger_one(workspace: Workspace, select: Select) -> None:
    small, large = select(sentences=20, pairs=5), select(sentences=50, pairs=9)
    assert all_texts(workspace, small.sentences) == all_texts(workspace, large.sentences)[:20]
    assert select(sentences=20, seed=1).sentences != small.sentences
    assert len(open_rows(workspace, small.pairs)["query"]) == 5


def test_extraction_runs_once(workspace: Workspace, select: Select, monkeypatch: pytest.MonkeyPatch) -> None:
    first = select(sentences=20)
    with monkeypatch.context() as patched:
        patched.delattr(module, "extract")
        assert select(sentences=20) == first
        select(sentences=30)
        with pytest.raises(NameError):
            select(sentences=20, refresh=True)
    remove(workspace.path(first.sentences))
    assert select(sentences=20) == first and workspace.finished(first.sentences)
    assert select(sentences=20, refresh=True) == first


def test_refresh_reads_changed_files(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch)
    draw = random.Random(1)
    for i in range(60):
        (tmp_path / "site" / f"pack{i}").mkdir(parents=True)
        (tmp_path / "site" / f"pack{i}" / "code.py").write_text(_module(draw))
    first = pydocs(workspace, **SIZES)
    name = next(f"new{i}" for i in range(99) if split_of(f"new{i}") == "train")
    (tmp_path / "site" / name).mkdir()
    (tmp_path / "site" / name / "a.py").write_text('"""Here stands an entirely unheard sentence."""\n')
    assert pydocs(workspace, **SIZES) == first
    second = pydocs(workspace, refresh=True, **SIZES)
    added = set(all_texts(workspace, second.sentences)) - set(all_texts(workspace, first.sentences))
    assert added == {"Here stands an entirely unheard sentence."}
    assert second.test == first.test


def test_hostile_files_are_skipped_and_counted(workspace: Workspace, select: Select) -> None:
    calls: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        calls.append((done, total))

    docs = select(progress=progress)
    everything = all_texts(workspace, docs.sentences)
    everything += all_texts(workspace, docs.dev_sentences) + all_texts(workspace, docs.test_sentences)
    assert not [text for text in everything if "Never" in text]
    assert "Read the café as it is declared." in everything
    assert "Reading must never run this module." in everything
    note = next((workspace.root / "sources").glob("pydocs-[0-9a-f]*.json"))
    found = noted(workspace, note)
    assert found is not None
    table = found["tables"]["train_sentences"]
    skipped = read_manifest(workspace.path(table))["origin"]["skipped"]
    assert sum(skipped.values()) == 4 and skipped["ValueError"] == 1
    assert calls[0] == (0, 86) and calls[-1] == (86, 86)


@each_row(
    ("changes", "message"),
    [
        ({"sentences": 10**6}, r"sentences <= \d+, the number available"),
        ({"pairs": 10**6}, r"pairs <= \d+, the number available"),
        ({"dev_queries": 10**6, "dev_passages": 10**6}, r"dev_queries <= \d+, the number available"),
        ({"test_passages": 10**6}, r"test_passages <= \d+, the number available"),
        ({"dev_passages": 4}, "dev_queries <= dev_passages"),
        ({"sentences": 0}, "sentences > 0"),
    ],
)
def test_more_than_available_is_refused(select: Select, changes: dict[str, int], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        select(**changes)


def test_all_sentences_are_readable_and_differ(workspace: Workspace, select: Select) -> None:
    sentences = all_texts(workspace, select().sentences)
    assert len({outline(text) for text in sentences}) == len(sentences) > 300
    assert all(readable(text) for text in sentences)


def test_splits_are_about_a_tenth() -> None:
    splits = [split_of(f"package/part{i}") for i in range(5000)]
    assert abs(splits.count("dev") - 500) < 70 and abs(splits.count("test") - 500) < 70


def test_the_packages_are_found_without_importing_them() -> None:
    packages = {package.name: package for package in installed_packages()}
    assert {"python", "numpy", "torch", "transformers"} <= set(packages)
    assert (packages["numpy"].folder / "__init__.py").exists() and packages["numpy"].version[0].isdigit()
