"""`stillhouse plan METHOD`: what a sweep, a training or an embedding will take, before it is run."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from contextlib import AbstractContextManager
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
from stillhouse.cli.parsed_values import asked
from stillhouse.cli.run import write_results
from stillhouse.cli.sweep import add_search, chosen_sweep
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import show
from stillhouse.core.errors import require
from stillhouse.search.keywords import Place
from stillhouse.sweeps.session import device_of, need_of, session_of

if TYPE_CHECKING:
    from stillhouse.sweeps.planning.command_plan import Plan, Request

SWEEP, TRAIN, EMBED = "sweep", "train", "embed"


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "plan",
        "say what a command will take: rows, tokens, GB, memory and hours",
        "stillhouse plan ibkd --trials 40\n"
        "  stillhouse plan ckd --for train --local --corpus 'texts/*.jsonl' --column body\n"
        "  stillhouse plan ibkd --nodes 8 --speed 40",
    )
    add_method(command)
    plan = command.add_argument_group("plan")
    plan.add_argument(
        "--for", dest="planned", default=SWEEP, metavar="COMMAND", help="sweep (default), train or embed"
    )
    plan.add_argument("--nodes", type=int, default=0, metavar="N", help="hours on N nodes, beside those here")
    plan.add_argument(
        "--speed", type=number, metavar="X", help="how many times as fast as this machine each of them is"
    )
    add_search(command)
    add_local(command)
    add_file(command)
    add_experiment(command, method=True)
    add_where(command, trains=True)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    what = _checked(options)
    plan = {SWEEP: _sweep, TRAIN: _training, EMBED: _embedding}[what](options, _request(options))
    for line in plan.lines():
        show(line)
    write_results(options, vars(plan))
    return 0


def _checked(options: Namespace) -> str:
    """The command that is planned.

    Raises:
        BadInput: It is none of those that can be, or flags contradict it or each other.
    """
    what: str = options.planned
    known = (SWEEP, TRAIN, EMBED)
    require(options.nodes >= 0, "--nodes >= 1", nodes=options.nodes)
    require(options.speed is None or options.speed > 0, "--speed > 0", speed=options.speed)
    require(what in known, f"--for must be one of {', '.join(known)}", given=what)
    remedy = "Add --for train or --for embed."
    require(
        not (options.local and what == SWEEP), "--local must go with a plan of one process", remedy=remedy
    )
    require(not (options.file and what == SWEEP), "--file must be that of a training", remedy=remedy)
    require(
        not (options.local and options.nodes),
        "--nodes must go with work on a cluster",
        nodes=options.nodes,
        remedy="Leave out --local.",
    )
    require(
        options.speed is None or options.nodes != 0,
        "--speed must go with --nodes",
        speed=options.speed,
        remedy="Add --nodes 1.",
    )
    return what


def _request(options: Namespace) -> "Request":
    """Return the place and the options that the plan is made for."""
    from stillhouse.sweeps.planning.command_plan import Request

    return Request(
        nodes=options.nodes,
        speed=1.0 if options.speed is None else options.speed,
        local=options.local,
        need=need_of(asked(options)),
        actors=options.actors or 0,
        at_once=options.concurrency or 0,
        device=device_of(asked(options), local=options.local),
    )


def _session(options: Namespace) -> AbstractContextManager[tuple[Workspace, str]]:
    """The workspace, locked; Ray is not started."""
    return session_of({**asked(options, Place), "verbose": options.verbose}, local=True)


def _sweep(options: Namespace, request: "Request") -> "Plan":
    from stillhouse.sweeps.planning.command_plan import plan_sweep
    from stillhouse.sweeps.sweep import check_same_sweep

    chosen = chosen_sweep(options).on(request.device)
    with _session(options) as (workspace, _):
        check_same_sweep(chosen)
        return plan_sweep(chosen, workspace, request)


def _training(options: Namespace, request: "Request") -> "Plan":
    from stillhouse.cli.method_values import trainings_of
    from stillhouse.sweeps.planning.command_plan import plan_training

    trainings = {training.name: training for training in trainings_of(options)}
    training = trainings[_only(list(trainings))]
    with _session(options) as (workspace, _):
        training.say_notes()
        return plan_training(training, workspace, request, refresh=options.refresh)


def _embedding(options: Namespace, request: "Request") -> "Plan":
    from stillhouse.sweeps.planning.command_plan import plan_embedding

    experiments = experiments_of(options)
    experiment = experiments[_only(list(experiments))]
    with _session(options) as (workspace, _):
        return plan_embedding(experiment, workspace, request, refresh=options.refresh)


def _only(variants: list[str]) -> str:
    """The one variant that is planned."""
    require(len(variants) == 1, "a plan must be of one variant", variants=variants, remedy="Give --variant.")
    return variants[0]
