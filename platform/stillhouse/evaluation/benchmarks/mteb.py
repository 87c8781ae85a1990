"""The suite ``mteb:TASK``: tasks of mteb through our encoder."""

from collections.abc import Sequence

from stillhouse.core.types import Encoder
from stillhouse.evaluation.benchmarks.common import Benchmark, Figures, Options, opened
from stillhouse.evaluation.benchmarks.mteb_tasks import load_tasks, measure_tasks, open_tasks

PREFIX = "mteb:"


def mteb(names: Sequence[str], options: Options) -> Benchmark:
    """Mteb's main figure of each task, from mteb's own data."""
    tasks = open_tasks(names, final=options.final)
    load_tasks(tasks)

    def measure(model: Encoder) -> Figures:
        return measure_tasks(tasks, model)

    known = [(task.metadata.name, task.metadata.revision, tuple(task.eval_splits)) for task in tasks]
    return Benchmark(measure, (), opened(options, known), across=False, digits=4)
