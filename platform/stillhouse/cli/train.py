"""`stillhouse train METHOD`: train one student with one method."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from dataclasses import asdict

from stillhouse.cli.arguments import add_experiment, add_local, add_method, add_where, new_command
from stillhouse.cli.options import embedding_of, experiment_from, fractions_of
from stillhouse.cli.run import on_ray, write_results
from stillhouse.core.console import say
from stillhouse.experiments.fields import changed
from stillhouse.training.where import Where

_RESULTS = ("folder", "metrics", "seconds", "gradient_shares")


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "train",
        "train one student with one method",
        "stillhouse train ibkd --local\n  stillhouse train ibkd --preset repo --set beta1=0.5 --workers 2\n"
        "  stillhouse train ibkd --local --fractions 1,0.3,0.1 --fraction-of sentences",
    )
    add_method(command)
    add_local(command)
    command.add_argument("--file", metavar="FILE", help="experiment file; its `search` part is not read")
    command.add_argument(
        "--fractions",
        metavar="X[,X]",
        help="train at each of these shares of the rows (see --fraction-of) and print one table",
    )
    add_experiment(command, method=True)
    add_where(command)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.cli.method_values import file_of, fixed_of
    from stillhouse.methods import hyper_parameters, load_method, with_defaults
    from stillhouse.reports.gradient_shares import shares_line
    from stillhouse.sweeps.checks import check_plans
    from stillhouse.sweeps.curve import curve_table, train_at

    method = load_method(options.method)
    fixed = fixed_of(options, method)
    experiment = with_defaults(method, experiment_from(options, file_of(options), options.base))
    shares = fractions_of(options)
    least = changed(experiment, {"budget.fraction": min(shares)}) if shares else experiment
    check_plans(method, least, [fixed], options.preset)
    with on_ray(options) as (workspace, device):
        points = train_at(
            shares or (experiment.budget.fraction,),
            method,
            hyper_parameters(method, fixed, options.preset),
            experiment,
            workspace,
            embedding_of(options, device, local=options.local),
            Where(device=device, threads=max(1, int(options.cpus_per_worker)), workers=options.workers),
            refresh=options.refresh,
        )
    if shares:
        say(curve_table(points))
        write_results(options, [asdict(point) for point in points])
        return 0
    (point,) = points
    contributions = shares_line(point.gradient_shares)
    if contributions:
        say(contributions)
    say(f"trained: {point.folder}")
    write_results(options, {name: value for name, value in asdict(point).items() if name in _RESULTS})
    return 0
