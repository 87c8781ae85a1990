"""A student's learning curve as a picture."""

import io
from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stillhouse.tracking import readable
from stillhouse.training.learning_curve import StageCurve

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


class Drawn(Figure):
    """A figure of matplotlib that a notebook shows without any setting."""

    def _repr_png_(self) -> bytes:
        page = io.BytesIO()
        self.savefig(page, format="png", dpi=100, metadata={"Software": None})
        return page.getvalue()


def draw_curve(stages: Sequence[StageCurve]) -> Drawn:
    """Draw the selecting dev figure and the loss over examples, one colour per stage."""
    figure = Drawn(figsize=(9, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    quality, loss = figure.subplots(1, 2)
    for stage, colour in zip(stages, _COLOURS * len(stages), strict=False):
        points = [(at, dev[stage.select]) for at, dev in stage.dev if stage.select in dev]
        if points:
            quality.plot(*zip(*points, strict=True), marker="o", color=colour, label=stage.label)
        if stage.loss:
            loss.plot(*zip(*stage.loss, strict=True), color=colour, label=stage.label)
    first = stages[0]
    if first.select in first.before:
        quality.axhline(first.before[first.select], color="#9A9A9A", linestyle=":", label="before training")
    name = next((readable(stage.select) for stage in reversed(stages) if stage.select), "dev")
    quality.set(title=name, xlabel="examples")
    loss.set(title="loss", xlabel="examples")
    for plot in (quality, loss):
        if plot.has_data():
            plot.legend(frameon=False)
    return figure
