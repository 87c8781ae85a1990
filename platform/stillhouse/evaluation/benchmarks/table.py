"""Every suite by its name."""

from collections.abc import Mapping, Sequence

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.evaluation.benchmarks.common import Suite
from stillhouse.evaluation.benchmarks.fever import fever
from stillhouse.evaluation.benchmarks.labelled import glue, transfer
from stillhouse.evaluation.benchmarks.mteb import PREFIX, mteb
from stillhouse.evaluation.benchmarks.retrieval import retrieval
from stillhouse.evaluation.benchmarks.similarity import sts, translation, xsts
from stillhouse.evaluation.benchmarks.vectors import cost, geometry

SUITES: dict[str, Suite] = {
    "sts": sts,
    "xsts": xsts,
    "translation": translation,
    "retrieval": retrieval,
    "fever": fever,
    "transfer": transfer,
    "glue": glue,
    "geometry": geometry,
    "cost": cost,
}
NEED_NO_DATA = ("cost", "mteb")
HUB = "hf:"
"""The data root that stands for the Hugging Face hub."""

OF_HUB = {
    "sts": ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R"),
    "xsts": ("STS17",),
    "translation": ("Tatoeba",),
    "retrieval": ("SciFact", "NFCorpus", "ArguAna"),
}
"""The suites whose sets are on the hub, as mteb's tasks."""


def suites_named(names: str) -> dict[str, Suite]:
    """The suites of a list such as ``sts,geometry`` or ``sts,mteb:SciFact,STS12``, in its order, each once.

    What follows ``mteb:`` is a task of mteb, up to the next name of a suite.

    Raises:
        BadInput: An unknown one, with the near ones.
    """
    found: dict[str, Suite] = {}
    tasks: list[str] = []
    of_mteb = False
    for name in (name.strip() for name in names.split(",") if name.strip()):
        of_mteb = name.startswith(PREFIX) or (of_mteb and name not in SUITES)
        if of_mteb:
            tasks.append(name.removeprefix(PREFIX))
            found["mteb"] = _of_mteb(tasks)
        elif name not in SUITES:
            raise BadInput(f"`{name}` is no suite. {nearest(name, list(SUITES))}")
        else:
            found[name] = SUITES[name]
    require(bool(found), f"--suite names some of {', '.join(SUITES)}, {PREFIX}TASK", suite=names)
    return found


def from_hub(suites: Mapping[str, Suite]) -> dict[str, Suite]:
    """The same suites as mteb's tasks, whose data are the hub's; those that need no data stay.

    Raises:
        BadInput: A suite that has no tasks there.
    """
    for name in suites:
        require(
            name in OF_HUB or name in NEED_NO_DATA,
            f"a suite of --data-root {HUB} is one of {', '.join((*OF_HUB, *NEED_NO_DATA))}",
            suite=name,
            remedy="Give --data-root DIR with its published files.",
        )
    return {name: _of_mteb(OF_HUB[name]) if name in OF_HUB else suite for name, suite in suites.items()}


def _of_mteb(tasks: Sequence[str]) -> Suite:
    return lambda root, options: mteb(tuple(dict.fromkeys(tasks)), options)
