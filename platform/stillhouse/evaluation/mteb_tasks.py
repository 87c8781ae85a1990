"""Tasks of mteb by name (Muennighoff et al., EACL 2023), with any encoder; needs the extra ``mteb``.

Data and figures are mteb's own. It downloads what is not in the hub's cache, so a machine without network
access needs the data in that cache beforehand.
"""

import functools
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import fingerprint
from stillhouse.core.roles import DOCUMENT, PLAIN, QUERY
from stillhouse.core.types import Encoder, FloatArray, encode_as
from stillhouse.evaluation.benchmark import About, Benchmark, Options, opened
from stillhouse.evaluation.items import Figures

TEST = "test"
SEARCHES = ("Retrieval", "Reranking", "InstructionRetrieval", "InstructionReranking")
"""mteb's types of tasks in which queries are compared with documents."""


@dataclass(frozen=True)
class MtebSuite:
    """The suite ``mteb:TASK``: mteb's main figure of each task, from mteb's own data."""

    tasks: tuple[str, ...]
    NEEDS_DATA: ClassVar[bool] = False
    MTEB_TASKS: ClassVar[tuple[str, ...]] = ()

    def prepare(self, root: str, options: Options) -> Benchmark:
        """Load the data of the tasks; ``root`` is not used."""
        tasks = open_tasks(self.tasks, final=options.final)
        load_tasks(tasks)
        known = [(task.metadata.name, task.metadata.revision, tuple(task.eval_splits)) for task in tasks]
        searches = all(task.metadata.type in SEARCHES for task in tasks)
        sets = {
            name: About(" and ".join(splits), fingerprint((name, revision)), "items")
            for name, revision, splits in known
        }
        opens = opened(options, known)
        measure = functools.partial(measure_tasks, tasks)
        return Benchmark(measure, sets=sets, opens=opens, across=False, digits=4, searches=searches)


def open_tasks(names: Sequence[str], *, final: bool) -> list[Any]:
    """Look up tasks and the splits to measure, without reading their data.

    Args:
        names: mteb's own names, such as ``STSBenchmark`` or ``SciFact``.
        final: Measure the splits that mteb reports, which are nearly always test splits; otherwise only
            those among them that are not test splits.

    Raises:
        BadInput: If the extra is not installed, a task is unknown, or a task has only test splits.
    """
    if importlib.util.find_spec("mteb") is None:
        raise BadInput('mteb\'s tasks need the extra `mteb`. Run: pip install "stillhouse[mteb]".')
    import mteb

    tasks = []
    for name in names:
        try:
            splits = list(mteb.get_task(name).eval_splits)
        except KeyError as error:
            near = str(error.args[0]).partition("not found")[2].lstrip(". ")
            raise BadInput(f"unknown task of mteb `{name}`. {near[:1].upper()}{near[1:]}") from None
        measured = [split for split in splits if final or not split.startswith(TEST)]
        if not measured:
            raise BadInput(
                f"{name} has only test splits ({', '.join(splits)}). Give --final to open them; the opening "
                "is recorded."
            )
        tasks.append(mteb.get_task(name, eval_splits=measured))
    return tasks


def load_tasks(tasks: Sequence[Any]) -> None:
    """Load the data of tasks.

    Raises:
        BadInput: If data are neither in the hub's cache nor can be downloaded.
    """
    for task in tasks:
        try:
            task.load_data()
        except Exception as error:  # datasets, the hub and the network raise errors of many kinds
            first_line = str(error).strip().partition("\n")[0]
            raise BadInput(
                f"the data of {task.metadata.name} could not be loaded: {type(error).__name__}: {first_line} "
                f"Download {task.metadata.dataset['path']} from huggingface.co on a machine with network "
                "access, and point HF_HOME to that cache."
            ) from error


def measure_tasks(tasks: Sequence[Any], model: Encoder) -> Figures:
    """Compute mteb's main figure of every task and split.

    Nothing is read from or written to mteb's cache of results.

    Returns:
        Task to figure, named by split and metric. A task with several languages or subsets has one entry for
        each, with the subset after the task's name.
    """
    import mteb

    figures: Figures = {}
    for task in tasks:
        (result,) = mteb.evaluate(
            _MtebEncoder(model), task, cache=None, show_progress_bar=False, co2_tracker=False
        ).task_results
        single = all(len(scores) == 1 for scores in result.scores.values())
        for split, scores in result.scores.items():
            for each in scores:
                name = task.metadata.name if single else f"{task.metadata.name}.{each['hf_subset']}"
                figure = f"{split}_{task.metadata.main_score}"
                figures.setdefault(name, {})[figure] = float(each["main_score"])
    return figures


class _MtebEncoder:
    """An encoder with mteb's interface: the prompt of mteb's role, and vectors compared by cosine."""

    def __init__(self, model: Encoder) -> None:
        from mteb.models import ModelMeta

        self.model = model
        self.mteb_model_meta = ModelMeta.create_empty()

    def encode(self, inputs: Any, *, prompt_type: Any = None, **_: Any) -> FloatArray:
        texts = [text for batch in inputs for text in batch["text"]]
        role = PLAIN if prompt_type is None else QUERY if prompt_type.value == QUERY else DOCUMENT
        return np.asarray(encode_as(self.model, role, texts), np.float32)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        return _unit(embeddings1) @ _unit(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        return (_unit(embeddings1) * _unit(embeddings2)).sum(dim=-1)


def _unit(vectors_ND: Any) -> Tensor:
    return torch.nn.functional.normalize(torch.as_tensor(vectors_ND, dtype=torch.float32), dim=-1)
