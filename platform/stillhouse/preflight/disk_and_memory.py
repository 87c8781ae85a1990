"""Disk and memory that a run needs, against what is free. All figures are estimates."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from stillhouse.core.artifacts import free_bytes
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import Spec
from stillhouse.core.machine import available_memory
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.corpora.tables import ROWS_PER_SHARD, open_texts, sample_of, shard_count, shard_size
from stillhouse.preflight.finding import ERROR, NOTE, WARNING, Finding
from stillhouse.preflight.planned import SAMPLE, Planned
from stillhouse.preflight.trained_weights import checkpoints_of, kept_layers, layer_of, tensor_shapes
from stillhouse.students.backbone import read_config
from stillhouse.students.sizes import sizes
from stillhouse.teachers.forward import default_batch_tokens
from stillhouse.teachers.loading import tokenizer_of
from stillhouse.training.module import build_student
from stillhouse.values.data import Examples, FewerNegatives, Mined, Model
from stillhouse.values.stage import Stage

_WEIGHT = 4
"""Bytes of a weight in float32."""
_COPIES = 6
"""Numbers per weight while a student is trained: the weight, its gradient, Adam's two moments, what a step of
Adam computes beside them, and the copy that is written at the end."""
_LIBRARIES = 150_000_000
"""Bytes that kernels, tokenizers and open tables take beside the model in a process that runs one."""
KEPT = 3
"""Checkpoints of a stage on the disk at once: the best, the last, and the one that is being written."""
_TIGHT = 0.8
"""Share of what is free from which on a need is worth a warning."""
_PER_STATE = 68
"""Bytes per layer, token and hidden dimension that a backward pass keeps in float32: 34 of 16-bit numbers
(arXiv:2205.05198, table 2, without the matrix of attention)."""
_PASSING = 56
"""The same of a forward pass alone, of one layer at a time."""


def disk_space(planned: Planned, *, trials: int = 1) -> list[Finding]:
    """Compare the disk space that a run, of so many students, needs with what is free."""
    folder = next(each for each in (planned.workspace.root, *planned.workspace.root.parents) if each.exists())
    free, stores, students = free_bytes(folder), _stored_bytes(planned), _student_bytes(planned, trials)
    needed = stores + students
    found = (
        f"about {in_bytes(needed)} will be written to {folder} ({in_bytes(stores)} of vectors and tokens, "
        f"{in_bytes(students)} of checkpoints and students), where {in_bytes(free)} are free."
    )
    return _compared("disk", needed, free, found, "Free some space, or give another --root.")


def memory(planned: Planned) -> list[Finding]:
    """Compare the memory that teacher and training need with what is free on their device."""
    teacher = teacher_bytes(planned)
    training = max(training_bytes(planned, stage) for stage in planned.stages)
    free = _free_memory(planned.device)
    found = (
        f"the teacher needs about {in_bytes(teacher)} of memory and a step of training about "
        f"{in_bytes(training)}; {in_bytes(free)} are free on {planned.device}."
    )
    remedy = "Lower the batch size, raise budget.accumulate, or use a larger machine."
    return _compared("memory", max(teacher, training), free, found, remedy)


def student_size(planned: Planned) -> list[Finding]:
    """Say how large the finished student will be."""
    megabytes = student_megabytes(planned.stage)
    return [Finding("size", NOTE, f"the student has {megabytes:,.1f} MB of weights in float32.")]


def student_megabytes(stage: Stage) -> float:
    """Return 10^6 bytes of a stage's student in float32, which is built for it."""
    return sizes(build_student(stage))["megabytes"]


def teacher_bytes(planned: Planned) -> int:
    """Memory of the teacher: its weights twice while they are read, and the states of a batch.

    Whoever embeds with several teachers holds the weights of all of them.
    """
    models = planned.teacher.models
    if not models:
        return 0
    width = max(_shape([model])[1] for model in models)
    states = default_batch_tokens(planned.device, 1) * width * _PASSING
    elements = sum(_elements(Path(model.path)) for model in models)
    return 2 * elements * _WEIGHT + states + _LIBRARIES


def _compared(check: str, needed: int, free: int, found: str, remedy: str) -> list[Finding]:
    if needed <= _TIGHT * free:
        return [Finding(check, NOTE, found)]
    return [Finding(check, ERROR if needed > free else WARNING, found, remedy)]


def _stored_bytes(planned: Planned) -> int:
    """Vectors that are not there yet, or the shards of them that are held, and the tokens to distil on."""
    dim, teachers = planned.setting.teacher_dim, len(planned.teacher.members)
    workspace, window = planned.workspace, planned.experiment.budget.shard_window
    if planned.is_read:
        needed = [store for store in planned.stores if window or not workspace.finished(store)]
        rows = [len(open_texts(workspace, store.texts)) for store in needed]
    else:
        rows = [planned.rows] * teachers
    # Several teachers share the dimensions, and each has stores of its own.
    vectors = sum(vector_bytes(held_rows(count, window), dim / teachers) for count in rows)
    return int(vectors + token_bytes(planned.rows, planned.rows * planned.tokens_per_text))


def held_rows(rows: int, window: int) -> int:
    """Rows of a store that a node holds at once: two windows of shards, or all with a window of 0."""
    largest = shard_size(ROWS_PER_SHARD, max(0, shard_count(rows) - 1))
    return min(rows, 2 * window * largest) if window else rows


def vector_bytes(rows: int, dim: float) -> float:
    """Bytes of a store: a vector in float16 and a row id per text."""
    return rows * (2 * dim + 8)


def token_bytes(rows: int, tokens: float) -> float:
    """Bytes of a token table: its ids, and where each text begins."""
    return 4 * tokens + 8 * rows


def _student_bytes(planned: Planned, trials: int) -> int:
    """The checkpoints of the largest stage, and the weights of all that are finished."""
    left = [stage for stage in planned.stages if not planned.workspace.finished(stage)]
    weights = [_parameters(stage.student) * _WEIGHT for stage in left]
    return int(3 * KEPT * max(weights, default=0) + trials * sum(weights))


def training_bytes(planned: Planned, stage: Stage) -> int:
    """Weights and what goes with each, the bank, a live teacher, and what the backward pass keeps."""
    bank, (_, width) = stage.objective.kwargs.get("bank"), _shape(checkpoints_of(stage.student))
    held = int(bank.kwargs["size"]) * width * _WEIGHT if isinstance(bank, Spec) else 0
    live = _parameters(stage.live.model) * _WEIGHT if stage.live is not None else 0
    copies = _COPIES + (1 if stage.average else 0)
    weights = copies * _WEIGHT * _parameters(stage.student)
    return weights + held + live + _kept_states(stage, _longest(planned, stage)) + _LIBRARIES


def _longest(planned: Planned, stage: Stage) -> int:
    """Tokens of the longest text of a stage, by a sample: a batch is padded to it."""
    tables = [table for table in stage.examples.columns.values() if planned.workspace.finished(table)]
    texts = [text for table in tables for text in sample_of(planned.workspace, table, SAMPLE)[1]]
    texts = texts or list(planned.texts)
    if not texts:
        return stage.max_length
    tokenizer = FastTokenizer(Path(tokenizer_of(stage).path), stage.max_length)
    return min(stage.max_length, int(tokenizer.whole_lengths(texts).max()))


def _kept_states(stage: Stage, longest: int) -> int:
    """Return the bytes that the backward pass keeps of a batch whose texts are padded to the longest."""
    layers, (depth, width) = kept_layers(stage.student), _shape(checkpoints_of(stage.student))
    depth = depth if layers is None else len(layers)
    tokens = stage.batch_tokens or _texts_per_row(stage.examples) * stage.batch_size * longest
    return tokens // stage.accumulate * depth * width * _PER_STATE


def _texts_per_row(examples: Examples) -> int:
    """Texts of a row of examples: one per column, and as many negatives as are read, where that is known."""
    origins = [each.origin for each in examples.sources()]
    read = [each.negatives for each in origins if isinstance(each, Mined | FewerNegatives)]
    return len(examples.columns) + (read[-1] - 1 if read else 0)


def _parameters(student: Spec[Any]) -> int:
    """Parameters of the checkpoints that a student starts from, in the layers that it keeps."""
    kept = kept_layers(student)
    return sum(_elements(Path(model.path), kept) for model in checkpoints_of(student))


def _shape(models: Iterable[Model]) -> tuple[int, int]:
    """The largest depth, with its width, of some checkpoints; word vectors count as a layer."""
    shapes = [(1, 0)]
    for model in models:
        try:
            config = read_config(model).get_text_config()
            shapes.append((int(config.num_hidden_layers), int(config.hidden_size)))
        except BadInput:
            sizes = [shape for shape in tensor_shapes(Path(model.path)).values() if len(shape) == 2]
            shapes += [(1, int(shape[1])) for shape in sizes]
    return max(shapes)


def _elements(folder: Path, kept: Sequence[int] | None = None) -> int:
    """Number of weights in a folder's files, in some of the layers; only the headers are read."""
    total = 0
    for name, shape in tensor_shapes(folder).items():
        number = layer_of(name).rpartition(".")[2]
        if kept is None or not number or int(number) in kept:
            total += math.prod(shape)
    return total


def _free_memory(device: str) -> int:
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    return available_memory()


def in_bytes(count: float) -> str:
    """``1.2 GB``."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
