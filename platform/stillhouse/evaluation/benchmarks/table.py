"""Every suite by its name."""

from stillhouse.errors import BadInput, nearest, require
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
            found["mteb"] = lambda root, options: mteb(tuple(dict.fromkeys(tasks)), options)
        elif name not in SUITES:
            raise BadInput(f"`{name}` is no suite. {nearest(name, list(SUITES))}")
        else:
            found[name] = SUITES[name]
    require(bool(found), f"--suite names some of {', '.join(SUITES)}, {PREFIX}TASK", suite=names)
    return found
