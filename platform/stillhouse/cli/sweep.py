"""`stillhouse sweep METHOD`: search a method's hyper-parameters, and deliver the best student."""

from argparse import SUPPRESS, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stillhouse.cli.arguments import add_experiment, add_method, add_where, new_command
from stillhouse.cli.options import device_of, experiment_from, need_of, remote_of, require_corpus, root_of
from stillhouse.cli.run import write_results
from stillhouse.core.console import say
from stillhouse.search.samplers import known_samplers
from stillhouse.search.schedulers import known_schedulers

if TYPE_CHECKING:
    from stillhouse.search.options import SweepOptions


_SEARCH: Mapping[str, Any] = {"sampler": "tpe", "objectives": ("quality",), "scheduler": "asha", "full": 1}
"""How a sweep searches unless flags or the sweep that it follows say otherwise."""


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "sweep",
        "search a method's hyper-parameters, and deliver the best student",
        "stillhouse sweep ibkd --corpus 'texts/*.jsonl' --column body --labelled pairs.jsonl",
    )
    add_method(command)
    add_search(command)
    add_experiment(command, method=True)
    add_where(command, trains=True)
    return command


def add_search(command: ArgumentParser) -> None:
    """Add the search: its space, its trials, and what becomes of the best of them."""
    search = command.add_argument_group("search")
    search.add_argument(
        "--space", metavar="FILE", help="experiment file, with a search space or for the method's own"
    )
    search.add_argument("--section", metavar="NAME", help="part of its space: space (the grid) or continuous")
    search.add_argument("--name", help="name of the sweep; default: the method's")
    search.add_argument(
        "--trials", type=int, metavar="N", help="trials in all; more later extends (8; none for a grid)"
    )
    search.add_argument("--sampler", metavar="NAME", help=f"{_one_of(known_samplers())} (tpe)")
    search.add_argument(
        "--objectives", type=_names, metavar="LIST", help="quality; quality,size; quality,latency"
    )
    search.add_argument(
        "--scheduler",
        metavar="NAME",
        help=f"rule that stops weak trials early: {_one_of(known_schedulers())} (asha)",
    )
    for flag, name in (("--asha", "asha"), ("--no-asha", "none")):
        search.add_argument(flag, dest="scheduler", action="store_const", const=name, help=SUPPRESS)
    search.add_argument("--full", type=int, metavar="N", help="trials that are never stopped early (1)")
    search.add_argument(
        "--concurrency", type=int, default=0, metavar="N", help="trials at once; default: what fits"
    )
    search.add_argument(
        "--register",
        default="",
        metavar="NAME",
        help="name in the MLflow registry (--register-anyway: even if worse than the baseline)",
    )
    search.add_argument("--register-anyway", action="store_true", help=SUPPRESS)  # In the line above.


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _one_of(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.sweeps.sweep import sweep
    from stillhouse.tracking.location import tracking_uri
    from stillhouse.tracking.reading import where_to_look

    tracking, chosen = tracking_uri(root_of(options)), chosen_sweep(options)
    report = sweep(chosen)
    say(f"the trials in MLflow: {where_to_look(tracking, chosen.name)}")
    write_results(options, report)
    return 0 if report["student"] else 1


def chosen_sweep(options: Namespace) -> "SweepOptions":
    """The sweep that a command line asks for, checked.

    Raises:
        BadInput: The first thing that cannot be used, or a corpus that does not exist.
    """
    from stillhouse.cli.method_values import fixed_of
    from stillhouse.methods import load_method
    from stillhouse.sweeps.begun import search_in_sweep
    from stillhouse.sweeps.checks import sweep_options
    from stillhouse.sweeps.runs import base_run

    begun = options.begun
    base = base_run(
        options.space or begun,
        method=options.method or "",
        preset=options.preset or "",
        scale=options.scale,
        data_root=options.data_root or "",
    )
    own = None if options.method or options.space else begun
    fields = {} if begun and not options.space else base.experiment
    search: dict[str, Any] = {**_SEARCH, **(search_in_sweep(begun) if begun else {})}
    given = {name: value for name in search if (value := getattr(options, name)) is not None}
    chosen = sweep_options(
        base.method,
        experiment_from(options, fields),
        root_of(options),
        device=device_of(options),
        need=need_of(options),
        actors=options.actors,
        space=options.space or own,
        section=options.section or "",
        fixed=fixed_of(options, load_method(base.method)),
        scale=options.scale,
        data_root=options.data_root or "",
        preset=base.preset,
        trials=options.trials,
        name=options.name or "",
        **{**search, **given},
        at_once=options.concurrency,
        address=options.address,
        register=options.register,
        register_anyway=options.register_anyway,
        refresh=options.refresh,
        verbose=options.verbose,
        remote=remote_of(options),
        wait_s=options.wait_for_nodes,
    )
    require_corpus(chosen.experiment)
    return chosen
