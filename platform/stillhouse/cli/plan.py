"""`stillhouse plan METHOD`: what a sweep, a training or an embedding will take, before it is run."""

from argparse import ArgumentParser, Namespace, _SubParsersAction

from stillhouse.cli.arguments import (
    add_experiment,
    add_file,
    add_local,
    add_method,
    add_where,
    new_command,
    number,
)
from stillhouse.cli.run import write_results
from stillhouse.cli.sweep import add_search
from stillhouse.core.console import show
from stillhouse.core.errors import require

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
    from stillhouse.cli.plans import plan_of_embedding, plan_of_sweep, plan_of_training

    plan = {SWEEP: plan_of_sweep, TRAIN: plan_of_training, EMBED: plan_of_embedding}[what](options)
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
