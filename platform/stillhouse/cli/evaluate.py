"""`stillhouse evaluate MODEL`: measure a model on dev, on locked test data, or on published benchmarks."""

from argparse import ArgumentParser, BooleanOptionalAction, Namespace, _SubParsersAction

from stillhouse.cli.arguments import add_experiment, add_where, new_command
from stillhouse.evaluation.benchmarks import known_suites, suite_flags


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "evaluate",
        "measure a model on the dev suite, on the locked test suite, or on published benchmarks",
        "stillhouse evaluate all-MiniLM-L6-v2\n"
        "  stillhouse evaluate runs/sweeps/ibkd/export --final\n"
        "  stillhouse evaluate all-MiniLM-L6-v2 --suite sts,geometry --data-root DATA --json figures.json\n"
        "  stillhouse evaluate all-MiniLM-L6-v2 --suite retrieval --data-root DATA --run run.txt\n"
        "  stillhouse evaluate --suite retrieval --data-root DATA --from-run run.txt\n"
        "  stillhouse evaluate all-MiniLM-L6-v2 --suite retrieval --data-root DATA \\\n"
        "      --search-shards 4 --index hnsw --index ivfpq:nprobe=32\n"
        "  stillhouse evaluate my-student --suite sts --data-root DATA --against all-MiniLM-L6-v2\n"
        "  stillhouse evaluate my-graph --suite sts,cost --data-root DATA --against ibkd\n"
        "  stillhouse evaluate mse --documents-by teacher --suite retrieval --data-root DATA",
    )
    command.add_argument(
        "model",
        nargs="?",
        default="",
        help="a sweep's or a stage's name or folder, an export in any form, or a model's name; none with "
        "--from-run",
    )
    command.add_argument(
        "--suite",
        metavar="NAME[,NAME]",
        help="published benchmarks from --data-root, without an experiment: "
        f"{', '.join(known_suites())}, mteb:TASK",
    )
    _add_head(command)
    command.add_argument(
        "--against",
        metavar="OTHER",
        help="another model on the same items: intervals, p, and the share kept; `teacher` for a stage's own",
    )
    command.add_argument(
        "--documents-by",
        metavar="TEACHER",
        help="also search documents that this model embeds, with the model's queries: `teacher` for a "
        "stage's own teacher, or a name",
    )
    command.add_argument(
        "--resamples",
        type=int,
        metavar="N",
        help="--against: samples of the items; default 10000, for rank correlations 2000",
    )
    command.add_argument("--final", action="store_true", help="open the test sets; recorded in the workspace")
    group = command.add_argument_group("flags of suites")
    for flag in suite_flags():
        text = f"{flag.suite}: {flag.arguments['help']}"
        group.add_argument(flag.option, dest=flag.name, **{**flag.arguments, "help": text})
    add_experiment(command)
    add_where(command, embeds=False)
    return command


def _add_head(command: ArgumentParser) -> None:
    """Add the head of a published model that states none."""
    command.add_argument(
        "--pooling",
        default="",
        metavar="NAME",
        help="of a published model without modules.json: mean (assumed), cls, max, last or pooler",
    )
    command.add_argument(
        "--normalize",
        action=BooleanOptionalAction,
        help="whether the vectors of such a model have length 1 (not assumed)",
    )


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.cli.against import check_against
    from stillhouse.cli.experiment_figures import evaluate_experiment
    from stillhouse.cli.published_suites import evaluate_suites

    options.local = True
    check_against(options)
    if options.suite is not None:
        evaluate_suites(options)
    else:
        evaluate_experiment(options)
    return 0
