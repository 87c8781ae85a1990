"""`stillhouse plan METHOD`: what a sweep, a training or an embedding will take, before it is run."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.cli.arguments import (
    add_experiment,
    add_file,
    add_local,
    add_method,
    add_where,
    new_command,
    number,
)
from stillhouse.cli.embed import experiments_of
from stillhouse.cli.options import device_of, need_of, remote_of, root_of
from stillhouse.cli.run import write_results
from stillhouse.cli.sweep import add_search, chosen_sweep
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import show
from stillhouse.core.errors import require
from stillhouse.sweeps.session import session

if TYPE_CHECKING:
    from stillhouse.sweeps.planning.plan import Plan, Request

SWEEP, TRAIN, EMBED = "sweep", "train", "embed"


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "plan",
        "say what a command will take: rows, tokens, GB, memory, hours and cost",
        "stillhouse plan ibkd --trials 40\n"
        "  stillhouse plan ckd --for train --local --corpus 'texts/*.jsonl' --column body --sentences 0\n"
        "  stillhouse plan ibkd --nodes 8xg6.4xlarge --rates rates.json --price-per-hour 1.32",
    )
    add_method(command)
    plan = command.add_argument_group("plan")
    plan.add_argument(
        "--for", dest="planned", default=SWEEP, metavar="COMMAND", help="sweep (default), train or embed"
    )
    plan.add_argument(
        "--nodes", nargs="+", default=[], metavar="NxTYPE", help="nodes such as 8xg6.4xlarge; default: 1xhere"
    )
    plan.add_argument(
        "--rates",
        type=Path,
        metavar="FILE",
        help="rates of nodes by type, such as a plan's --json from there",
    )
    plan.add_argument("--prices", type=Path, metavar="FILE", help="price per hour of each type of node")
    plan.add_argument("--price-per-hour", type=number, metavar="X", help="price per hour of every node")
    add_search(command)
    add_local(command)
    add_file(command)
    add_experiment(command, method=True)
    add_where(command, trains=True)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.sweeps.planning.note import keep_plan
    from stillhouse.sweeps.planning.page import lines_of

    what = _checked(options)
    request = _request(options)
    plan, folder, identity = {SWEEP: _sweep, TRAIN: _training, EMBED: _embedding}[what](options, request)
    for line in lines_of(plan):
        show(line)
    content = plan.as_json()
    keep_plan(folder, identity, content)
    write_results(options, content)
    return 0


def _checked(options: Namespace) -> str:
    """The command that is planned.

    Raises:
        BadInput: It is none of those that can be, or flags contradict it or each other.
    """
    what: str = options.planned
    known = (SWEEP, TRAIN, EMBED)
    require(what in known, f"--for must be one of {', '.join(known)}", given=what)
    remedy = "Add --for train or --for embed."
    require(
        not (options.local and what == SWEEP), "--local must go with a plan of one process", remedy=remedy
    )
    require(not (options.file and what == SWEEP), "--file must be that of a training", remedy=remedy)
    require(
        not (options.prices and options.price_per_hour is not None),
        "a price must be given once, by --prices or by --price-per-hour",
        remedy="Leave out one of the two.",
    )
    require(
        not (options.local and options.nodes),
        "--nodes must go with work on a cluster",
        nodes=" ".join(options.nodes),
        remedy="Leave out --local.",
    )
    return what


def _request(options: Namespace) -> "Request":
    """What the plan is made for, beside the experiment."""
    from stillhouse.sweeps.planning.nodes import (
        checked_price,
        chosen_nodes,
        parse_nodes,
        price_of,
        read_prices,
    )
    from stillhouse.sweeps.planning.plan import Request
    from stillhouse.sweeps.planning.rates import HERE, read_rates

    written = tuple(parse_nodes(options.nodes))
    rates = read_rates(options.rates) if options.rates else {}
    others = [each for each in written if each[1] != HERE or HERE in rates]
    nodes = chosen_nodes(others, rates)
    prices = read_prices(options.prices) if options.prices else {}
    if prices:
        price_of(nodes, prices)
    price = None if options.price_per_hour is None else checked_price(options.price_per_hour)
    device = device_of(options)
    if written and options.device == "auto" and len(others) == len(written):
        device = "cuda" if any(each.rates.gpus for each in nodes) else "cpu"
    return Request(
        nodes=written,
        rates=rates,
        prices=prices,
        price=price,
        local=options.local,
        need=need_of(options),
        actors=options.actors,
        at_once=options.concurrency,
        device=device,
        logs=root_of(options) / "logs",
    )


def _session(options: Namespace, device: str) -> AbstractContextManager[tuple[Workspace, str]]:
    """The workspace, locked; Ray is not started."""
    return session(
        root_of(options), device=device, local=True, verbose=options.verbose, remote=remote_of(options)
    )


def _sweep(options: Namespace, request: "Request") -> "tuple[Plan, Path, str]":
    """The plan of a sweep, the sweep's folder, and what identifies its work."""
    from stillhouse.sweeps.planning.plan import plan_sweep
    from stillhouse.sweeps.sweep import check_same_sweep, forecast_folder, plan_identity

    chosen = chosen_sweep(options).on(request.device)
    with _session(options, request.device) as (workspace, _):
        check_same_sweep(chosen)
        return plan_sweep(chosen, workspace, request), forecast_folder(chosen), plan_identity(chosen)


def _training(options: Namespace, request: "Request") -> "tuple[Plan, Path, str]":
    from stillhouse.cli.method_values import trainings_of
    from stillhouse.sweeps.planning.note import PLANS
    from stillhouse.sweeps.planning.plan import plan_training

    trainings = {training.name: training for training in trainings_of(options)}
    training = trainings[_only(list(trainings))]
    with _session(options, request.device) as (workspace, _):
        plan = plan_training(training, workspace, request, refresh=options.refresh)
    return plan, root_of(options) / PLANS / TRAIN, TRAIN


def _embedding(options: Namespace, request: "Request") -> "tuple[Plan, Path, str]":
    from stillhouse.sweeps.planning.note import PLANS
    from stillhouse.sweeps.planning.plan import plan_embedding

    experiments = experiments_of(options)
    experiment = experiments[_only(list(experiments))]
    with _session(options, request.device) as (workspace, _):
        plan = plan_embedding(experiment, workspace, request, refresh=options.refresh)
    return plan, root_of(options) / PLANS / EMBED, EMBED


def _only(variants: list[str]) -> str:
    """The one variant that is planned."""
    require(len(variants) == 1, "a plan must be of one variant", variants=variants, remedy="Give --variant.")
    return variants[0]
