from typing import Any

from stillhouse.reports.sweep_tables import (
    comparison_table,
    comparison_table_markdown,
    headline,
    sweep_description,
    trial_table,
    trial_table_markdown,
)
from stillhouse.search.records import TrialRecord

QUALITY = "docsearch_cosine_mrr@10"
FIGURES = {"docsearch_cosine_ndcg@10": 0.5, "agreement_spearman_cosine": 0.8, "sts_spearman_cosine": 0.7}


def record(
    number: int, quality: float | None, state: str = "COMPLETE", **hyper_parameters: Any
) -> TrialRecord:
    return TrialRecord(
        number=number,
        hyper_parameters={"optimizer": "adam", **hyper_parameters},
        state=state,
        values=None if quality is None else (quality,),
        curve={},
        reason="mean cosine of random pairs\nis 0.99, of 1000 | pairs" if state == "FAIL" else None,
        seconds=None if state == "RUNNING" else 41.6,
        examples=2048 * (number + 1),
        metrics={} if quality is None else {QUALITY: quality, **FIGURES},
        attributes={},
    )


TRIALS = [
    record(0, 0.45, distil_learning_rate=1e-4, distil_temperature=0.05),
    record(1, 0.54, distil_learning_rate=3e-5, distil_temperature=0.1),
    record(2, 0.60, "PRUNED", distil_learning_rate=1e-5, distil_temperature=0.5),
    record(3, None, "FAIL", distil_learning_rate=1e-5, distil_temperature=0.01),
    record(4, None, "RUNNING", distil_learning_rate=1e-5, distil_temperature=0.2),
]
TESTED: dict[str, dict[str, Any]] = {
    "student": {
        "metrics": {QUALITY: 0.5, "agreement_spearman_cosine": 0.9},
        "cost": {"parameters": 17_000_000.0, "megabytes": 68.31, "sentences_per_second": 912.3},
        "trials": 8,
        "refitted": True,
        "examples": 44_992,
        "labelled": 2_000,
    },
    "teacher": {
        "metrics": {QUALITY: 0.6, "agreement_spearman_cosine": 1.0},
        "cost": {"parameters": 22_713_216.0, "megabytes": 90.85, "sentences_per_second": 450.4},
    },
    "untrained": {"metrics": {QUALITY: 0.1}, "cost": {}, "examples": 0},
    "baseline": {"metrics": {QUALITY: 0.4, "agreement_spearman_cosine": 0.7}, "cost": {"parameters": 33.0}},
}


def line_of(table: str, start: str) -> list[str]:
    (found,) = [line for line in table.splitlines() if line.lstrip().startswith(start)]
    return found.split()


def test_one_line_per_trial() -> None:
    table = trial_table(TRIALS, QUALITY, {QUALITY: 0.6})
    assert max(map(len, table.splitlines())) <= 140
    assert "all trials: optimizer=adam" in table
    assert line_of(table, "*1")[:6] == ["*1", "3e-5", "0.1", "0.5400", "0.5000", "0.8000"]
    assert line_of(table, "*1")[7:] == ["90.0", "%", "4,096", "42", "finished"]
    assert table.count("*") == 2, "one marker and its legend"
    assert line_of(table, "2 ")[-2:] == ["stopped", "early"]
    assert line_of(table, "4 ")[-2:] == ["–", "unfinished"]
    assert "failed: mean cosine of random pairs is 0.99, of 1000 | pairs" in table


def test_numbers_are_right_aligned() -> None:
    lines = [line for line in trial_table(TRIALS[:2], QUALITY).splitlines() if "finished" in line]
    assert len({line.index("finished") for line in lines}) == 1
    assert lines[0].index("0.4500") == lines[1].index("0.5400")


def test_figures_with_the_same_last_part_keep_full_names() -> None:
    table = trial_table(TRIALS, QUALITY)
    assert "mrr@10 is docsearch_cosine_mrr@10" in table
    assert "spearman is" not in table


def test_a_narrow_terminal_gets_all_hyper_parameters() -> None:
    many = []
    for number in range(3):
        parameters: dict[str, Any] = {f"parameter_{j}": number + j for j in range(20)}
        many.append(record(number, 0.1 * number, **parameters))
    table = trial_table(many, QUALITY, width=80)
    assert max(map(len, table.splitlines())) <= 80
    assert "parameter_19=21" in table and "[...]" not in table
    assert "not shown: docsearch_cosine_ndcg@10" in table.replace("\n", " ")


def test_markdown_has_everything() -> None:
    lines = trial_table_markdown(TRIALS, QUALITY, {QUALITY: 0.6}).splitlines()
    assert len(lines) == 2 + len(TRIALS)
    header = [cell.strip() for cell in lines[0].strip("|").split("|")]
    assert header[:4] == ["trial", "optimizer", "distil_learning_rate", "distil_temperature"]
    assert "0.99, of 1000 \\| pairs" in lines[5]
    assert all(line.replace("\\|", "").count("|") == lines[0].count("|") for line in lines)


def test_without_trials() -> None:
    assert trial_table([], QUALITY) == "no trial was started."
    assert "kept" not in trial_table(TRIALS, QUALITY)


def test_comparison_has_the_four_models_in_order() -> None:
    table = comparison_table(TESTED)
    names = [line.split("  ")[0] for line in table.splitlines()[2:6]]
    assert names == ["teacher", "best student", "MSE baseline", "untrained student"]
    assert line_of(table, "teacher")[1:] == [*"––––", "0.6000", "1.0000", "22.71", "M", "90.8", "450"]
    assert line_of(table, "best student")[2:7] == ["8", "yes", "44,992", "2,000", "0.5000"]
    assert line_of(table, "MSE baseline")[8:] == ["33", "–", "–"]
    assert line_of(table, "untrained")[2:] == ["–", "–", "0", "–", "0.1000", "–", "–", "–", "–"]


def test_the_result_in_one_line() -> None:
    assert headline(TESTED, QUALITY) == (
        "best student: 83 % of the teacher's MRR@10 (0.5000 / 0.6000), 75 % of its size, 2.0 times as fast"
    )
    alone = {**TESTED, "teacher": {"metrics": {}, "cost": {}}}
    assert headline(alone, QUALITY) == "best student: MRR@10 0.5000"
    assert headline(TESTED, "agreement_spearman_cosine").startswith(
        "best student: 90 % of the teacher's agreement spearman (0.9000 / 1.0000), "
    )


def test_comparison_in_a_narrow_terminal_is_split_in_two() -> None:
    table = comparison_table(TESTED, width=60)
    assert max(map(len, table.splitlines())) <= 60
    assert table.count("best student") == 2
    assert "sentences/s" in table


def test_many_figures_are_cut_into_tables_that_fit_and_none_is_left_out() -> None:
    figures = {
        f"sts{year}_{kind}": float(year) for year in range(12, 17) for kind in ("all", "mean", "wmean")
    }
    table = comparison_table({who: {**TESTED[who], "metrics": figures} for who in TESTED}, width=100)
    assert max(map(len, table.splitlines())) <= 100
    rows = [line for line in table.splitlines() if line.startswith("best student")]
    assert len(rows) == 3
    assert " ".join(rows).replace("best student", "").split()[4:] == [
        *(f"{value:.4f}" for value in figures.values()),
        "17.00",
        "M",
        "68.3",
        "912",
    ]


def test_comparison_as_markdown() -> None:
    lines = comparison_table_markdown(TESTED).splitlines()
    assert len(lines) == 6
    assert lines[2].startswith("| teacher | – | – | – | – | 0.6000 |")


def test_sweep_description_has_the_best_student_test_figures_and_best_trials() -> None:
    text = sweep_description(TRIALS, QUALITY, TESTED, "student-x", {QUALITY: 0.6})
    assert text.startswith(
        "**Best student: trial 1**, docsearch mrr@10 0.5400 on dev, 90.0 % of the teacher's. "
        "Registered as `models:/student-x@champion`."
    )
    assert "| best student | 8 | yes | 44,992 | 2,000 | 0.5000 |" in text and "more trials" not in text
    ranking = text.partition("## Trials by docsearch mrr@10 (dev)")[2]
    firsts = [line.split("|")[1].strip() for line in ranking.splitlines() if line.startswith("|")]
    assert firsts == ["trial", "--:", "*1", "0", "2", "3", "4"]
    short = sweep_description(TRIALS, QUALITY, TESTED, "student-x", {QUALITY: 0.6}, most=len(text) - 200)
    assert len(short) <= len(text) - 200 and "more trials are in `report.md`." in short
    assert "| *1 |" in short, "the best trials stay"
