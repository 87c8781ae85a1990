"""`stillhouse sweep METHOD`: search a method's hyper-parameters, and deliver the best student."""

from argparse import ArgumentParser, Namespace, _SubParsersAction

from stillhouse.cli.arguments import add_declared, add_experiment, add_method, add_where, new_command
from stillhouse.cli.parsed_values import root_of
from stillhouse.cli.run import write_results
from stillhouse.core.console import say
from stillhouse.search.keywords import Resources, Search
from stillhouse.search.samplers import known_samplers
from stillhouse.search.schedulers import known_schedulers

_ELSEWHERE = ("scale", "data_root", "like")
"""Keywords of a search whose flags belong to other groups."""


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
    declared = [
        name for name in Search.__annotations__ if name not in (*Resources.__annotations__, *_ELSEWHERE)
    ]
    texts = {
        "sampler": f"{_one_of(known_samplers())} (tpe)",
        "scheduler": f"rule that stops weak trials early: {_one_of(known_schedulers())} (asha)",
        "register": "name in the MLflow registry",
    }
    add_declared(search, Search, declared, **texts)


def _one_of(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.cli.method_values import chosen_sweep
    from stillhouse.sweeps.sweep import sweep
    from stillhouse.tracking.location import tracking_uri
    from stillhouse.tracking.reading import where_to_look

    tracking, chosen = tracking_uri(root_of(options)), chosen_sweep(options)
    report = sweep(chosen)
    say(f"the trials in MLflow: {where_to_look(tracking, chosen.name)}")
    write_results(options, report)
    return 0 if report["student"] else 1
