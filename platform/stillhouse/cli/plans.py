"""Plans of what a command line names: a sweep, a training or an embedding."""

from argparse import Namespace
from contextlib import AbstractContextManager

from stillhouse.cli.method_values import chosen_sweep, experiments_of, trainings_of
from stillhouse.cli.parsed_values import asked
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import require
from stillhouse.search.keywords import Place
from stillhouse.sweeps.planning.command_plan import (
    Plan,
    Request,
    plan_embedding,
    plan_sweep,
    plan_training,
)
from stillhouse.sweeps.session import device_of, need_of, session_of
from stillhouse.sweeps.sweep import check_same_sweep


def _request(options: Namespace) -> Request:
    """Return the place and the options that the plan is made for."""
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


def plan_of_sweep(options: Namespace) -> Plan:
    """Plan the sweep of a command line."""
    request = _request(options)
    chosen = chosen_sweep(options).on(request.device)
    with _session(options) as (workspace, _):
        check_same_sweep(chosen)
        return plan_sweep(chosen, workspace, request)


def plan_of_training(options: Namespace) -> Plan:
    """Plan the training of a command line."""
    trainings = {training.name: training for training in trainings_of(options)}
    training = trainings[_only(list(trainings))]
    with _session(options) as (workspace, _):
        training.say_notes()
        return plan_training(training, workspace, _request(options), refresh=options.refresh)


def plan_of_embedding(options: Namespace) -> Plan:
    """Plan the embedding of a command line."""
    experiments = experiments_of(options)
    experiment = experiments[_only(list(experiments))]
    with _session(options) as (workspace, _):
        return plan_embedding(experiment, workspace, _request(options), refresh=options.refresh)


def _only(variants: list[str]) -> str:
    """The one variant that is planned."""
    require(len(variants) == 1, "a plan must be of one variant", variants=variants, remedy="Give --variant.")
    return variants[0]
