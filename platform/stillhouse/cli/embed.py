"""`stillhouse embed`: read a corpus and run the teacher over it once."""

from argparse import ArgumentParser, Namespace, _SubParsersAction

from stillhouse.cli.arguments import add_experiment, add_local, add_where, new_command
from stillhouse.cli.options import embedding_of, experiment_from, require_corpus
from stillhouse.cli.run import on_ray, write_results
from stillhouse.core.console import say


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "embed",
        "read a corpus and run the teacher over it once",
        "stillhouse embed --corpus 'texts/*.jsonl' --column body --sentences 0\n  stillhouse embed --local",
    )
    add_local(command)
    add_experiment(command)
    add_where(command)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.experiments.preparation import prepare

    experiment = experiment_from(options, base=options.base)
    require_corpus(experiment)
    with on_ray(options) as (workspace, device):
        embedding = embedding_of(options, device, local=options.local)
        prepared = prepare(experiment, workspace, embedding, refresh=options.refresh)
    for name, value in prepared.facts.items():
        say(f"  {name}: {value}")
    write_results(options, prepared.facts)
    return 0
