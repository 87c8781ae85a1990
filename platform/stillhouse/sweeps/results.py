"""Results of the Python interface: a trained student, and an export of one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.core.devices import resolve_device
from stillhouse.core.types import Encoder, FloatArray
from stillhouse.reports.model_card import DevChange
from stillhouse.reports.row_table import Rows
from stillhouse.training.learning_curve import StageCurve, learning_curve
from stillhouse.training.models import encoder_in

if TYPE_CHECKING:
    from stillhouse.reports.drawn_curve import Drawn


@dataclass(frozen=True)
class Exported:
    """An exported student.

    Attributes:
        folder: The folder that was written.
        form: Its form, such as ``onnx-int8``.
        cosine: The lowest cosine between vectors of the exported and of the trained student.
        megabytes: Size of the folder, in 10^6 bytes.
        dev: The dev figure of an export in 8 bits beside the trained student's.
    """

    folder: Path
    form: str
    cosine: float
    megabytes: float
    dev: "DevChange | None" = None

    def __str__(self) -> str:
        """The line that `stillhouse export` prints."""
        dev = f", {self.dev}" if self.dev else ""
        return (
            f"{self.folder} ({self.form}, {self.megabytes:.1f} MB, "
            f"lowest cosine to the trained student {self.cosine:.7f}{dev})"
        )


@dataclass(frozen=True)
class Trained:
    """A trained student. A notebook shows its figures and its curve.

    Attributes:
        folder: Folder of the last stage; `export` and `evaluate` take it.
        metrics: Dev figures by name.
        seconds: Duration of the last stage.
    """

    folder: Path
    metrics: Mapping[str, float]
    seconds: float

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """Give the student's vectors of texts, (N, D)."""
        return self._encoder.encode(list(texts))

    def save(self, folder: Path | str, form: str = "sentence-transformers") -> Exported:
        """Export the student; see `stillhouse.export`."""
        from stillhouse.sweeps.stage_export import exported

        return exported(self.folder, Path(folder), form=form)

    def curve(self) -> "Drawn":
        """Draw the dev figure and the loss over examples: a figure of matplotlib, which a notebook shows."""
        from stillhouse.reports.drawn_curve import draw_curve

        return draw_curve(self._stages)

    @property
    def start(self) -> Mapping[str, float]:
        """Dev figures of the student before it was trained; empty where they were not measured."""
        return self._stages[0].before

    @property
    def figures(self) -> Rows:
        """The dev figures before and after the training, one per row."""
        return Rows(
            {"dev figure": name, "before": self.start.get(name), "after": value}
            for name, value in self.metrics.items()
        )

    @cached_property
    def _stages(self) -> list[StageCurve]:
        return learning_curve(self.folder)

    @cached_property
    def _encoder(self) -> Encoder:
        encoder: Encoder = encoder_in(self.folder, resolve_device("auto"))
        return encoder

    def _repr_html_(self) -> str:
        from base64 import b64encode

        picture = b64encode(self.curve()._repr_png_()).decode()
        shown = f'<img alt="learning curve" src="data:image/png;base64,{picture}">'
        return f"<p><code>{escape(self.folder.name)}</code></p>{self.figures._repr_html_()}{shown}"
