"""Every suite by its name."""

from stillhouse.errors import BadInput, nearest, require
from stillhouse.evaluation.benchmarks.common import Suite
from stillhouse.evaluation.benchmarks.fever import fever
from stillhouse.evaluation.benchmarks.labelled import glue, transfer
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
NEED_NO_DATA = ("cost",)


def suites_named(names: str) -> tuple[str, ...]:
    """The suites of a list such as ``sts,geometry``, in its order, each once.

    Raises:
        BadInput: An unknown one, with the near ones.
    """
    wanted = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    require(bool(wanted), f"--suite names some of {', '.join(SUITES)}", suite=names)
    for name in wanted:
        if name not in SUITES:
            raise BadInput(f"`{name}` is no suite. {nearest(name, list(SUITES))}")
    return wanted
