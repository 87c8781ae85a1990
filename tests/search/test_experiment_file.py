"""Experiment files: values, variants, scales, and the folder of the data."""

from pathlib import Path

import pytest
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.experiments.fields import experiment_of, merged
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.search.experiment_file import (
    Summary,
    load_base,
    load_runs,
    load_search,
    load_summary,
    variants_named,
)
from stillhouse.search.space import load_space

TEXT = """
method: ibkd
preset: repo
values: {beta1: 0.5, kernel: imq}
sentences: {corpus: $STILLHOUSE_DATA/texts.txt, count: 0}
budget: {distil: 1000, finetune: 100}
variants:
  whole: {}
  first: {budget: {finetune: 0}}
  other: {method: mse, preset: paper, values: {learning_rate: 1e-4}, sentences: {count: 7}}
search:
  space: {kernel: [rbf, imq], gamma: [0.1, 0.5]}
  first: {kernel: rbf, gamma: 0.5}
scale:
  small:
    sentences: {corpus: pydocs, count: 50}
    budget: {distil: 10, finetune: 5}
    values: {beta1: 0.1}
    variants:
      first: {values: {gamma: 0.2}}
      whole: null
    search: {space: {gamma: [0.5]}}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "file.yaml"
    file.write_text(TEXT, encoding="utf-8")
    return file


def test_a_variant_changes_the_file(path: Path) -> None:
    whole, first, other = load_runs(path, data_root="/data")
    assert (whole.name, whole.method, whole.preset) == ("whole", "ibkd", "repo")
    assert whole.values == {"beta1": 0.5, "kernel": "imq"}
    assert whole.experiment["sentences"] == {"corpus": "/data/texts.txt", "count": 0}
    assert set(whole.experiment) == {"sentences", "budget"}
    assert first.experiment["budget"] == {"distil": 1000, "finetune": 0}
    assert (other.method, other.preset, other.values["learning_rate"]) == ("mse", "paper", 1e-4)
    assert other.experiment["sentences"] == {"corpus": "/data/texts.txt", "count": 7}


def test_a_scale_changes_the_file_and_a_variant_changes_the_scale(path: Path) -> None:
    first, other = load_runs(path, scale="small")
    assert first.values == {"beta1": 0.1, "kernel": "imq", "gamma": 0.2}
    assert first.experiment["budget"] == {"distil": 10, "finetune": 0}
    assert first.experiment["sentences"] == {"corpus": "pydocs", "count": 50}
    assert other.experiment["sentences"] == {"corpus": "pydocs", "count": 7}
    assert "gamma" not in other.values
    assert load_base(path, scale="small").experiment["budget"] == {"distil": 10, "finetune": 5}


def test_a_file_takes_the_fields_and_scales_of_another_not_its_rows(path: Path) -> None:
    more = path.with_name("more.yaml")
    text = "extends: file.yaml\nvalues: {kernel: rbf}\nbudget: {finetune: 7}\n"
    more.write_text(text, encoding="utf-8")
    (run,) = load_runs(more, data_root="/data")
    assert (run.name, run.method, run.preset) == ("", "ibkd", "repo")
    assert run.values == {"beta1": 0.5, "kernel": "rbf"}
    assert run.experiment["budget"] == {"distil": 1000, "finetune": 7}
    (small,) = load_runs(more, scale="small")
    assert small.experiment["budget"] == {"distil": 10, "finetune": 5} and small.values["beta1"] == 0.1
    assert load_search(more) == {} and load_search(more, scale="small") == {}
    path.write_text("extends: more.yaml\n", encoding="utf-8")
    with pytest.raises(BadInput, match="`extends` must name another experiment file"):
        load_base(more)
    path.write_text("method: mse\nscale: {small: 3}\n", encoding="utf-8")
    with pytest.raises(BadInput, match="`small` must map names to values"):
        load_base(more)


def test_a_scale_names_several_variants_by_their_beginning(path: Path) -> None:
    path.write_text(TEXT.replace("whole: null", '"*o*e*": {budget: {distil: 3}}'), encoding="utf-8")
    runs = {run.name: run.experiment["budget"]["distil"] for run in load_runs(path, scale="small")}
    assert runs == {"whole": 3, "first": 10, "other": 3}
    path.write_text(TEXT.replace("whole: null", "who*: null"), encoding="utf-8")
    assert [run.name for run in load_runs(path, scale="small")] == ["first", "other"]
    path.write_text(TEXT.replace("whole: null", "x*: null"), encoding="utf-8")
    with pytest.raises(BadInput, match=r"changes an unknown variant `x\*`"):
        load_runs(path, scale="small")


def test_a_search_fixes_the_values_that_it_does_not_search(path: Path) -> None:
    space = load_space(path, data_root="/data")
    assert space.fixed == {"beta1": 0.5}
    assert space.points == 4
    small = load_space(path, scale="small")
    assert small.fixed == {"beta1": 0.1}
    assert small.points == 2
    assert small.fingerprint != space.fingerprint


def test_an_unknown_scale_or_variant_is_refused_with_near_ones(path: Path) -> None:
    with pytest.raises(BadInput, match=r"unknown scale 'smal'.*small"):
        load_runs(path, scale="smal")
    with pytest.raises(BadInput, match=r"unknown variant 'frist'.*first"):
        variants_named(load_runs(path, scale="small"), ["frist"], str(path))
    assert [run.name for run in variants_named(load_runs(path, scale="small"), ["other"], "")] == ["other"]
    path.write_text(TEXT.replace("whole: null", "hole: null"), encoding="utf-8")
    with pytest.raises(BadInput, match=r"unknown variant `hole`.*whole"):
        load_runs(path, scale="small")
    path.write_text("method: ibkd\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"unknown scale 'small'\. The file has none"):
        load_base(path, scale="small")


def test_the_folder_of_the_data_must_be_given(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STILLHOUSE_DATA", raising=False)
    run = load_base(path)
    with pytest.raises(BadInput, match="--data-root"):
        experiment_of(run.experiment)
    instead = experiment_of(merged(run.experiment, {"sentences.corpus": "own.txt"}))
    assert instead.get(Sentences).corpus == "own.txt"
    monkeypatch.setenv("STILLHOUSE_DATA", "/elsewhere")
    assert load_runs(path)[0].experiment["sentences"]["corpus"] == "/elsewhere/texts.txt"
    assert load_runs(path, data_root="/data")[0].experiment["sentences"]["corpus"] == "/data/texts.txt"


def test_the_folder_of_the_data_is_filled_in_for_every_source(path: Path) -> None:
    sources = "{sources: [{corpus: $STILLHOUSE_DATA/a.txt, share: 2}, {corpus: pydocs}], count: 9}"
    path.write_text(f"method: mse\nsentences: {sources}\n", encoding="utf-8")
    (run,) = load_runs(path, data_root="/data")
    assert run.experiment["sentences"]["sources"] == [
        {"corpus": "/data/a.txt", "share": 2},
        {"corpus": "pydocs"},
    ]


@each_row(
    "text",
    ["? [a, b]\n: 1\n", "? {a: 1}\n: 2\n", "~: 1\n", "2001-01-01: 1\n", "[" * 3000, "{a: " * 3000,
     "a: &x [*x]\n? *x\n: 1\n", "a: 2001-99-99\n", "a: !!int x\n", "a: !!binary x\n", "method: {1: 2}\n",
     "a: !!set {? {}}\n"],
)  # fmt: skip
def test_odd_yaml_is_bad_input(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text, encoding="utf-8")
    for read in (load_base, load_runs):
        with pytest.raises(BadInput, match=r"odd\.yaml|search space"):
            read(path)


@each_row(
    ("line", "expected"),
    [
        ("{mean: [whole, first]}", {"a": 1.5, "b": 5.0}),
        ("{mean: [whole, first], minus: other}", {"a": -8.5, "b": 4.0}),
        ("{best: [whole, first], by: a}", {"a": 2.0, "b": 3.0, "c": 1.0}),
        ("{best: [whole, first], by: b, minus: other}", {"a": -9.0, "b": 6.0}),
    ],
)
def test_a_summary_is_a_mean_or_the_best_of_variants(
    path: Path, line: str, expected: dict[str, float]
) -> None:
    path.write_text(f"{TEXT}\nsummary:\n  line: {line}\n", encoding="utf-8")
    (summary,) = load_summary(path)
    metrics = {
        "whole": {"a": 1.0, "b": 7.0},
        "first": {"a": 2.0, "b": 3.0, "c": 1.0},
        "other": {"a": 10.0, "b": 1.0},
    }
    assert summary.name == "line" and summary.figures(metrics) == expected
    assert load_runs(path, data_root="/data"), "its lines are no fields of the experiment"


@each_row(
    ("line", "message"),
    [
        ("{mean: [whole, furst]}", "unknown variant.*first"),
        ("{mean: [whole], minus: furst}", "unknown variant.*first"),
        ("{best: [whole, first]}", "must be"),
        ("{mean: [whole], by: a}", "must be"),
        ("{mean: []}", "must be"),
        ("[whole]", "must be"),
    ],
)
def test_a_summary_of_another_form_is_refused(path: Path, line: str, message: str) -> None:
    path.write_text(f"{TEXT}\nsummary:\n  line: {line}\n", encoding="utf-8")
    with pytest.raises(BadInput, match=message):
        load_summary(path)


def test_the_best_by_an_unknown_figure_is_refused() -> None:
    with pytest.raises(BadInput, match=r"takes the best by `dcg`.*fever_dcg"):
        Summary("line", ("one",), by="dcg").figures({"one": {"fever_dcg": 1.0}})
