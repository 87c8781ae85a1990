"""Distil a large text-embedding model into a small, fast one, and search for the best way to do it.

The values of an experiment (`Experiment`, `Sentences`, `Pairs`, …) and the calls that work with them
(`distil`, `read_experiment`, `doctor`, `plan`, `embed`, `train`, `sweep`, `compare`, `evaluate`, `export`,
`load`, `verify`) are imported from here. Nothing heavy is imported before it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stillhouse.api import (
        FromFile,
        compare,
        distil,
        doctor,
        embed,
        evaluate,
        export,
        load,
        plan,
        read_experiment,
        sweep,
        train,
        verify,
    )
    from stillhouse.core.errors import BadInput
    from stillhouse.experiments.augmentation import Augmentation
    from stillhouse.experiments.budget import Budget, Refit
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.kinds.claims import Claims
    from stillhouse.experiments.kinds.collection import SearchCollection
    from stillhouse.experiments.kinds.labelled_task import LabelledTask
    from stillhouse.experiments.kinds.pairs import Pairs
    from stillhouse.experiments.kinds.parallel import Parallel
    from stillhouse.experiments.kinds.scores import Scores
    from stillhouse.experiments.kinds.sentences import Sentences
    from stillhouse.experiments.kinds.word_vectors import WordVectors
    from stillhouse.experiments.selection import Selection
    from stillhouse.experiments.students.recurrent import RecurrentChoice
    from stillhouse.experiments.students.static import StaticChoice
    from stillhouse.experiments.students.transformer import TransformerChoice
    from stillhouse.preflight.finding import Finding
    from stillhouse.reports.row_table import Rows
    from stillhouse.search.keywords import Place, Resources, Search
    from stillhouse.sweeps.results import Exported, Trained
    from stillhouse.teachers.choice import TeacherChoice
    from stillhouse.values.mining import Mining

__version__ = "0.2.0"
__all__ = [
    "Augmentation",
    "BadInput",
    "Budget",
    "Claims",
    "Experiment",
    "Exported",
    "Finding",
    "FromFile",
    "LabelledTask",
    "Mining",
    "Pairs",
    "Parallel",
    "Place",
    "RecurrentChoice",
    "Refit",
    "Resources",
    "Rows",
    "Scores",
    "Search",
    "SearchCollection",
    "Selection",
    "Sentences",
    "StaticChoice",
    "TeacherChoice",
    "Trained",
    "TransformerChoice",
    "WordVectors",
    "compare",
    "distil",
    "doctor",
    "embed",
    "evaluate",
    "export",
    "load",
    "plan",
    "read_experiment",
    "sweep",
    "train",
    "verify",
]
_MODULES = {
    "Augmentation": "experiments.augmentation",
    "BadInput": "core.errors",
    "Budget": "experiments.budget",
    "Claims": "experiments.kinds.claims",
    "Experiment": "experiments.experiment",
    "Exported": "sweeps.results",
    "Finding": "preflight.finding",
    "LabelledTask": "experiments.kinds.labelled_task",
    "Mining": "values.mining",
    "Pairs": "experiments.kinds.pairs",
    "Parallel": "experiments.kinds.parallel",
    "Place": "search.keywords",
    "RecurrentChoice": "experiments.students.recurrent",
    "Refit": "experiments.budget",
    "Resources": "search.keywords",
    "Rows": "reports.row_table",
    "Scores": "experiments.kinds.scores",
    "Search": "search.keywords",
    "SearchCollection": "experiments.kinds.collection",
    "Selection": "experiments.selection",
    "Sentences": "experiments.kinds.sentences",
    "StaticChoice": "experiments.students.static",
    "TeacherChoice": "teachers.choice",
    "Trained": "sweeps.results",
    "TransformerChoice": "experiments.students.transformer",
    "WordVectors": "experiments.kinds.word_vectors",
    **dict.fromkeys(
        (
            "FromFile",
            "compare",
            "distil",
            "doctor",
            "embed",
            "evaluate",
            "export",
            "load",
            "plan",
            "read_experiment",
            "sweep",
            "train",
            "verify",
        ),
        "api",
    ),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'stillhouse' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"stillhouse.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*globals(), *__all__])
