from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rows import each_row
from scipy import stats

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import fingerprint, spec
from stillhouse.core.types import FloatArray
from stillhouse.evaluation.sts import PARTS, STS, resolve_sts


class Lengths:
    """A vector of a text's length and its first letter: different texts, different cosines."""

    encoded = 0

    def encode(self, texts: Sequence[str]) -> FloatArray:
        self.encoded += len(texts)
        return np.array([[len(text), ord(text[0]) / 7, 1] for text in texts], np.float32)


def sentence(draw: np.random.Generator) -> str:
    return " ".join(draw.choice(["ab", "c", "defg", "hi", "x\x85y", "z"], draw.integers(1, 9)))


def write_task(
    root: Path, name: str, *, rows: int = 12, seed: int = 0
) -> dict[str, list[tuple[str, str, float]]]:
    """Write a task in SentEval's layout, every third pair unscored; return the scored pairs per part."""
    draw, scored = np.random.default_rng(seed), {}
    folder = root / f"{name}-en-test"
    folder.mkdir(parents=True)
    for number, part in enumerate(PARTS[name]):
        pairs = [
            (sentence(draw), sentence(draw), float(draw.integers(0, 26)) / 5) for _ in range(rows + number)
        ]
        text = "".join(f"{a}\t{b}\tsource\n" for a, b, _ in pairs)
        gold = "".join("\n" if at % 3 == 2 else f"{score}\n" for at, (_, _, score) in enumerate(pairs))
        (folder / f"STS.input.{part}.txt").write_text(text, encoding="utf-8", newline="\n")
        (folder / f"STS.gs.{part}.txt").write_text(gold, newline="\n")
        scored[part] = [pair for at, pair in enumerate(pairs) if at % 3 != 2]
    return scored


def write_tables(root: Path) -> None:
    (root / "STSBenchmark").mkdir(parents=True)
    (root / "SICK").mkdir()
    stsb = [("a", 0.5, "the cat", 'the "cat'), ("b", 4.0, "a dog", "a dogs"), ("c", 2.5, "x", "yyy zzz")]
    lines = [f"genre\tfile\tyear\t{at}\t{gold}\t{a}\t{b}\textra" for at, gold, a, b in stsb]
    (root / "STSBenchmark" / "sts-dev.csv").write_text("\n".join(lines))
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    sick = [f"{at}\tthe {at}\t{'long ' * at}cat\t{at}.5\tNEUTRAL" for at in range(1, 5)]
    (root / "SICK" / "SICK_trial.txt").write_text("\n".join([header, *sick]) + "\n")


def expected(pairs: list[tuple[str, str, float]]) -> float:
    model = Lengths()
    a = model.encode([first for first, _, _ in pairs]).astype(np.float64)
    b = model.encode([second for _, second, _ in pairs]).astype(np.float64)
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return float(stats.spearmanr(cosine, [pair[2] for pair in pairs]).statistic)


def test_all_mean_and_weighted_mean(tmp_path: Path) -> None:
    scored = write_task(tmp_path / "sts" / "senteval", "STS13")
    model = Lengths()
    figures = STS(resolve_sts(str(tmp_path), "test"))(model)
    each = {part: expected(pairs) for part, pairs in scored.items()}
    sizes = {part: len(pairs) for part, pairs in scored.items()}
    assert list(figures) == [
        "sts_sts13_spearman_cosine",
        "sts_sts13_spearman_cosine_mean",
        "sts_sts13_spearman_cosine_wmean",
    ]
    together = [pair for pairs in scored.values() for pair in pairs]
    assert figures["sts_sts13_spearman_cosine"] == pytest.approx(expected(together), abs=1e-12)
    assert figures["sts_sts13_spearman_cosine_mean"] == pytest.approx(np.mean(list(each.values())))
    weighted = sum(each[part] * sizes[part] for part in each) / sum(sizes.values())
    assert figures["sts_sts13_spearman_cosine_wmean"] == pytest.approx(weighted)
    assert model.encoded == len({text for pair in together for text in pair[:2]})


def test_dev_sets_and_their_mean(tmp_path: Path) -> None:
    write_tables(tmp_path)
    data = resolve_sts(str(tmp_path), "dev")
    assert data.sets == ("STSB", "SICK")
    evaluator = STS(data, name="similarity")
    assert evaluator.sets["STSB"] == [
        [("the cat", 'the "cat', 0.5), ("a dog", "a dogs", 4.0), ("x", "yyy zzz", 2.5)]
    ]
    figures = evaluator(Lengths())
    assert figures["similarity_avg_spearman_cosine"] == pytest.approx(
        (figures["similarity_stsb_spearman_cosine"] + figures["similarity_sick_spearman_cosine"]) / 2
    )
    assert len(figures) == 3


def test_identity_depends_on_content_not_location(tmp_path: Path) -> None:
    write_tables(tmp_path / "one")
    write_tables(tmp_path / "two" / "sts" / "senteval")
    one, two = (spec(STS, data=resolve_sts(str(tmp_path / place))) for place in ("one", "two"))
    assert fingerprint(one) == fingerprint(two)
    file = tmp_path / "two" / "sts" / "senteval" / "SICK" / "SICK_trial.txt"
    file.write_text(file.read_text().replace("4.5", "4.6"))
    assert fingerprint(spec(STS, data=resolve_sts(str(tmp_path / "two")))) != fingerprint(one)
    with pytest.raises(BadInput, match="data files must not change, but they have"):
        two.build()


def test_missing_files_and_unknown_names_are_reported(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"data root .* has no files .*STSB.*sts/senteval"):
        resolve_sts(str(tmp_path))
    write_task(tmp_path, "STS12")
    with pytest.raises(BadInput, match=r"has no files of the STS test sets STS14\."):
        resolve_sts(str(tmp_path), "test", ("STS12", "STS14"))
    with pytest.raises(BadInput, match="unknown STS dev set `STS12`"):
        resolve_sts(str(tmp_path), "dev", ("STS12",))
    with pytest.raises(BadInput, match="split in"):
        resolve_sts(str(tmp_path), "train")
    assert resolve_sts(str(tmp_path), "test").sets == ("STS12",)


@each_row(
    ("file", "content", "message"),
    [
        ("STS.gs.FNWN.txt", "1.0\n2.0\n", r"must have the same number of lines, but have 12 and 2"),
        ("STS.gs.FNWN.txt", "1\n" * 11 + "seven\n", r"STS.gs.FNWN.txt, line 12: a gold score.*'seven'"),
        (
            "STS.gs.FNWN.txt",
            "1\n" * 11 + "5.5\n",
            r"line 12: a gold score must be a number from 0 to 5.*'5.5'",
        ),
        ("STS.gs.FNWN.txt", "\n" * 12, r"STS.gs.FNWN.txt must have gold scores"),
        ("STS.input.FNWN.txt", "a\tb\n" * 4 + "alone\n" + "a\tb\n" * 7, r"line 5: must have 2 tab-separated"),
        ("STS.input.FNWN.txt", "a\tb\n" * 2 + "\udce9\tb\n" + "a\tb\n" * 9, r"line 3: must be UTF-8"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(
    tmp_path: Path, file: str, content: str, message: str
) -> None:
    write_task(tmp_path, "STS13")
    (tmp_path / "STS13-en-test" / file).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput, match=message):
        STS(resolve_sts(str(tmp_path), "test"))


def test_a_short_line_of_a_table_is_named(tmp_path: Path) -> None:
    write_tables(tmp_path)
    with (tmp_path / "STSBenchmark" / "sts-dev.csv").open("a") as file:
        file.write("\ngenre\tfile\tyear\t7\t1.0\tonly one")
    with pytest.raises(BadInput, match=r"sts-dev.csv, line 4: must have 7 tab-separated columns, but has 6"):
        STS(resolve_sts(str(tmp_path)))
