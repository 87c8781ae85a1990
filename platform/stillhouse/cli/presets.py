"""`stillhouse presets METHOD`: a method's presets side by side."""

from argparse import ArgumentParser, Namespace, _SubParsersAction

from stillhouse.cli.arguments import add_common, new_command
from stillhouse.cli.run import write_results
from stillhouse.core.console import show
from stillhouse.core.errors import require


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "presets",
        "show a method's presets side by side: what the paper says, and what the authors' code does",
        "stillhouse presets ibkd\n  stillhouse presets --markdown",
    )
    command.add_argument("method", nargs="?", help="a method, such as ibkd, ckd or mse")
    command.add_argument(
        "--markdown", action="store_true", help="as Markdown; without a method, a page of all methods"
    )
    add_common(command)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.methods import known_methods, load_method, preset_rows
    from stillhouse.methods import presets as presets_of
    from stillhouse.reports.layout import table_lines
    from stillhouse.reports.preset_table import presets_page, presets_table

    require(
        options.method is not None or options.markdown,
        "a method must be named",
        remedy="Such as `stillhouse presets ibkd`; `stillhouse presets --markdown` has all of them.",
    )
    if options.method is None:
        show(presets_page().rstrip("\n"))
        every = {name: presets_of(load_method(name)) for name in known_methods()}
        write_results(options, {name: [each.as_json() for each in found] for name, found in every.items()})
        return 0
    method = load_method(options.method)
    values = presets_of(method)
    if options.markdown:
        show(presets_table(method))
    else:
        header, rows = preset_rows(method)
        marked = [["*" if value.differs else "", *row] for value, row in zip(values, rows, strict=True)]
        show(f"{method.PAPER}\n")
        for line in table_lines(["", *header], marked, set(range(len(header) + 1)), key=2):
            show(line.rstrip())
        if "repo" in header:
            show("\n* the authors' code differs from the text")
    write_results(options, [value.as_json() for value in values])
    return 0
