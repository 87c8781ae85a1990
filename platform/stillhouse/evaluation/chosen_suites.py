"""The suites that a command names, tasks of mteb among them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stillhouse.core.errors import BadInput
from stillhouse.evaluation.benchmarks import known_suites, load_suite
from stillhouse.evaluation.mteb_tasks import MtebSuite

if TYPE_CHECKING:
    from stillhouse.evaluation.benchmark import Suite

HUB = "hf:"
"""The data root that stands for the Hugging Face hub."""
MTEB = "mteb:"
"""Prefix of the names of mteb's tasks."""


def suites_named(names: str) -> dict[str, "Suite"]:
    """Load the suites of a list such as ``sts,geometry`` or ``sts,mteb:SciFact,STS12``, each once, in order.

    Names that follow ``mteb:`` are tasks of mteb, up to the next name of a suite.

    Raises:
        BadInput: If a suite is unknown, or no suite is named.
    """
    suites: dict[str, Suite] = {}
    tasks: list[str] = []
    in_mteb = False
    for name in (name.strip() for name in names.split(",") if name.strip()):
        in_mteb = name.startswith(MTEB) or (in_mteb and name not in known_suites())
        if in_mteb:
            tasks.append(name.removeprefix(MTEB))
            suites["mteb"] = MtebSuite(tuple(dict.fromkeys(tasks)))
        else:
            suites[name] = load_suite(name)
    if not suites:
        raise BadInput(f"--suite needs at least one of {', '.join(known_suites())}, {MTEB}TASK.")
    return suites


def from_hub(suites: Mapping[str, "Suite"]) -> dict[str, "Suite"]:
    """Replace suites by mteb's tasks over the same sets, whose data are on the hub.

    Suites that need no data stay as they are.

    Raises:
        BadInput: If the hub does not have the sets of a suite.
    """
    replaced: dict[str, Suite] = {}
    for name, suite in suites.items():
        if suite.NEEDS_DATA and not suite.MTEB_TASKS:
            every = {known: load_suite(known) for known in known_suites()}
            possible = [known for known, each in every.items() if each.MTEB_TASKS or not each.NEEDS_DATA]
            raise BadInput(
                f"--data-root {HUB} serves the suites {', '.join((*possible, 'mteb'))}, but not {name}. "
                "Give --data-root DIR with its published files."
            )
        replaced[name] = MtebSuite(suite.MTEB_TASKS) if suite.MTEB_TASKS else suite
    return replaced
