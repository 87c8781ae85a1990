"""`stillhouse fields [PATH]`: every field of an experiment, with type, default and meaning."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from dataclasses import asdict

from stillhouse.cli.arguments import FLAGS, add_common, new_command
from stillhouse.cli.run import write_results
from stillhouse.core.console import show
from stillhouse.core.errors import BadInput
from stillhouse.experiments.fields import fields, near_fields


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "fields",
        "list the fields of an experiment: path, type, default and meaning",
        "stillhouse fields\n  stillhouse fields pairs.mining\n"
        "  stillhouse sweep ibkd --set pairs.mining.range_max=100",
    )
    command.add_argument(
        "path", nargs="?", default="", metavar="PATH", help="a field, or the fields below a path"
    )
    add_common(command)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    path = options.path.rstrip(".")
    found = [f for f in fields().values() if not path or f.path == path or f.path.startswith(f"{path}.")]
    if not found:
        raise BadInput(f"unknown field `{path}`. {near_fields(path, groups=True)}")
    flags = {name: flag for flag, name in FLAGS.items()}
    rows = [(field.path, field.type, _shown(field.default)) for field in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for field, row in zip(found, rows, strict=True):
        flag = f" [--{flags[field.path].replace('_', '-')}]" if field.path in flags else ""
        start = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        show(f"{start}  {field.text.replace('``', '')}{flag}")
    write_results(options, [asdict(field) for field in found])
    return 0


def _shown(default: object) -> str:
    return "–" if default == "" else str(default).lower() if isinstance(default, bool) else str(default)
