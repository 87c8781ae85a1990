"""`stillhouse mine`: mine hard negatives for labelled pairs with the teacher, and write them as a file."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from pathlib import Path

from stillhouse.cli.arguments import add_experiment, add_field, add_local, add_where, new_command
from stillhouse.cli.parsed_values import embedding_of, experiment_from
from stillhouse.cli.run import on_ray, write_results
from stillhouse.core.console import show
from stillhouse.experiments.fields import fields

_RULE = "pairs.mining."


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "mine",
        "mine hard negatives for labelled pairs with the teacher, and write them as a file",
        "stillhouse mine --labelled pairs.jsonl --output mined.jsonl --negatives 4\n"
        "  stillhouse mine --labelled hf:sentence-transformers/natural-questions:pair:train \\\n"
        "      --range-min 10 --range-max 50 --max-score 0.8 --sampling random --output mined.jsonl\n"
        "  stillhouse train ibkd --labelled mined.jsonl --negatives 4",
    )
    command.add_argument("--output", type=Path, required=True, metavar="FILE", help="JSON lines to write")
    command.add_argument(
        "--labelled", metavar="FILE", help="pairs: JSON lines, CSV, TSV, Parquet or hf:; default: pydocs' own"
    )
    command.add_argument(
        "--pairs", type=int, metavar="N", help="pairs to take; default: all of FILE, 2,048 of pydocs"
    )
    command.add_argument("--negatives", type=int, metavar="N", help="hard negatives per pair (1)")
    add_local(command)
    rule = command.add_argument_group("rule of mining")
    for path, field in fields().items():
        if path.startswith(_RULE):
            add_field(rule, path.removeprefix(_RULE), field)
    add_experiment(command, ("teacher", "max_length", "compute"))
    add_where(command)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.experiments.mined_pairs import check_mine, mine

    rule = {path: getattr(options, path.removeprefix(_RULE)) for path in fields() if path.startswith(_RULE)}
    given = {path: value for path, value in rule.items() if value is not None}
    options.seed = None  # `--seed` is the rule's here.
    experiment = experiment_from(options, given)
    check_mine(experiment, options.output)
    with on_ray(options) as (workspace, device):
        embedding = embedding_of(options, device)
        report = mine(experiment, workspace, embedding, options.output, refresh=options.refresh)
    show(f"mined: {report['pairs']:,} pairs with {report['negatives']} negatives each: {report['output']}")
    for reason, count in report["left_out"].items():
        show(f"  left out, {reason.replace('_', ' ')}: {count:,}")
    positive, negative = report["mean_positive_cosine"], report["mean_negative_cosine"]
    show(f"  mean cosine of positives {positive:.4f}, of negatives {negative:.4f}; {report['seconds']:.1f} s")
    write_results(options, report)
    return 0
