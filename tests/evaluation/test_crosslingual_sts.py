from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import fingerprint, spec
from stillhouse.core.types import FloatArray
from stillhouse.evaluation.crosslingual_sts import CrossLingualSTS, resolve_crosslingual_sts
from stillhouse.evaluation.suites import run_suite
from stillhouse.values.stage import DevSuite, TestSuite

Rows = list[tuple[str, str, float]]


class Lengths:
    """A vector of a text's length and its first letter: different texts, different cosines."""

    encoded = 0

    def encode(self, texts: Sequence[str]) -> FloatArray:
        self.encoded += len(texts)
        return np.array([[len(text), ord(text[0]) / 7, 1] for text in texts], np.float32)


def rows(seed: int, count: int = 20) -> Rows:
    draw = np.random.default_rng(seed)

    def sentence() -> str:
        return " ".join(draw.choice(["ab", "c", "dé, fg", "hi", 'x "y"', "ص"], draw.integers(1, 9)))

    return [(sentence(), sentence(), float(draw.integers(0, 26)) / 5) for _ in range(count)]


def expected(pairs: Rows) -> float:
    model = Lengths()
    a = model.encode([first for first, _, _ in pairs]).astype(np.float64)
    b = model.encode([second for _, second, _ in pairs]).astype(np.float64)
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return float(100 * stats.spearmanr(cosine, [pair[2] for pair in pairs]).statistic)


def write_track(folder: Path, track: str, pairs: Rows) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{a}\t{b}\n" for a, b, _ in pairs)
    (folder / f"STS.input.track{track}.txt").write_text(text, encoding="utf-8")
    (folder / f"STS.gs.track{track}.txt").write_text("".join(f"{gold:f}\n" for _, _, gold in pairs))


def write_stsb(folder: Path, split: str = "dev") -> dict[str, Rows]:
    import csv

    folder.mkdir(parents=True, exist_ok=True)
    golds = [gold for _, _, gold in rows(0)]
    sets: dict[str, Rows] = {}
    for seed, language in enumerate(("en", "de", "tr")):
        pairs = [(a, b, gold) for (a, b, _), gold in zip(rows(seed), golds, strict=True)]
        sets[language] = pairs
        if language == "tr":
            lines = [f"genre\tset\tyear\t{at}\t{g:.3f}\t{a}\t{b}" for at, (a, b, g) in enumerate(pairs)]
            header = "genre\tdataset\tyear\tsid\tscore\tsentence1\tsentence2"
            (folder / f"stsb_tr_{split}.tsv").write_text("\n".join([header, *lines]), encoding="utf-8")
        else:
            with (folder / f"stsb-{language}-{split}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(pairs)
    return sets


def test_the_tracks_of_sts2017(tmp_path: Path) -> None:
    sets = {
        "1.ar-ar": rows(1),
        "3.es-es": rows(2),
        "4a.es-en": rows(3),
        "4b.es-en": rows(4),
        "6.tr-en": rows(5),
    }
    for track, pairs in sets.items():
        write_track(tmp_path / "sts2017", track, pairs)
    (tmp_path / "sts2017" / "STS.input.track2.ar-en.txt").write_text("not\tscored\n")
    data = resolve_crosslingual_sts(str(tmp_path), "sts2017")
    assert data.pairs == ("ar-ar", "es-en-a", "es-en-b", "es-es", "tr-en")
    model = Lengths()
    figures = CrossLingualSTS(data)(model)
    values = {
        "ar-ar": expected(sets["1.ar-ar"]),
        "es-en-a": expected(sets["4a.es-en"]),
        "es-en-b": expected(sets["4b.es-en"]),
        "es-es": expected(sets["3.es-es"]),
        "tr-en": expected(sets["6.tr-en"]),
    }
    found = {pair: figures[f"xsts_{pair}_spearman_cosine_x100"] for pair in values}
    assert found == pytest.approx(values)
    mono = (values["ar-ar"] + values["es-es"]) / 2
    assert figures["xsts_mono_avg_spearman_cosine_x100"] == pytest.approx(mono)
    cross = (values["es-en-a"] + values["es-en-b"] + values["tr-en"]) / 3
    assert figures["xsts_cross_avg_spearman_cosine_x100"] == pytest.approx(cross)
    assert len(figures) == 7
    assert model.encoded == len({text for pairs in sets.values() for pair in pairs for text in pair[:2]})


def test_the_extended_layout(tmp_path: Path) -> None:
    for pair, seed in (("en-de", 1), ("nl-en", 2)):
        text = "".join(f"{a}\t{b}\t{gold}\n" for a, b, gold in rows(seed))
        (tmp_path / f"STS.{pair}.txt").write_text(text, encoding="utf-8")
    data = resolve_crosslingual_sts(str(tmp_path), "extended", pairs=("nl-en",))
    assert CrossLingualSTS(data, name="x")(Lengths()) == {
        "x_nl-en_spearman_cosine_x100": pytest.approx(expected(rows(2)))
    }
    (tmp_path / "STS.en-de.txt").write_text("one\ttwo\t3\none\ttwo\t7\n")
    with pytest.raises(BadInput, match=r"STS\.en-de\.txt, line 2: a gold score"):
        CrossLingualSTS(resolve_crosslingual_sts(str(tmp_path), "extended"))


def test_stsb_crosses_its_languages(tmp_path: Path) -> None:
    sets = write_stsb(tmp_path / "stsb_multi_mt")
    data = resolve_crosslingual_sts(str(tmp_path), "stsb", "dev")
    assert data.pairs == ("en-de", "en-tr")
    figures = CrossLingualSTS(data)(Lengths())
    for pair in data.pairs:
        first, second = (sets[language] for language in pair.split("-"))
        crossed = [(a, b, gold) for (a, _, gold), (_, b, _) in zip(first, second, strict=True)]
        assert figures[f"xsts_{pair}_spearman_cosine_x100"] == pytest.approx(expected(crossed))
    alone = resolve_crosslingual_sts(str(tmp_path), "stsb", "dev", ("tr-tr",))
    assert CrossLingualSTS(alone)(Lengths()) == {
        "xsts_tr-tr_spearman_cosine_x100": pytest.approx(expected(sets["tr"]))
    }


def test_translations_that_do_not_align_are_refused(tmp_path: Path) -> None:
    write_stsb(tmp_path)
    path = tmp_path / "stsb-de-dev.csv"
    path.write_text("\n".join(path.read_text().split("\n")[1:]))
    with pytest.raises(BadInput, match=r"same scores line by line.*20 and 19 pairs"):
        CrossLingualSTS(resolve_crosslingual_sts(str(tmp_path), "stsb", "dev", ("en-de",)))
    path.write_text("one,two\n")
    with pytest.raises(BadInput, match="line 1: must have 3 columns, but has 2"):
        CrossLingualSTS(resolve_crosslingual_sts(str(tmp_path), "stsb", "dev", ("en-de",)))
    (tmp_path / "stsb_tr_dev.tsv").write_text("genre\tscore\n")
    with pytest.raises(BadInput, match="columns sentence1, sentence2, score, but has genre, score"):
        CrossLingualSTS(resolve_crosslingual_sts(str(tmp_path), "stsb", "dev", ("en-tr",)))


def test_identity_depends_on_content_not_location(tmp_path: Path) -> None:
    write_track(tmp_path / "one", "5.en-en", rows(1))
    write_track(tmp_path / "two" / "sts2017", "5.en-en", rows(1))
    one, two = (
        spec(CrossLingualSTS, data=resolve_crosslingual_sts(str(tmp_path / place), "sts2017"))
        for place in ("one", "two")
    )
    assert fingerprint(one) == fingerprint(two)
    write_track(tmp_path / "two" / "sts2017", "5.en-en", rows(2))
    with pytest.raises(BadInput, match="data files must not change, but they have"):
        two.build()


def test_missing_files_and_unknown_names_are_reported(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="layout in"):
        resolve_crosslingual_sts(str(tmp_path), "sts2018")
    with pytest.raises(BadInput, match="split of sts2017"):
        resolve_crosslingual_sts(str(tmp_path), "sts2017", "dev")
    with pytest.raises(BadInput, match=r"data root .* has no dev files of stsb; found: none.*stsb_multi_mt"):
        resolve_crosslingual_sts(str(tmp_path), "stsb", "dev")
    write_stsb(tmp_path)
    with pytest.raises(BadInput, match=r"files of stsb for en-fr; found: de, en, tr"):
        resolve_crosslingual_sts(str(tmp_path), "stsb", "dev", ("en-de", "en-fr"))


def test_only_dev_sets_may_select(tmp_path: Path, workspace: Workspace) -> None:
    write_track(tmp_path, "5.en-en", rows(1))
    write_stsb(tmp_path)
    test = spec(CrossLingualSTS, data=resolve_crosslingual_sts(str(tmp_path), "sts2017"))
    dev = spec(CrossLingualSTS, data=resolve_crosslingual_sts(str(tmp_path), "stsb", "dev"))
    select = "xsts_en-de_spearman_cosine_x100"
    assert select in run_suite(DevSuite((dev,), select), Lengths(), workspace)
    assert run_suite(TestSuite((test,)), Lengths(), workspace)
    with pytest.raises(BadInput, match="only hold dev sets"):
        run_suite(DevSuite((test,), "xsts_en-en_spearman_cosine_x100"), Lengths(), workspace)
