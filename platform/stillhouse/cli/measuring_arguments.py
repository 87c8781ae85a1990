"""The arguments of the commands that measure and compare. Nothing heavy is imported."""

from argparse import ArgumentParser, _SubParsersAction
from pathlib import Path

from stillhouse.cli.groups import add_common, add_experiment, add_where, new_command
from stillhouse.evaluation.benchmarks import known_suites


def add_evaluate(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse evaluate MODEL`."""
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
        "  stillhouse evaluate my-student --suite sts --data-root DATA --against all-MiniLM-L6-v2",
    )
    command.add_argument(
        "model",
        nargs="?",
        default="",
        help="a stage's folder, an exported folder, or a model's name or path; none with --from-run",
    )
    command.add_argument(
        "--suite",
        metavar="NAME[,NAME]",
        help="published benchmarks from --data-root, without an experiment: "
        f"{', '.join(known_suites())}, mteb:TASK",
    )
    command.add_argument(
        "--run", type=Path, metavar="FILE", help="of --suite retrieval: rankings as TREC has them"
    )
    _add_retrieval(command)
    command.add_argument("--fast", action="store_true", help="of --suite transfer: 5 folds in place of 10")
    command.add_argument("--onnx", action="store_true", help="of --suite cost: also its size as ONNX")
    command.add_argument(
        "--figures",
        type=Path,
        metavar="DIR",
        help="of --suite geometry: covariance of the features as PNG",
    )
    command.add_argument(
        "--against", metavar="OTHER", help="another model on the same items: intervals, p, and the share kept"
    )
    command.add_argument(
        "--resamples",
        type=int,
        metavar="N",
        help="of --against: samples of the items; default 10000, of rank correlations 2000",
    )
    command.add_argument("--final", action="store_true", help="open the test sets; recorded in the workspace")
    add_experiment(command)
    add_where(command)


def _add_retrieval(command: ArgumentParser) -> None:
    group = command.add_argument_group("of --suite retrieval")
    group.add_argument(
        "--from-run",
        type=Path,
        metavar="FILE",
        help="measure this run, in TREC form, in the place of a model",
    )
    group.add_argument(
        "--search-shards",
        type=int,
        default=1,
        metavar="N",
        help="Ray actors that share the exact search, one thread each; the result is the same (default 1)",
    )
    group.add_argument(
        "--index",
        action="append",
        default=[],
        metavar="KIND[:NAME=VALUE,…]",
        help="a FAISS index beside exact search: flat, hnsw, ivfpq or flat-gpu; repeatable",
    )
    group.add_argument(
        "--keep-vectors",
        action="store_true",
        help="leave the passages' vectors in the workspace for next time",
    )


def add_compare(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse compare RUN… | --experiment NAME`."""
    command = new_command(
        commands,
        "compare",
        "make tables and figures of runs from what MLflow holds",
        "stillhouse compare --experiment ibkd\n"
        "  stillhouse compare ibkd-small ibkd-large --format md,csv --output tables",
    )
    command.add_argument("runs", nargs="*", metavar="RUN", help="names of sweeps, or names or ids of runs")
    command.add_argument("--experiment", default="", metavar="NAME", help="all runs of an MLflow experiment")
    command.add_argument(
        "--output", type=Path, metavar="DIR", help="where to write; default: comparisons/ in the workspace"
    )
    command.add_argument(
        "--format", default="md,csv,html", help="some of md,csv,html (default all); figures are PNG as well"
    )
    command.add_argument(
        "--quality", default="", metavar="FIGURE", help="what is drawn; default: what the sweeps selected by"
    )
    add_common(command)
