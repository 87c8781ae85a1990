"""`stillhouse export STAGE FOLDER`: write a trained student in a form that others load."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from pathlib import Path

from stillhouse.cli.arguments import add_common, new_command
from stillhouse.cli.run import quietly, write_results
from stillhouse.core.console import say
from stillhouse.core.errors import require


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "export",
        "write a trained student as a folder that sentence-transformers loads, or in another form",
        "stillhouse export runs/stages/finetune-0123456789abcdef my-student\n"
        "  stillhouse export runs/stages/finetune-0123456789abcdef --format list\n"
        "  stillhouse export runs/stages/finetune-0123456789abcdef my-graph --format onnx-int8",
    )
    command.add_argument("stage", type=Path, help="folder of a finished stage")
    command.add_argument("folder", type=Path, nargs="?", help="where to write")
    command.add_argument(
        "--format",
        default="sentence-transformers",
        metavar="FORM",
        help="sentence-transformers (default), onnx or onnx-int8 (extra onnx), compact (tied layers once; "
        "only this package reads it), or list: which of them this student has",
    )
    add_common(command)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.students.export.formats import FORMATS
    from stillhouse.sweeps.export import export_stage, formats_of

    known = (*FORMATS, "list")
    require(options.format in known, f"format in {known}", format=options.format)
    if options.format == "list":
        with quietly(options):
            formats = formats_of(options.stage)
        for form, reason in formats.items():
            say(f"  {form:<22} {f'no: {reason}' if reason else 'yes'}")
        write_results(options, {"formats": formats})
        return 0
    require(options.folder is not None, "an export is given a folder", remedy="Say where to write.")
    with quietly(options):
        cosine = export_stage(options.stage, options.folder, form=options.format)
    megabytes = sum(file.stat().st_size for file in options.folder.rglob("*") if file.is_file()) / 1e6
    say(
        f"exported: {options.folder} ({options.format}, {megabytes:.1f} MB, "
        f"lowest cosine to the trained student {cosine:.7f})"
    )
    results = {"format": options.format, "folder": str(options.folder), "parity": cosine}
    write_results(options, {**results, "megabytes": megabytes})
    return 0
