"""Groups of arguments that several commands have."""

import dataclasses
import inspect
import re
from argparse import ArgumentParser, BooleanOptionalAction, RawDescriptionHelpFormatter, _SubParsersAction
from collections.abc import Collection
from pathlib import Path
from typing import Any

from stillhouse.experiments.experiment import Experiment


def new_command(
    commands: "_SubParsersAction[ArgumentParser]", name: str, what: str, examples: str
) -> ArgumentParser:
    """A command with what it does and examples of it."""
    return commands.add_parser(
        name,
        help=what,
        description=what[0].upper() + what[1:] + ".",
        epilog=f"examples:\n  {examples}",
        formatter_class=RawDescriptionHelpFormatter,
    )


def add_method(command: ArgumentParser) -> None:
    """The preset, and hyper-parameters that are fixed."""
    group = command.add_argument_group("method")
    group.add_argument("--preset", default="paper", help="paper (default) or repo")
    group.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="fix a hyper-parameter; repeatable"
    )


def add_experiment(command: ArgumentParser, names: Collection[str] = (), prefix: str = "") -> None:
    """The options of an experiment as flags, all or those of some names; a prefix is not part of the flag."""
    group = command.add_argument_group("experiment")
    told = attribute_docs(Experiment)
    for field in dataclasses.fields(Experiment):
        if names and field.name not in names:
            continue
        name, default = field.name.removeprefix(prefix), field.default
        flag = "--" + name.replace("_", "-")
        text = f"{told[field.name]} Default: {default!r}.".replace("%", "%%").replace("``", "")
        given: dict[str, Any] = {"dest": field.name, "default": None, "help": text}
        if isinstance(default, bool):
            group.add_argument(flag, action=BooleanOptionalAction, **given)
        else:
            group.add_argument(flag, type=type(default), metavar=name.upper(), **given)
    group.add_argument("--refresh", action="store_true", help="read the corpus again")


def add_where(command: ArgumentParser) -> None:
    """Cluster, workers and device, and what `add_common` adds."""
    group = command.add_argument_group("where it runs")
    group.add_argument("--address", help="of a Ray cluster; default: the job's, else a local one")
    group.add_argument("--workers", type=int, default=1, help="training processes a run (default 1)")
    group.add_argument("--cpus-per-worker", type=float, default=1, help="default 1")
    group.add_argument("--gpus-per-worker", type=float, default=None, help="default: 1 where there is a GPU")
    group.add_argument("--actors", type=int, default=0, help="teacher actors; default: what fits")
    group.add_argument("--device", default="auto", help="auto (default), cpu, cuda or mps")
    add_common(command)


def add_common(command: ArgumentParser) -> None:
    """The workspace, the report, and how much is said."""
    group = command.add_argument_group("output")
    group.add_argument("--root", type=Path, help="workspace; default: $STILLHOUSE_ROOT, else ./runs")
    group.add_argument("--json", type=Path, metavar="FILE", help="write the results there, for machines")
    group.add_argument("-v", "--verbose", action="store_true", help="show the chatter of the libraries")


def attribute_docs(documented: type) -> dict[str, str]:
    """What a class's docstring says of each attribute, so that a help text has one source."""
    text = inspect.getdoc(documented) or ""
    found: dict[str, str] = {}
    name = ""
    for line in text.partition("Attributes:\n")[2].splitlines():
        start = re.match(r"    (\w+): (.*)", line)
        if start:
            name, found[start[1]] = start[1], start[2]
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found
