"""Arguments that several commands share. Nothing heavy is imported: `--help` answers at once."""

import re
from argparse import (
    SUPPRESS,
    ArgumentParser,
    BooleanOptionalAction,
    RawDescriptionHelpFormatter,
    _SubParsersAction,
)
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stillhouse.experiments.fields import Field, fields

Commands = "_SubParsersAction[ArgumentParser]"
FLAGS: Mapping[str, str] = {
    "teacher": "teacher.name",
    "teachers": "teacher.members",
    "teacher_runtime": "teacher.runtime",
    "student": "student.checkpoint",
    "student_kind": "student.kind",
    "layers": "student.layers",
    "corpus": "sentences.corpus",
    "sources": "sentences.sources",
    "column": "sentences.column",
    "split_sentences": "sentences.split",
    "sentences": "sentences.count",
    "labelled": "pairs.path",
    "pairs": "pairs.count",
    "negatives": "pairs.negatives",
    "dev_collection": "collection.path",
    "parallel": "parallel.corpora",
    "task": "task.name",
    "task_root": "task.root",
    "claims": "claims.path",
    "words": "words.vectors",
    "max_length": "max_length",
    "distil_budget": "budget.distil",
    "finetune_budget": "budget.finetune",
    "evaluations": "budget.evaluations",
    "patience": "budget.patience",
    "fraction": "budget.fraction",
    "fraction_of": "budget.fraction_of",
    "refit": "budget.refit.distil",
    "refit_top": "budget.refit.top",
    "data_root": "selection.data_root",
    "select": "selection.by",
    "compute": "compute",
    "seed": "seed",
}
"""Flags of fields, and their paths; `--set PATH=VALUE` reaches every field."""
SHOWN = (
    *("teacher", "student", "layers", "corpus", "column", "sentences", "labelled", "pairs"),
    "dev_collection",
    *("max_length", "distil_budget", "finetune_budget", "data_root", "select", "seed"),
)
"""Flags that `--help` shows; `stillhouse fields` shows all of them."""
_TYPES: Mapping[str, Callable[[str], Any]] = {"int": int, "float": float}


def new_command(
    commands: "_SubParsersAction[ArgumentParser]", name: str, what: str, examples: str
) -> ArgumentParser:
    """Add a command with what it does and examples of it."""
    return commands.add_parser(
        name,
        help=what,
        description=what[0].upper() + what[1:] + ".",
        epilog=f"examples:\n  {examples}",
        formatter_class=_OneLine,
        usage=f"stillhouse {name} [options]" if name in _SHORT_USAGE else None,
    )


_SHORT_USAGE = ("sweep", "train", "doctor", "embed", "evaluate", "mine")


class _OneLine(RawDescriptionHelpFormatter):
    """Options in one column and their texts in another, so that most take one line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=118)


def add_method(command: ArgumentParser) -> None:
    """Add the method, its preset, and values that are fixed."""
    command.add_argument(
        "method", nargs="?", help="a method, such as ibkd, ckd or mse; default: the experiment file's"
    )
    command.add_argument("--preset", help="paper (default) or another one (`stillhouse presets METHOD`)")
    command.add_argument(
        "--scale", default="", metavar="NAME", help="a scale of the experiment file, such as small"
    )


def add_experiment(
    command: ArgumentParser, names: tuple[str, ...] = tuple(FLAGS), *, method: bool = False
) -> None:
    """Add the flags of an experiment's fields, and the experiment file.

    Args:
        command: The command.
        names: The flags, of `FLAGS`.
        method: Whether `--set` also fixes hyper-parameters of a method.
    """
    group = command.add_argument_group("experiment (more, and all fields: `stillhouse fields`)")
    known = fields()
    for name in names:
        add_field(group, name, known[FLAGS[name]], shown=name in SHOWN)
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="set any field, such as pairs.mining.range_max=100"
        + ("; a bare name fixes a hyper-parameter" if method else ""),
    )
    group.add_argument("--refresh", action="store_true", help="read the corpus again")


def add_field(group: Any, name: str, field: Field, *, shown: bool = True) -> None:
    """Add the flag of one field; a flag that is not given is None."""
    flag, text = "--" + name.replace("_", "-"), f"{short(field.text)}{shown_default(field)}"
    text = text.replace("%", "%%") if shown else SUPPRESS
    if field.type == "bool":
        group.add_argument(flag, dest=name, action=BooleanOptionalAction, default=None, help=text)
    else:
        named = field.type.removesuffix(" | None")
        kind = _TYPES.get(named, str)
        metavar = {"int": "N", "float": "X"}.get(named, "VALUE")
        group.add_argument(flag, dest=name, type=kind, default=None, metavar=metavar, help=text)


def short(text: str) -> str:
    """The start of a field's meaning, without markup: as much as fits on a line."""
    if not text:
        return text
    first = re.split(r"(?<=[^.])[.;](?:\s|$)", text.replace("``", ""), maxsplit=1)[0]
    if len(first) > 75:
        first = re.split(r"[:,] (?!last)", first, maxsplit=1)[0]
    return (first[0].lower() if first[1:2].islower() else first[0]) + first[1:]


def shown_default(field: Field) -> str:
    """The default in brackets; nothing where there is none to speak of."""
    return (
        ""
        if field.default in ("", False) or not isinstance(field.default, str | int | float)
        else f" ({field.default})"
    )


def add_where(command: ArgumentParser) -> None:
    """Add the cluster, workers and device, and what `add_common` adds."""
    group = command.add_argument_group("where it runs")
    group.add_argument("--address", help="address of a Ray cluster; default: the job's, else a local one")
    group.add_argument("--workers", type=int, default=1, metavar="N", help="training processes per run (1)")
    group.add_argument(
        "--cpus-per-worker",
        type=float,
        default=None,
        metavar="X",
        help="CPUs of each (1; all of them for `train --local` in one process)",
    )
    group.add_argument(
        "--gpus-per-worker",
        type=float,
        default=None,
        metavar="X",
        help="GPUs of each; default: 1 where there are GPUs",
    )
    group.add_argument(
        "--actors", type=int, default=0, metavar="N", help="teacher actors; default: what fits"
    )
    group.add_argument("--device", default="auto", metavar="NAME", help="auto (default), cpu, cuda or mps")
    add_common(command)


def add_common(command: ArgumentParser) -> None:
    """Add the workspace, the results' file, and how much is printed."""
    group = command.add_argument_group("output")
    group.add_argument(
        "--root", type=Path, metavar="DIR", help="workspace; default: $STILLHOUSE_ROOT, else ./runs"
    )
    group.add_argument("--json", type=Path, metavar="FILE", help="also write the results there as JSON")
    group.add_argument("-v", "--verbose", action="store_true", help="show the output of the libraries")


def add_local(command: ArgumentParser) -> None:
    """Add `--local`."""
    command.add_argument("--local", action="store_true", help="run in one plain process, without Ray")
