"""Draw `overview.png`, the picture of the README, from `overview.csv`.

    python docs/figures/overview.py

The numbers are those under "Measured" in `docs/evaluation.md`; a test compares them.
"""

import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

HERE = Path(__file__).resolve().parent
INK, TEACHER, STUDENT = "#263238", "#b0bec5", "#00897b"


def main() -> None:
    """Write the picture beside this file."""
    with (HERE / "overview.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    colours = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    plt.rcParams.update({"font.size": 11, **colours})
    figure, (kept, cost) = plt.subplots(1, 2, figsize=(11, 3.7), width_ratios=(1.15, 1))
    draw_kept(kept, [row for row in rows if row["panel"] == "kept"])
    draw_cost(cost, [row for row in rows if row["panel"] == "cost"])
    for axes in (kept, cost):
        axes.spines[["top", "right", "bottom", "left"]].set_visible(False)
        axes.tick_params(length=0)
        axes.set_xticks([])
    figure.tight_layout(w_pad=3)
    figure.savefig(HERE / "overview.png", dpi=150, facecolor="white")


def draw_kept(axes: Axes, rows: list[dict[str, str]]) -> None:
    """Bars: the student's figure as a percentage of the teacher's."""
    shares = [100 * float(row["student"]) / float(row["teacher"]) for row in rows][::-1]
    axes.barh(range(len(rows)), [100] * len(rows), color=TEACHER, height=0.62, alpha=0.45)
    axes.barh(range(len(rows)), shares, color=STUDENT, height=0.62)
    for position, share in enumerate(shares):
        axes.text(share - 1.5, position, f"{share:.1f} %", color="white", va="center", ha="right")
    axes.set_yticks(range(len(rows)), [row["label"] for row in rows][::-1])
    axes.set_title("Quality kept by the student", loc="left", fontsize=12)


def draw_cost(axes: Axes, rows: list[dict[str, str]]) -> None:
    """Two bars per row, teacher and student, each row on a scale of its own."""
    for position, row in enumerate(rows[::-1]):
        teacher, student = float(row["teacher"]), float(row["student"])
        largest = max(teacher, student)
        for offset, value, colour in ((0.2, teacher, TEACHER), (-0.2, student, STUDENT)):
            axes.barh(position + offset, value / largest, color=colour, height=0.36)
            axes.text(value / largest + 0.02, position + offset, f"{value:g}", va="center", fontsize=10)
    axes.set_xlim(0, 1.22)
    axes.set_yticks(range(len(rows)), [row["label"] for row in rows][::-1])
    axes.set_title("Cost of teacher and student", loc="left", fontsize=12)


if __name__ == "__main__":
    main()
