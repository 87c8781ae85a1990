"""Mixes of corpora: exact shares, each text once, the same parts held out wherever a text stands."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora import mixing
from stillhouse.corpora.barrier import Barrier
from stillhouse.corpora.mixing import Mixed, MixSource, joined, mix_texts
from stillhouse.corpora.reading.cleaning import cut, passages
from stillhouse.corpora.reading.corpus import ReadOptions, read_texts
from stillhouse.corpora.row_shares import apportion
from stillhouse.corpora.tables import open_texts, write_texts
from stillhouse.values.data import TextTable


def corpus(folder: Path, name: str, texts: list[str]) -> str:
    (folder / f"{name}.txt").write_text("\n".join(texts) + "\n")
    return str(folder / f"{name}.txt")


def named(name: str, rows: int) -> list[str]:
    return [f"{name} text {row}" for row in range(rows)]


def read(workspace: Workspace, mixed: Mixed) -> list[list[list[str]]]:
    """The texts by split and source."""
    for split in (mixed.train, mixed.dev, mixed.test):
        for part in split:
            assert part is None or len(open_texts(workspace, part[0])) == part[1]
    return [
        [list(open_texts(workspace, part[0])) if part else [] for part in split]
        for split in (mixed.train, mixed.dev, mixed.test)
    ]


def test_a_number_is_divided_by_shares_exactly() -> None:
    assert apportion(10, [1, 1, 1]) == [4, 3, 3]
    assert apportion(10, [0.5, 0.3, 0.2]) == [5, 3, 2]
    assert apportion(7, [0.1, 0.2]) == [2, 5]
    assert apportion(0, [1, 2]) == [0, 0] and apportion(5, [0, 1]) == [0, 5]
    # 0.3 is a little less than three tenths in binary, and yet the first of equal remainders is rounded up.
    assert apportion(5, [0.3, 0.1, 0.6]) == apportion(5, [3, 1, 6]) == [2, 0, 3]
    for total in range(50):
        shares = [0.7, 0.1, 0.15, 0.05]
        parts = apportion(total, shares)
        assert sum(parts) == total
        assert all(abs(part - total * share) < 1 for part, share in zip(parts, shares, strict=True))
    for wrong in ([0.0, 0.0], [1.0, -0.5], []):
        with pytest.raises(BadInput, match=r"positive|at least 0"):
            apportion(10, wrong)


def test_a_mix_does_not_depend_on_how_many_texts_are_compared_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated = [f"a text {row % 90}" for row in range(300)]
    first, second = corpus(tmp_path, "a", repeated), corpus(tmp_path, "b", named("b", 100) + named("a", 300))
    sources = [MixSource(first, 2), MixSource(second, 1)]
    mixes = []
    for block in (7, 4096):
        monkeypatch.setattr(mixing, "_BLOCK", block)
        mixes.append(mix_texts(Workspace(tmp_path / str(block)), sources, count=240, held_out=10))
    assert mixes[0] == mixes[1]
    texts = [text for split in read(Workspace(tmp_path / "7"), mixes[0]) for part in split for text in part]
    assert len(set(texts)) == len(texts) == 240, "b gives what a has not, its own and a's of 90 on"


def test_the_golden_mix(tmp_path: Path, workspace: Workspace) -> None:
    first, second = corpus(tmp_path, "a", named("a", 500)), corpus(tmp_path, "b", named("b", 500))
    sources = [MixSource(first, 0.75), MixSource(second, 0.25)]
    mixed = mix_texts(workspace, sources, count=200, held_out=20)
    (train, dev, test) = read(workspace, mixed)
    # Of 200 texts 150 are a's and 50 b's; a tenth of each is held out for dev, and another one for the test.
    assert [[len(part) for part in split] for split in (train, dev, test)] == [[120, 40], [15, 5], [15, 5]]
    everything = sorted(text for split in (train, dev, test) for part in split for text in part)
    assert len(set(everything)) == 200 and sum(text.startswith("a") for text in everything) == 150
    assert 8 < sum(int(text.split()[-1]) < 50 for text in everything) < 32, "from the whole of each"
    larger = mix_texts(workspace, sources, count=300, held_out=20)
    assert set(everything) < {text for split in read(workspace, larger) for part in split for text in part}
    assert mix_texts(workspace, sources, count=200, held_out=20) == mixed
    other = Workspace(tmp_path / "elsewhere")
    assert mix_texts(other, sources, count=200, held_out=20) == mixed, "the same in any workspace"
    changed = mix_texts(workspace, [MixSource(first, 0.7), MixSource(second, 0.3)], count=200, held_out=20)
    assert changed.train != mixed.train and [part[1] for part in changed.train if part] == [112, 48]


def test_a_text_counts_once_and_for_the_first_source_that_has_it(
    tmp_path: Path, workspace: Workspace
) -> None:
    shared = named("shared", 40)
    first = corpus(tmp_path, "a", [*shared, *named("a", 60), *shared])
    second = corpus(tmp_path, "b", [*(text.upper() + "." for text in shared), *named("b", 60)])
    mixed = mix_texts(workspace, [MixSource(first, 1), MixSource(second, 1)], count=100, held_out=10)
    train, dev, test = read(workspace, mixed)
    of_first, of_second = ([*train[at], *dev[at], *test[at]] for at in (0, 1))
    texts = {text.casefold().rstrip(".") for text in (*of_first, *of_second)}
    assert len(of_first) == len(of_second) == 50 and len(texts) == 100


def test_what_is_measured_with_is_in_no_source(tmp_path: Path, workspace: Workspace) -> None:
    barrier = Barrier(workspace)
    barrier.declare("search", [write_texts(workspace, "queries", ["A text 3.", "b text 7"])])
    first, second = corpus(tmp_path, "a", named("a", 60)), corpus(tmp_path, "b", named("b", 60))
    mixed = mix_texts(
        workspace, [MixSource(first, 1), MixSource(second, 1)], count=80, held_out=8, barrier=barrier
    )
    texts = [text for split in read(workspace, mixed) for part in split for text in part]
    assert len(texts) == len(set(texts)) == 80 and not {"a text 3", "b text 7"} & set(texts)
    assert barrier.left_out == {"texts": {"search": 2}}
    without = mix_texts(workspace, [MixSource(first, 1), MixSource(second, 1)], count=80, held_out=8)
    assert without != mixed, "another mix"


def test_a_source_smaller_than_its_share_is_reported_and_the_others_give_the_rest(
    tmp_path: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = [
        MixSource(corpus(tmp_path, name, named(name, rows)), share)
        for name, rows, share in (("a", 10, 0.5), ("b", 500, 0.3), ("c", 500, 0.2))
    ]
    mixed = mix_texts(workspace, sources, count=200, held_out=10)
    totals = [
        sum(part[1] for split in (mixed.train, mixed.dev, mixed.test) if (part := split[at]))
        for at in range(3)
    ]
    assert totals == [10, 114, 76], "190 texts are divided 3 to 2"
    told = capsys.readouterr()
    assert re.search(r"a\.txt has 10 texts, fewer than the 100 of its share", told.out + told.err)
    few = mix_texts(workspace, sources, count=5000, held_out=10)
    assert sum(part[1] for split in (few.train, few.dev, few.test) for part in split if part) == 1010


def test_sources_of_one_corpus_are_told_apart(
    tmp_path: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    name = corpus(
        tmp_path, "a", [f"The {row} dogs run far. The {row} cats sleep long." for row in range(100)]
    )
    options = (ReadOptions(split_sentences=True), ReadOptions(max_words=3, longer="cut"), ReadOptions())
    mix_texts(workspace, [MixSource(name, 1, option) for option in options], count=150, held_out=10)
    told = capsys.readouterr().err.splitlines()
    ends = [(200, "(sentences)"), (100, "(1 to 3 words, longer: cut)"), (100, "")]
    assert [f"    50 of {rows} rows of {name} {end}".rstrip() for rows, end in ends] == told[-3:]


def test_a_table_is_a_source_and_no_share_is_no_source(tmp_path: Path, workspace: Workspace) -> None:
    table = write_texts(workspace, "docs", named("docs", 100))
    gone = MixSource(str(tmp_path / "missing.txt"), 0.0)
    mixed = mix_texts(workspace, [gone, MixSource(table, 1)], count=100, held_out=10)
    assert mixed.train[0] is mixed.dev[0] is mixed.test[0] is None
    assert [part[1] for split in (mixed.train, mixed.dev, mixed.test) if (part := split[1])] == [80, 10, 10]


@pytest.mark.parametrize("texts", [["", "   "], ["shared text 0"]])
def test_a_source_without_a_usable_text_is_refused(
    texts: list[str], tmp_path: Path, workspace: Workspace
) -> None:
    first = corpus(tmp_path, "a", [*named("shared", 1), *named("a", 79)])
    empty = MixSource(corpus(tmp_path, "b", texts), 0.2)
    with pytest.raises(BadInput, match=r"every source of a mix .*/b\.txt has none"):
        mix_texts(workspace, [MixSource(first, 0.8), empty], count=100, held_out=10)
    assert not list(workspace.folder(TextTable.kind).glob("*/manifest.json")), "nothing is half-written"
    with pytest.raises(BadInput, match="texts of a mix >= 50"):
        mix_texts(workspace, [MixSource(first, 0.8)], count=49, held_out=10)
    with pytest.raises(BadInput, match="less than one per source"):
        mix_texts(workspace, [MixSource(first, 0.8)], count=100, held_out=0)


def test_tables_are_joined_in_their_order(workspace: Workspace) -> None:
    parts = [write_texts(workspace, name, named(name, rows)) for name, rows in (("a", 3), ("b", 2))]
    whole = joined(workspace, "both", parts)
    assert list(open_texts(workspace, whole)) == named("a", 3) + named("b", 2)
    assert joined(workspace, "both", parts) == whole and joined(workspace, "one", parts[:1]) == parts[0]
    assert joined(workspace, "both", parts[::-1]) != whole


def within(words: int) -> Callable[[str], bool]:
    return lambda text: text.count(" ") < words


LONG = "The cat sat down. A dog came in and it barked. They left! " + " ".join(["word"] * 12) + "."


def test_long_texts_are_packed_into_passages_of_whole_sentences() -> None:
    assert passages("Short  text. Stays whole.", within(5)) == ["Short text. Stays whole."]
    assert passages(LONG, within(9)) == [
        "The cat sat down.",
        "A dog came in and it barked. They left!",
        "word word word word word word word word word",
        "word word word.",
    ]
    assert passages(LONG, within(13))[0] == "The cat sat down. A dog came in and it barked. They left!"
    assert " ".join(passages(LONG, within(7))) == LONG, "no word is lost"
    assert (
        all(passage.count(" ") < 7 for passage in passages(LONG, within(7)))
        and passages(" ", within(7)) == []
    )


def test_long_texts_are_dropped_cut_or_packed(tmp_path: Path) -> None:
    file = corpus(tmp_path, "long", ["Five words are in here.", LONG])

    def kept(longer: str, least: int = 1) -> list[str]:
        options = ReadOptions(longer=longer, max_words=9, min_words=least)
        return [text for text in read_texts(file, options) if isinstance(text, str)]

    assert kept("drop") == ["Five words are in here."]
    assert kept("cut") == ["Five words are in here.", "The cat sat down. A dog came in and"]
    assert kept("pack") == ["Five words are in here.", *passages(LONG, within(9))]
    assert "word word word." not in kept("pack", least=4)
    assert cut("one two", within(2)) == "one two" and cut("one two three", within(2)) == "one two"
    with pytest.raises(BadInput, match="longer in"):
        ReadOptions(longer="fold")
    with pytest.raises(BadInput, match="not both"):
        ReadOptions(longer="pack", split_sentences=True)
