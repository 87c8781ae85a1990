"""`stillhouse presets METHOD`: a method's presets side by side."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from dataclasses import asdict

from stillhouse.cli.arguments import add_common, new_command
from stillhouse.cli.run import write_results
from stillhouse.core.console import say


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "presets",
        "show a method's presets side by side: what the paper says, and what the authors' code does",
        "stillhouse presets ibkd",
    )
    command.add_argument("method", help="a method, such as ibkd, ckd or mse")
    add_common(command)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.methods import load_method
    from stillhouse.methods import presets as presets_of
    from stillhouse.reports.tables import aligned

    method = load_method(options.method)
    values = presets_of(method)
    cells = [
        ["*" if v.differs else "", v.name, str(v.paper), v.paper_source, str(v.repo), v.repo_source]
        for v in values
    ]
    say(f"{method.PAPER}\n")
    for line in aligned(["", "hyper-parameter", "paper", "from", "repo", "from"], cells, left={0, 1, 3, 5}):
        say(line.rstrip())
    say("\n* the authors' code differs from the text")
    write_results(options, [{**asdict(value), "differs": value.differs} for value in values])
    return 0
