"""Inputs that no stage reads."""

from dataclasses import dataclass

from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.labelled_task import LabelledTask


@dataclass(frozen=True)
class Unread:
    """Inputs that no stage of a plan reads, so that they are not made.

    Attributes:
        vectors: Whether the teacher's vectors of the unlabelled sentences are among it.
        dev: Whether what measures sentences and search on dev is among it.
        kinds: Kinds of data by their keys.
    """

    vectors: bool = False
    dev: bool = False
    kinds: frozenset[str] = frozenset()


def beside_task(experiment: Experiment) -> Unread | None:
    """Return the inputs to leave out where a task is named without any text, to measure models on it alone.

    None where there is no task, or where text was named too.
    """
    named = [kind for kind in experiment.data if kind.is_source]
    task = experiment.get(LabelledTask)
    if task is None or named:
        return None
    others = frozenset(kind.key for kind in experiment.kinds if kind is not task)
    return Unread(vectors=True, dev=True, kinds=others)
