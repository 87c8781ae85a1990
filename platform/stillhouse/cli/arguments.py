"""Arguments that several commands share. Nothing heavy is imported: `--help` answers at once."""

import math
import re
import sys
import typing
from argparse import (
    SUPPRESS,
    ArgumentParser,
    BooleanOptionalAction,
    Namespace,
    RawDescriptionHelpFormatter,
    _SubParsersAction,
)
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from stillhouse.core.errors import BadInput, nearest
from stillhouse.core.integrity import COMPARING
from stillhouse.core.other_words import in_our_words
from stillhouse.experiments.fields import Field, attribute_docs, fields
from stillhouse.search.keywords import Place, Resources

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
    "encoding": "sentences.encoding",
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
    *("teacher", "student", "layers", "corpus", "column", "sentences", "labelled"),
    "dev_collection",
    *("max_length", "distil_budget", "finetune_budget", "data_root", "select", "seed"),
)
"""Flags that `--help` shows; `stillhouse fields` shows all of them."""


def number(text: str) -> float:
    """Read a finite number of the command line."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


_KINDS: Mapping[type, tuple[Callable[[str], Any], str]] = {
    int: (int, "N"),
    float: (number, "X"),
    str: (str, "NAME"),
}
_PROBLEMS = (
    (r"argument (\S+): expected (?:one|at least one) argument", "{0} must be followed by a value"),
    (r"argument (\S+): ignored explicit argument (.*)", "{0} must come without a value, but got {1}"),
    (r"argument (\S+): invalid int value: (.*)", "{0} must be a whole number, but is {1}"),
    (r"argument (\S+): invalid (?:number|float) value: (.*)", "{0} must be a number, but is {1}"),
    (r"argument (\S+): invalid choice: (.*) \(choose from (.*)\)", "{0} must be one of {2}, but is {1}"),
    (r"ambiguous option: (\S+) could match (.*)", "{0} must be written in full: it may mean {1}"),
    (r"the following arguments are required: (.*)", "{0} must be given, but is not"),
)
"""What argparse says, as patterns, and what a user is told instead."""


class CommandParser(ArgumentParser):
    """A parser whose errors are the user's mistakes in one message, with the flags that are near."""

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print with the usage.

        Raises:
            BadInput: Always.
        """
        unknown = re.fullmatch(
            r"argument COMMAND: invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL
        )
        if unknown:
            known = re.findall(r"'([\w-]+)'", unknown[2])
            raise BadInput(f"unknown command {unknown[1]!r}. {nearest(unknown[1], known)}{self._help()}")
        for pattern, words in _PROBLEMS:
            if found := re.fullmatch(pattern, message, re.DOTALL):
                message = words.format(*found.groups())
        raise BadInput(f"{message}.{self._help()}")

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> Namespace:
        """Parse a command line; what is not known is named with what is near.

        Raises:
            BadInput: A mistake.
        """
        given = sys.argv[1:] if args is None else list(map(str, args))
        options, rest = self.parse_known_args(self._command_first(given), namespace)
        if rest:
            name = getattr(options, "command", "")
            chosen = self._commands().get(name, self)
            method = getattr(options, "method", None)
            told = self._read_elsewhere(rest[0], name) or _unknown(rest[0], chosen._flags(), method)
            raise BadInput(f"{told}{chosen._help()}")
        return options

    def _command_first(self, given: list[str]) -> list[str]:
        """Move the options that stand before the command behind it."""
        commands = self._commands()
        if not given or not given[0].startswith("-") or given[0] in self._flags():
            return given
        for at, word in enumerate(given[1:], 1):
            if word in commands and not commands[word]._takes_a_value(given[at - 1]):
                return [word, *given[:at], *given[at + 1 :]]
        return given

    def _takes_a_value(self, word: str) -> bool:
        return any(word in each.option_strings and each.nargs != 0 for each in self._actions)

    def _flags(self) -> list[str]:
        return [each for action in self._actions for each in action.option_strings]

    def _commands(self) -> dict[str, "CommandParser"]:
        """The commands by name; a command has none."""
        found = [action.choices for action in self._actions if isinstance(action, _SubParsersAction)]
        return dict(found[0]) if found else {}

    def _read_elsewhere(self, word: str, command: str) -> str:
        """Say which commands read a flag that this one does not; empty if none does."""
        flag = word.partition("=")[0]
        readers = [name for name, other in self._commands().items() if flag in other._flags()]
        if not flag.startswith("--") or not readers:
            return ""
        where = f"it goes with {', '.join(readers)}"
        return f"unknown flag {flag!r} of `{command}`, which does not read it: {where}."

    def _help(self) -> str:
        return f" See `{self.prog} --help`."


def _unknown(given: str, flags: Iterable[str], method: str | None) -> str:
    """Say that an argument is not known, and which flags are near, or what is meant by it."""
    if not given.startswith("-"):
        dash = given.startswith(("\N{EN DASH}", "\N{EM DASH}", "\N{MINUS SIGN}"))
        hint = " Write two hyphens before a flag, not a dash." if dash else " Leave it out, or quote blanks."
        return f"the command line must not have the further argument {given!r}.{hint}"
    name = given.partition("=")[0]
    if in_our_words(name):
        return f"unknown flag {name!r}. {in_our_words(name, _hyper_parameters(method))}"
    near = get_close_matches(name, sorted(flags), n=3, cutoff=0.7)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"unknown flag {name!r}.{hint} A field or hyper-parameter without a flag is given by --set."


def _hyper_parameters(method: str | None) -> list[str]:
    """The names of a method's hyper-parameters; none of one that is not known."""
    from stillhouse.methods import fields_of, known_methods, load_method

    if method not in known_methods():
        return []
    return [field.name for field in fields_of(load_method(method))]


def new_command(
    commands: "_SubParsersAction[ArgumentParser]", name: str, what: str, examples: str
) -> ArgumentParser:
    """Add a command with what it does and examples of it."""
    command = commands.add_parser(
        name,
        add_help=False,
        help=what,
        description=what[0].upper() + what[1:] + ".",
        epilog=f"examples:\n  {examples}",
        formatter_class=_OneLine,
        usage=f"stillhouse {name} [options]" if name in _SHORT_USAGE else None,
    )
    command.add_argument("-h", "--help", action="help", help=SUPPRESS)  # Who reads it has found it.
    return command


_SHORT_USAGE = ("sweep", "train", "doctor", "plan", "embed", "evaluate", "mine")


class _OneLine(RawDescriptionHelpFormatter):
    """Options in one column and their texts in another, so that most take one line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=118)


def add_method(command: ArgumentParser) -> None:
    """Add the method, its preset, and values that are fixed."""
    command.add_argument(
        "method",
        nargs="?",
        help="a method, or a sweep of the workspace (--like SWEEP: under another method or name)",
    )
    command.add_argument("--preset", help="paper (default) or another one (`stillhouse presets METHOD`)")
    add_scale(command)


def add_scale(command: ArgumentParser) -> None:
    """Add the scale of an experiment file."""
    command.add_argument(
        "--scale", default="", metavar="NAME", help="a scale of the experiment file, such as small"
    )


def add_file(command: ArgumentParser) -> None:
    """Add the experiment file and its variants."""
    command.add_argument("--file", metavar="FILE", help="experiment file; its `search` part is not read")
    command.add_argument(
        "--variant", default="", metavar="NAME[,NAME]", help="variants of the file; default: all of them"
    )


def add_experiment(
    command: ArgumentParser, names: tuple[str, ...] = tuple(FLAGS), *, method: bool = False
) -> None:
    """Add flags for fields of an experiment, by their names in `FLAGS`, and `--set` and `--like`.

    With a method `--set` also fixes its hyper-parameters.
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
    like = SUPPRESS if method else "start from the experiment of a sweep of the workspace"  # METHOD names it.
    group.add_argument("--like", default="", metavar="SWEEP", help=like)
    add_declared(group, Resources, ["refresh"])


def add_field(group: Any, name: str, field: Field, *, shown: bool = True) -> None:
    """Add the flag of one field; a flag that is not given is None."""
    flag, text = "--" + name.replace("_", "-"), f"{short(field.text)}{shown_default(field)}"
    text = text.replace("%", "%%") if shown else SUPPRESS
    if field.type == "bool":
        group.add_argument(flag, dest=name, action=BooleanOptionalAction, default=None, help=text)
    else:
        numbers = {"int": _KINDS[int], "float": _KINDS[float]}
        read, metavar = numbers.get(field.type.removesuffix(" | None"), (str, "VALUE"))
        group.add_argument(flag, dest=name, type=read, default=None, metavar=metavar, help=text)


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
    shown = isinstance(field.default, str | int | float) and field.default not in ("", False)
    return f" ({field.default})" if shown else ""


def add_where(command: ArgumentParser, *, trains: bool = False, embeds: bool = True) -> None:
    """Add the cluster and the device, and what `add_common` adds."""
    group = command.add_argument_group("where it runs")
    names = ["address", *(("workers", "cpus_per_worker", "gpus_per_worker") if trains else ())]
    add_declared(group, Resources, [*names, *(("actors",) if embeds else ()), "wait_for_nodes"])
    add_declared(group, Place, ["device"])
    add_common(command, remote=True)


def add_declared(group: Any, declared: Any, names: Iterable[str], **texts: str) -> None:
    """Add flags for some keywords that a class of the Python interface declares and documents.

    ``texts`` replace documented ones. A flag that is not given is None, or False.
    """
    hints, documented = typing.get_type_hints(declared), attribute_docs(declared)
    for name in names:
        flag, text = "--" + name.replace("_", "-"), texts.get(name, short(documented.get(name, "")))
        kinds = [kind for kind in _KINDS if kind in (hints[name], *typing.get_args(hints[name]))]
        if hints[name] is bool:
            group.add_argument(flag, action="store_true", help=text)
        elif typing.get_origin(hints[name]) is Sequence:
            group.add_argument(flag, type=lambda given: tuple(given.split(",")), metavar="LIST", help=text)
        else:
            read, metavar = _KINDS[kinds[0]]
            group.add_argument(flag, type=read, metavar=metavar, help=text)


def add_common(command: ArgumentParser, *, remote: bool = False, results: bool = True) -> None:
    """Add flags for the workspace, the remote, the file of results, and how much is printed."""
    group = command.add_argument_group("output")
    group.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        help="workspace; default: $STILLHOUSE_ROOT, else ./runs (checked as --verify says)",
    )
    group.add_argument("--verify", choices=COMPARING, help=SUPPRESS)  # For the line of --root, as below.
    if remote:
        group.add_argument(
            "--remote",
            metavar="URL",
            help="kept there for all nodes: s3://…, gs://…, az://…, a folder; here at most --cache-gb X",
        )
        group.add_argument(
            "--cache-gb",
            type=number,
            metavar="X",
            help=SUPPRESS,  # The line of --remote names it, so that the help fits on a screen.
        )
    if results:
        group.add_argument(
            "--json", type=Path, metavar="FILE", help="also write the results as JSON; - for standard output"
        )
    group.add_argument("-v", "--verbose", action="store_true", help="show the output of the libraries")


def add_local(command: ArgumentParser) -> None:
    """Add `--local`."""
    command.add_argument("--local", action="store_true", help="run in one plain process, without Ray")
