"""`stillhouse embed`: read a corpus and run the teacher over it once."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from typing import Any

from stillhouse.cli.arguments import add_experiment, add_file, add_local, add_scale, add_where, new_command
from stillhouse.cli.parsed_values import embedding_of
from stillhouse.cli.run import on_ray, write_results
from stillhouse.core.console import show


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "embed",
        "read a corpus and run the teacher over it once",
        "stillhouse embed --corpus 'texts/*.jsonl' --column body\n  stillhouse embed --local\n"
        "  stillhouse embed --file search_spaces/recipes/search.yaml --variant recipe",
    )
    add_local(command)
    add_file(command)
    add_scale(command)
    add_experiment(command)
    add_where(command)
    command.set_defaults(method=None, preset=None)  # The texts of a file are read whatever its method is.
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.cli.method_values import experiments_of
    from stillhouse.experiments.preparation import prepare

    experiments = experiments_of(options)
    facts: dict[str, dict[str, Any]] = {}
    with on_ray(options) as (workspace, device):
        embedding = embedding_of(options, device)
        for variant, experiment in experiments.items():
            if variant:
                show(f"variant {variant}")
            prepared = prepare(experiment, workspace, embedding, refresh=options.refresh)
            facts[variant] = prepared.facts
            for name, value in prepared.facts.items():
                show(f"  {name}: {value}")
    write_results(options, facts if len(facts) > 1 else next(iter(facts.values())))
    return 0
