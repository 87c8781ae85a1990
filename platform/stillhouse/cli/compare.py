"""`stillhouse compare RUN… | --experiment NAME`: tables and figures of runs from what MLflow holds."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from pathlib import Path

from stillhouse.cli.arguments import add_common, new_command
from stillhouse.cli.parsed_values import root_of
from stillhouse.cli.run import quietly, write_results
from stillhouse.core.console import show


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "compare",
        "make tables and figures of runs from what MLflow holds",
        "stillhouse compare --experiment ibkd\n"
        "  stillhouse compare ibkd-small ibkd-large --format md,csv --output tables",
    )
    command.add_argument("runs", nargs="*", metavar="RUN", help="names of sweeps, or names or ids of runs")
    command.add_argument("--experiment", default="", metavar="NAME", help="all runs of an MLflow experiment")
    command.add_argument(
        "--output", type=Path, metavar="DIR", help="where to write; default: comparisons/ in the workspace"
    )
    command.add_argument(
        "--format", default="md,csv,html", help="some of md,csv,html (default all); figures are PNG as well"
    )
    command.add_argument(
        "--quality", default="", metavar="FIGURE", help="figure to draw; default: what the sweeps selected by"
    )
    add_common(command)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.reports.comparison import Comparison, compare
    from stillhouse.tracking.location import tracking_uri

    comparison = Comparison(
        runs=tuple(options.runs),
        experiment=options.experiment,
        output=options.output,
        formats=tuple(options.format.split(",")),
        quality=options.quality,
    )
    root = root_of(options)
    with quietly(options):
        report = compare(comparison, root, tracking_uri(root))
    table, page = report.pop("table"), report.pop("page")
    for line in table:
        show(line)
    show(f"written: {', '.join(report['files'])} in {report['folder']}")
    if page:
        show(f"the sweeps side by side in MLflow: {page}")
    write_results(options, report)
    return 0
