"""`stillhouse train METHOD`: train one student with one method."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from dataclasses import asdict
from typing import TYPE_CHECKING

from stillhouse.cli.arguments import add_experiment, add_file, add_local, add_method, add_where, new_command
from stillhouse.cli.parsed_values import asked, embedding_of, fractions_of
from stillhouse.cli.run import on_ray, write_results
from stillhouse.core.console import say, show
from stillhouse.core.errors import require
from stillhouse.sweeps.session import where_of

if TYPE_CHECKING:
    from stillhouse.sweeps.curve import Point

_RESULTS = ("folder", "metrics", "seconds", "gradient_shares", "before", "start")


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "train",
        "train one student with one method",
        "stillhouse train ibkd --local\n  stillhouse train ibkd --preset repo --set beta1=0.5 --workers 2\n"
        "  stillhouse train ibkd --local --fractions 1,0.3,0.1 --fraction-of sentences\n"
        "  stillhouse train --local --file search_spaces/papers/ibkd_table4.yaml --scale small",
    )
    add_method(command)
    add_local(command)
    add_file(command)
    command.add_argument(
        "--fractions",
        metavar="X[,X]",
        help="train at each of these shares of the rows (see --fraction-of) and print one table",
    )
    add_experiment(command, method=True)
    add_where(command, trains=True)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.cli.method_values import trainings_of
    from stillhouse.search.experiment_file import load_summary
    from stillhouse.sweeps.curve import train_at

    shares = fractions_of(options)
    trainings = trainings_of(options, fraction=min(shares, default=0.0))
    require(
        len(trainings) == 1 or not shares,
        "--fractions must go with one variant",
        variants=[training.name for training in trainings],
        remedy="Name one with --variant.",
    )
    if options.file:
        load_summary(options.file)
    results = []
    with on_ray(options) as (workspace, device):
        for training in trainings:
            if training.name:
                say(f"variant {training.name}")
            training.say_notes()
            points = train_at(
                shares or (training.experiment.budget.fraction,),
                training.method,
                training.hp,
                training.experiment,
                workspace,
                embedding_of(options, device),
                where_of(asked(options), device, local=options.local),
                refresh=options.refresh,
                teacher=training.teacher,
            )
            results.append((training.name, points))
    return _report(options, results, shares=bool(shares))


def _report(options: Namespace, results: "list[tuple[str, list[Point]]]", *, shares: bool) -> int:
    """Print and write what was trained: a curve, the rows of a table, or one student."""
    from stillhouse.reports.gradient_shares import shares_line
    from stillhouse.search.experiment_file import load_summary
    from stillhouse.sweeps.curve import curve_table, summary_rows, variants_table

    name, points = results[0]
    if shares:
        show(curve_table(points))
        write_results(options, [asdict(point) for point in points])
        return 0
    if len(results) > 1:
        trained = {name: points[0] for name, points in results}
        lines = load_summary(options.file)
        rows = summary_rows(trained, lines)
        show(variants_table(trained, rows))
        left_out = [line.name for line in lines if line.name not in rows]
        if left_out:
            say(f"not all of their variants were trained: {', '.join(left_out)}")
        variants = [{"variant": name, **asdict(point)} for name, point in trained.items()]
        write_results(
            options, [*variants, *({"summary": name, "metrics": row} for name, row in rows.items())]
        )
        return 0
    (point,) = points
    contributions = shares_line(point.gradient_shares)
    if contributions:
        show(contributions)
    show(f"trained: {point.folder}")
    report = {key: value for key, value in asdict(point).items() if key in _RESULTS}
    write_results(options, {"variant": name, **report} if name else report)
    return 0
