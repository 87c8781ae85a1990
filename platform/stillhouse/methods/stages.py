"""Parts that every stage of a plan takes from the setting, and the student that it trains."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import Spec, arguments_of
from stillhouse.core.model_folder import read_folder
from stillhouse.students.head import head_of
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers.prompts import prompts_of
from stillhouse.values.data import AnyStore, Examples, Model
from stillhouse.values.setting import Setting
from stillhouse.values.stage import DevSuite, Live, Optimizer, Stage


def stage_of(
    setting: Setting,
    *,
    label: str,
    student: Spec[Any],
    objective: Spec[Any],
    examples: Examples,
    optimizer: Optimizer,
    batch_size: int,
    budget: int = 0,
    epochs: float = 0.0,
    cut: bool = False,
    stores: Mapping[str, AnyStore] | None = None,
    live: Live | None = None,
    start_from: Stage | None = None,
    keeps_objective: bool = False,
    dev: DevSuite | None = None,
    finetunes: bool = False,
) -> Stage:
    """Build a stage; whatever all stages of a plan share (`Setting.common`) comes from the setting.

    Args:
        setting: The shared part: length, precision, seed, dev suite, patience, number of evaluations.
        label: Name of the stage.
        student: The student to train.
        objective: The objective to minimise.
        examples: The examples to train on.
        optimizer: The optimiser and its schedule.
        batch_size: Global batch size.
        budget: Examples seen in total; 0 takes the setting's number of examples or epochs.
        epochs: Passes over the examples instead; 0 takes ``budget``.
        cut: Cut the batch to the number of examples.
        stores: Teacher vectors by column; None for none.
        live: A live teacher; None for none.
        start_from: The stage whose student this one continues to train; None starts from the first weights.
        keeps_objective: Whether the objective, too, continues from there.
        dev: Dev suite instead of the setting's.
        finetunes: Whether it is the fine-tuning stage, which may have a patience of its own.
    """
    budget = budget or setting.length(examples, epochs=epochs, finetunes=finetunes)
    batch_size = min(batch_size, budget) if cut else batch_size
    shared = setting.common(finetunes=finetunes) | ({} if dev is None else {"dev": dev})
    if start_from is not None or not stores or not student.kwargs.get("projection"):
        shared["least_squares"] = 0
    return Stage(
        label=label,
        student=student,
        objective=objective,
        examples=examples,
        stores={} if stores is None else dict(stores),
        budget=budget,
        batch_size=batch_size,
        optimizer=optimizer,
        live=live,
        start_from=start_from,
        keeps_objective=keeps_objective,
        evaluate_every=setting.every * batch_size or budget // setting.evaluations,
        **shared,
    )


@dataclass(frozen=True)
class Schedule:
    """Hyper-parameters of a method whose stages share an optimiser and its schedule.

    A method's own hyper-parameters derive from it, and state another default where the paper has one.

    Attributes:
        optimizer: ``adam`` or ``adamw``, which needs a weight decay.
        weight_decay: Weight decay; decoupled for ``adamw``, an L2 term for ``adam``.
        warmup: Fraction of the steps with a rising learning rate.
        decay: Shape of the learning rate after its warm-up: ``linear``, ``cosine`` or ``constant``.
        clip_norm: Maximum gradient norm; 0 disables clipping.
    """

    optimizer: str = "adam"
    weight_decay: float = 0.0
    warmup: float = 0.1
    decay: str = "linear"
    clip_norm: float = 1.0


@dataclass(frozen=True)
class Layered(Schedule):
    """Hyper-parameters of a method whose student may keep some layers of its base model.

    Attributes:
        layers: Layers of the base model that the student keeps; empty uses the setting's student.
    """

    layers: tuple[int, ...] = ()


def optimizer_of(values: Schedule, learning_rate: float) -> Optimizer:
    """Return the optimiser of a stage with its peak learning rate.

    Raises:
        BadInput: A value is out of range, or AdamW is named without the weight decay that sets it apart.
    """
    require(
        values.optimizer != "adamw" or values.weight_decay > 0,
        "weight_decay > 0 with optimizer = adamw",
        optimizer=values.optimizer,
        weight_decay=values.weight_decay,
        remedy="Without weight decay AdamW is Adam: set weight_decay, or leave optimizer = adam.",
    )
    return Optimizer(
        learning_rate,
        name=values.optimizer,
        weight_decay=values.weight_decay,
        warmup=values.warmup,
        decay=values.decay,
        clip_norm=values.clip_norm,
    )


def as_of_bert(learning_rate: float) -> Optimizer:
    """Return the optimiser by which BERT is fine-tuned: AdamW, 10 % warm-up, then a linear fall."""
    return Optimizer(learning_rate, name="adamw", weight_decay=0.01, warmup=0.1)


def student_of(
    setting: Setting, layers: Sequence[int], *, keep_projection: bool = False, **changes: Any
) -> Spec[Any]:
    """Return the setting's student with the given changes.

    Args:
        setting: Names the student.
        layers: The layers of the base model that the student keeps; empty leaves them as they are.
        keep_projection: The student ends in a linear layer, without a bias, of the teacher's dimension. It is
            there also if the dimensions agree, and then starts as the identity, so that it changes nothing at
            first. The loss has no map of its own then, see `learnt_map`.
        changes: Other arguments of the student.

    Raises:
        BadInput: This kind of student has no such argument.
    """
    if layers:
        changes["layers"] = tuple(layers)
    if keep_projection:
        changes["projection"] = setting.teacher_dim
    return changed(setting.student, **changes)


def learnt_map(
    *, keep_projection: bool, projection: bool | None = None, bias: bool = False
) -> dict[str, bool | None]:
    """Return the arguments of a loss that set the linear map from the student's space into the teacher's.

    Args:
        keep_projection: The student keeps the map as its last layer (`student_of`): the loss has none.
        projection: Otherwise, whether the loss learns one; None learns it only if the dimensions differ.
        bias: Whether the map of the loss has a bias; that of the student has none.
    """
    return {
        "projection": False if keep_projection else projection,
        "bias": bias and not keep_projection,
    }


def changed(student: Spec[Any], **changes: Any) -> Spec[Any]:
    """Return a student with other arguments.

    Raises:
        BadInput: This kind of student has no such argument.
    """
    missing = sorted(set(changes) - set(inspect.signature(student.target).parameters))
    if missing:
        raise BadInput(
            f"the method sets {', '.join(missing)}, which {_class_name(student)} does not have. "
            "Take another method or hyper-parameter, or another --student-kind."
        )
    return student.replace(**changes) if changes else student


def both_normalized(setting: Setting, student: Spec[Any]) -> bool:
    """Return whether a regression must normalise both sides, so that its loss can reach 0.

    It must if the student's vectors have length 1 and the teacher's do not.
    """
    return gives_unit_length(student) and not head_of(setting.teacher).normalize


def gives_unit_length(student: Spec[Any]) -> bool:
    """Return whether a student's vectors have length 1."""
    return bool(arguments_of(student).get("normalize", False))


def require_transformer(student: Spec[Any], reason: str) -> None:
    """Refuse a student of another kind, for a reason such as "sra trains a BiLSTM of its own".

    Raises:
        BadInput: The student is not a `TransformerStudent`.
    """
    if student.target is not TransformerStudent:
        raise BadInput(f"{reason}, but got {_class_name(student)}. Leave --student-kind out.")


def check_live(model: Model) -> None:
    """Refuse a teacher that cannot run during training because it leaves its prompt out of its vectors.

    Raises:
        BadInput: It has a prompt, and its folder pools without the prompt's tokens.
    """
    prompts = prompts_of(model)
    require(
        not prompts or read_folder(Path(model.path)).pools_prompt,
        "a live teacher must pool the tokens of its prompt too",
        teacher=model.name or model.path,
        include_prompt=False,
        prompts=str(prompts),
        remedy="Set teacher.prompts to empty texts, or take a method that reads stored vectors, such as mse.",
    )


def _class_name(student: Spec[Any]) -> str:
    return str(getattr(student.target, "__name__", student.target))
