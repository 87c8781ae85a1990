"""How fast a kind of node is: measured here, or stated in a file with its source."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from stillhouse.core.errors import BadInput, nearest, require

HERE = "here"
"""The name of this machine among the kinds of nodes."""
EXAMPLE = (
    "Run `stillhouse plan` with the same arguments and --json FILE on such a node, and give --rates FILE."
)

SPEEDS = ("embedding", "encoding", "tested_student", "tested_teacher")
"""Rates that are 0 where what was planned has no use for them."""
_MAY_BE_0 = {"gpus", "setup_s", "save_s", "load_s", "start_s", *SPEEDS}


@dataclass(frozen=True)
class StageRate:
    """How fast one process trains a stage.

    Attributes:
        examples_per_second: Examples that it trains on, without evaluations.
        setup_s: Seconds before the first step: the models are loaded.
        save_s: Seconds of a checkpoint.
        megabytes: The finished stage's weights, 10^6 bytes.
    """

    examples_per_second: float
    setup_s: float
    save_s: float
    megabytes: float


@dataclass(frozen=True)
class Rates:
    """What one kind of node has, and how fast it is with as many processes at once as it runs.

    Attributes:
        cpus: CPUs of a node.
        gpus: GPUs of a node.
        start_s: Seconds until a new process has loaded the libraries.
        load_s: Seconds in which it loads the teacher.
        embedding: Tokens per second of one teacher process; 0, as of the next three, if it was not measured.
        encoding: Tokens per second that a student encodes in the process that trains it.
        tested_student: Tokens per second of a student at the end, alone on the node, in float32.
        tested_teacher: The same of the teacher.
        training: How fast a stage is trained, by its label.
        process_mb: Memory of a process that has loaded the libraries and nothing else, 10^6 bytes.
        teacher: Name of the teacher that was measured.
        source: Where the rates come from.
    """

    cpus: float
    gpus: float
    start_s: float
    load_s: float
    embedding: float
    encoding: float
    tested_student: float
    tested_teacher: float
    training: Mapping[str, StageRate]
    process_mb: float
    teacher: str
    source: str

    def as_json(self) -> dict[str, Any]:
        """What `read_rates` reads."""
        return asdict(self)


def read_rates(path: Path) -> dict[str, Rates]:
    """Read the rates of kinds of nodes by name, from JSON or YAML; the JSON of a plan has them too.

    Raises:
        BadInput: The file cannot be read, or a rate is missing, not positive, or without a source.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, json.JSONDecodeError) as error:
        raise BadInput(f"--rates must name a file of JSON or YAML, but {path}: {error}") from None
    if isinstance(content, Mapping):
        content = content.get("rates", content)
    require(
        isinstance(content, Mapping) and bool(content),
        "--rates must name a file with the rates of nodes by their names",
        file=str(path),
        remedy=EXAMPLE,
    )
    return {str(name): _rates(str(name), given) for name, given in content.items()}


def _rates(name: str, given: Any) -> Rates:
    known = [each.name for each in fields(Rates)]
    _require_names(f"the rates of {name}", given, known)
    training = given["training"]
    require(isinstance(training, Mapping), f"training of {name} must give the rates of stages by label")
    for label, stage in training.items():
        _require_names(f"the stage {label} of {name}", stage, [each.name for each in fields(StageRate)])
    stages = {str(label): StageRate(**_positive(name, stage)) for label, stage in training.items()}
    require(
        isinstance(given["source"], str) and bool(given["source"].strip()),
        f"the rates of {name} must state their source",
        source=given["source"],
        remedy="Say on what they were measured, when, and by whom.",
    )
    words = {key: given[key] for key in ("teacher", "source")}
    numbers = {key: value for key, value in given.items() if key not in (*words, "training")}
    return Rates(**{**_positive(name, numbers), **words}, training=stages)


def _require_names(what: str, given: Any, names: list[str]) -> None:
    require(isinstance(given, Mapping), f"{what} must be names and values", got=given, remedy=EXAMPLE)
    missing = [name for name in names if name not in given]
    other = [name for name in given if name not in names]
    hint = nearest(str(other[0]), names) if other else EXAMPLE
    require(not missing and not other, f"{what} must be {names}", missing=missing, other=other, remedy=hint)


def _positive(name: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in numbers.items():
        least = 0.0 if key in _MAY_BE_0 else 1e-12
        fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        require(fits and value >= least, f"{key} of {name} must be a positive number", **{key: value})
    return {key: float(value) for key, value in numbers.items()}
