"""Telling trained weights from random ones, by what a fresh model has and no trained one.

A fresh layer has norms that are all 1 (or all 0, where a norm adds 1 itself), biases that are all 0, and
matrices whose entries are independent draws. Training changes all three. A layer counts as random only where
everything that it has says so: a trained model whose norms were folded into the next matrix, or one without
biases, still has matrices of which some rows and columns are longer than others.

M  rows of a matrix    N  its columns
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import Spec
from stillhouse.core.model_folder import read_folder
from stillhouse.preflight.finding import ERROR, NOTE, WARNING, Finding
from stillhouse.preflight.planned import Planned
from stillhouse.students.bilstm import BiLSTMStudent
from stillhouse.students.coattention import CoattentionScorer
from stillhouse.students.pair_transformer import TransformerScorer
from stillhouse.students.towers import SeparateTowers, SimpleCNN, SimpleLSTM
from stillhouse.values.data import Model, teachers_in

CHECK = "weights"
_ROWS = 256
"""Rows of a matrix that are looked at."""
_LEAST = 8
"""Rows and columns below which a matrix says nothing."""
_KURTOSIS = (1.5, 3.6)
"""Of uniform draws 1.8, of normal ones 3; trained matrices have heavier tails, or rows of unequal length."""
_BY_DESIGN: dict[Any, str] = {
    BiLSTMStudent: "everything but its word vectors",
    CoattentionScorer: "everything but its word vectors",
    TransformerScorer: "its output layer",
    SeparateTowers: "everything but its word vectors",
    SimpleCNN: "everything but its word vectors",
    SimpleLSTM: "everything but its word vectors",
}
"""Parts of students that start random because their papers say so."""


@dataclass(frozen=True)
class Layers:
    """The layers of a folder in order, one for a model without any, and those that look like random draws."""

    names: tuple[str, ...]
    untrained: tuple[str, ...]

    def of(self, kept: Sequence[int] | None) -> "Layers":
        """Only some of the layers, counted from 0; None keeps all."""
        if kept is None or len(self.names) <= max(kept, default=0):
            return self
        names = tuple(self.names[place] for place in kept)
        return Layers(names, tuple(name for name in names if name in self.untrained))

    @property
    def all_untrained(self) -> bool:
        """True if no layer looks trained."""
        return bool(self.names) and len(self.untrained) == len(self.names)


def look_at(folder: Path) -> Layers:
    """Look at the weights of a model's encoder. Of a trained one only its norms and biases are read.

    Raises:
        BadInput: A file cannot be read.
    """
    with ExitStack() as opened:
        tensors = _opened(read_folder(folder).transformer, opened)
        layers: dict[str, list[str]] = {}
        for name in tensors:
            layers.setdefault(layer_of(name), []).append(name)
        if len(layers) > 1:
            layers.pop("", None)
        names = sorted(layers, key=_place)
        drawn = tuple(name for name in names if _untrained({each: tensors[each] for each in layers[name]}))
    return Layers(tuple(names), drawn)


def layer_of(name: str) -> str:
    """The layer that a tensor belongs to: its name up to the first number; empty outside of all layers."""
    parts = name.split(".")
    place = next((at for at, part in enumerate(parts) if at and part.isdecimal()), None)
    return "" if place is None else ".".join(parts[: place + 1])


def drawn(matrix_MN: Tensor) -> bool:
    """Whether the entries of a matrix look like independent draws from one distribution without long tails.

    The mean square of a row of independent entries varies by sqrt((k − 1)/N) of itself from row to row, where
    k is the kurtosis; that of a column by sqrt((k − 1)/M). Trained matrices vary more.
    """
    squares_MN = matrix_MN.double().square()
    squares_MN = squares_MN[squares_MN.sum(dim=1) > 0]  # the row of the padding token
    rows, columns = squares_MN.shape
    if min(rows, columns) < _LEAST:
        return False
    mean = squares_MN.mean()
    kurtosis = float(squares_MN.square().mean() / mean**2)
    if not _KURTOSIS[0] <= kurtosis <= _KURTOSIS[1]:
        return False
    for dim, averaged, count in ((1, columns, rows), (0, rows, columns)):
        varies = float(squares_MN.mean(dim=dim).std() / mean)
        if varies > math.sqrt((kurtosis - 1) / averaged) * (1 + 4 / math.sqrt(2 * count)):
            return False
    return True


def teacher_weights(planned: Planned) -> list[Finding]:
    """Say whether the teacher's weights are trained ones."""
    return [
        finding for teacher in planned.teacher.models for finding in _of_model(teacher, None, "the teacher")
    ]


def student_weights(planned: Planned) -> list[Finding]:
    """Say whether the weights that students start from are trained ones, and which are random by design."""
    findings: list[Finding] = []
    fitted = any(stage.least_squares for stage in planned.stages)
    specs = [stage.student for stage in planned.stages if stage.start_from is None]
    for spec in {repr(spec): spec for spec in specs}.values():
        for model in checkpoints_of(spec):
            same = any(model.sha256 == teacher.sha256 for teacher in planned.teacher.models)
            # Where no word vectors are given, random ones of the words of the texts are made there.
            made_here = Path(model.path).is_relative_to(planned.workspace.root.resolve())
            if spec.kwargs.get("pretrained", True) and not same and not made_here:
                findings += _of_model(model, kept_layers(spec), "the checkpoint of the student")
        findings += _by_design(spec, fitted=fitted)
    return list(dict.fromkeys(findings))


def _opened(folder: Path, opened: ExitStack) -> dict[str, Any]:
    """The tensors of a folder's files, none of which is read yet."""
    tensors: dict[str, Any] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            weights = opened.enter_context(safe_open(file, "pt"))
        except (OSError, SafetensorError) as error:
            raise BadInput(f"{file} must be readable, but reading it gave: {error}.") from error
        tensors.update({name: weights.get_slice(name) for name in weights.keys()})
    return tensors


def tensor_shapes(folder: Path) -> dict[str, Sequence[int]]:
    """The shapes of the weights of a model's encoder, by name; only headers are read.

    Raises:
        BadInput: A file cannot be read.
    """
    with ExitStack() as opened:
        return {
            name: tensor.get_shape()
            for name, tensor in _opened(read_folder(folder).transformer, opened).items()
        }


def _untrained(tensors: dict[str, Any]) -> bool:
    """Return whether everything that a layer has says that it was never trained."""
    shapes = {name: tensor.get_shape() for name, tensor in tensors.items()}
    for name, shape in shapes.items():
        if len(shape) == 1:
            values = tensors[name][:]
            bias = name.rpartition(".")[2] in ("bias", "beta") or name.endswith("_bias")
            if not ((values == 0).all() or (not bias and (values == 1).all())):
                return False
    matrices = [name for name, shape in shapes.items() if len(shape) == 2 and min(shape) >= _LEAST]
    return bool(matrices) and all(drawn(tensors[name][:_ROWS]) for name in matrices)


def _of_model(model: Model, kept: Sequence[int] | None, who: str) -> list[Finding]:
    layers = look_at(Path(model.path)).of(kept)
    name = model.title
    if layers.all_untrained:
        found = (
            f"{who}, {name}, has weights that were never trained: in every layer that is used "
            f"({len(layers.names)}) norms are 1, biases are 0 and matrices are plain random draws."
        )
        remedy = (
            "Name a trained checkpoint; a folder that was made from a configuration alone has random weights."
        )
        return [Finding(CHECK, ERROR, found, remedy)]
    if layers.untrained:
        found = (
            f"{who}, {name}, has layers that look as if they were never trained: "
            f"{', '.join(layers.untrained)} of {len(layers.names)}."
        )
        remedy = "Check how the folder was made, or leave these layers out (student.layers)."
        return [Finding(CHECK, WARNING, found, remedy)]
    return []


def _by_design(spec: Spec[Any], *, fitted: bool = False) -> list[Finding]:
    random = [_BY_DESIGN[spec.target]] if spec.target in _BY_DESIGN else []
    if not spec.kwargs.get("pretrained", True):
        random.append("all of it (pretrained=False)")
    if spec.kwargs.get("projection") and not fitted:
        random.append(f"its projection to {spec.kwargs['projection']} dimensions")
    if not random:
        return []
    return [Finding(CHECK, NOTE, f"the student starts random by design in part: {', '.join(random)}.")]


def checkpoints_of(value: Any) -> Iterator[Model]:
    """The checkpoints that the spec of a student names, those of nested specs among them."""
    for teacher in teachers_in(value):
        if teacher.checkpoint and teacher.checkpoint.path:  # one of a plan without data is not there
            yield teacher.checkpoint


def kept_layers(student: Spec[Any]) -> Sequence[int] | None:
    """The layers that a student keeps of its checkpoint; None where it keeps all."""
    layers = student.kwargs.get("layers")
    return layers if isinstance(layers, Sequence) else None


def _place(name: str) -> tuple[str, int]:
    before, _, number = name.rpartition(".")
    return (before, int(number)) if number.isdecimal() else (name, 0)
