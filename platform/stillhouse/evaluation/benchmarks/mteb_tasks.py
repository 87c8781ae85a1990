"""Tasks of mteb by name (Muennighoff et al., EACL 2023), with any encoder; needs the extra ``mteb``.

Data and figures are mteb's own. It fetches what is not in the hub's cache, so a machine without a network
needs the data there before.
"""

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import Encoder, FloatArray

TEST = "test"


def open_tasks(names: Sequence[str], *, final: bool) -> list[Any]:
    """The tasks with the splits that are measured, none of their data read yet.

    Args:
        names: As mteb has them, such as ``STSBenchmark`` or ``SciFact``.
        final: Measure the splits that mteb reports, which are test splits nearly always; else those of them
            that are not.

    Raises:
        BadInput: The extra is not installed, an unknown task, or one with nothing but test splits.
    """
    require(
        importlib.util.find_spec("mteb") is not None,
        "the extra `mteb` is installed",
        remedy='Run: pip install "stillhouse[mteb]".',
    )
    import mteb

    tasks = []
    for name in names:
        try:
            splits = list(mteb.get_task(name).eval_splits)
        except KeyError as error:
            near = str(error.args[0]).partition("not found")[2].lstrip(". ")
            raise BadInput(f"`{name}` is no task of mteb. {near[:1].upper()}{near[1:]}") from None
        wanted = [split for split in splits if final or not split.startswith(TEST)]
        remedy = "Give --final; the opening is recorded."
        require(bool(wanted), f"{name} has splits other than test", splits=splits, remedy=remedy)
        tasks.append(mteb.get_task(name, eval_splits=wanted))
    return tasks


def load_tasks(tasks: Sequence[Any]) -> None:
    """Read the data of tasks.

    Raises:
        BadInput: Data that are neither in the hub's cache nor to be fetched.
    """
    for task in tasks:
        try:
            task.load_data()
        except Exception as error:  # datasets, the hub and the network raise errors of many kinds
            said = str(error).strip().partition("\n")[0]
            raise BadInput(
                f"the data of {task.metadata.name} must be in the hub's cache or to be fetched, but loading "
                f"them gave {type(error).__name__}: {said} Get {task.metadata.dataset['path']} from "
                "huggingface.co where there is a network, and set HF_HOME to that cache."
            ) from error


def measure_tasks(tasks: Sequence[Any], model: Encoder) -> dict[str, dict[str, float]]:
    """Mteb's main figure of every task: task, and of several languages or subsets also their name, to split.

    Nothing is read from or written to mteb's cache of results.
    """
    import mteb

    figures: dict[str, dict[str, float]] = {}
    for task in tasks:
        (result,) = mteb.evaluate(
            _ForMteb(model), task, cache=None, show_progress_bar=False, co2_tracker=False
        ).task_results
        alone = all(len(scores) == 1 for scores in result.scores.values())
        for split, scores in result.scores.items():
            for each in scores:
                name = task.metadata.name if alone else f"{task.metadata.name}.{each['hf_subset']}"
                figure = f"{split}_{task.metadata.main_score}"
                figures.setdefault(name, {})[figure] = float(each["main_score"])
    return figures


class _ForMteb:
    """An encoder as mteb asks for one; prompts are not used, vectors are compared by cosine."""

    def __init__(self, model: Encoder) -> None:
        from mteb.models import ModelMeta

        self.model = model
        self.mteb_model_meta = ModelMeta.create_empty()

    def encode(self, inputs: Any, **_: Any) -> FloatArray:
        texts = [text for batch in inputs for text in batch["text"]]
        return np.asarray(self.model.encode(texts), np.float32)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        return _unit(embeddings1) @ _unit(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        return (_unit(embeddings1) * _unit(embeddings2)).sum(dim=-1)


def _unit(vectors_ND: Any) -> Tensor:
    return torch.nn.functional.normalize(torch.as_tensor(vectors_ND, dtype=torch.float32), dim=-1)
