"""The arguments of each command. Nothing heavy is imported, so `--help` answers at once."""

import dataclasses
import inspect
import re
from argparse import ArgumentParser, BooleanOptionalAction, RawDescriptionHelpFormatter, _SubParsersAction
from collections.abc import Collection
from pathlib import Path
from typing import Any

from stillhouse.mining_rule import MINING_RULE
from stillhouse.sweeps.experiment import Experiment


def add_sweep(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse sweep METHOD`."""
    command = _command(
        commands,
        "sweep",
        "search a method's hyper-parameters, and deliver the best student",
        "stillhouse sweep ibkd\n"
        "  stillhouse sweep ibkd --trials 40 --section space --sampler grid\n"
        "  stillhouse sweep ibkd --objectives quality,size --space search_spaces/ibkd_pareto.yaml\n"
        "  stillhouse sweep ibkd --workers 2 --trials 3",
    )
    command.add_argument("method", help="a method, such as ibkd, ckd or mse")
    search = command.add_argument_group("search")
    search.add_argument("--space", metavar="FILE", help="search space; default: the method's own")
    search.add_argument("--section", help="part of that file: space (the grid) or continuous")
    search.add_argument("--name", help="of the sweep; default: the method's")
    search.add_argument(
        "--trials", type=int, help="trials in all; more later extends (default 8; none for a grid)"
    )
    search.add_argument("--sampler", default="tpe", help="tpe (default), random, qmc or grid")
    search.add_argument(
        "--objectives", default="quality", help="quality, or a pair: quality,size quality,latency"
    )
    search.add_argument("--asha", action=BooleanOptionalAction, default=True, help="stop weak trials early")
    search.add_argument("--full", type=int, default=3, help="trials that are never stopped early (default 3)")
    search.add_argument("--concurrency", type=int, default=0, help="trials at once; default: what fits")
    search.add_argument("--register", default="", metavar="NAME", help="name in the MLflow model registry")
    _add_method(command)
    _add_experiment(command)
    _add_where(command)


def add_train(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse train METHOD`."""
    command = _command(
        commands,
        "train",
        "train one student with one method",
        "stillhouse train ibkd --local\n  stillhouse train ibkd --preset repo --set beta1=0.5 --workers 2\n"
        "  stillhouse train ibkd --local --fractions 1,0.3,0.1 --fraction-of sentences",
    )
    command.add_argument("method", help="a method, such as ibkd, ckd or mse")
    command.add_argument("--local", action="store_true", help="one plain process, without Ray")
    command.add_argument(
        "--fractions",
        metavar="F[,F]",
        help="train at each of these shares of the rows (see --fraction-of) and print one table; the "
        "teacher embeds once, the budgets in examples stay the same",
    )
    _add_method(command)
    _add_experiment(command)
    _add_where(command)


def add_embed(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse embed`."""
    command = _command(
        commands,
        "embed",
        "read a corpus and run the teacher over it once",
        "stillhouse embed --corpus 'texts/*.jsonl' --column body --sentences 0\n  stillhouse embed --local",
    )
    command.add_argument("--local", action="store_true", help="one plain process, without Ray")
    _add_experiment(command)
    _add_where(command)


def add_mine(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse mine`."""
    command = _command(
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
    command.add_argument("--pairs", type=int, help="pairs to take; default: all of FILE, 2048 of pydocs")
    command.add_argument("--negatives", type=int, help="K, hard negatives a pair (default 1)")
    command.add_argument("--local", action="store_true", help="one plain process, without Ray")
    rule = [f"mine_{name}" for name in MINING_RULE]
    _add_experiment(command, ["teacher", "max_length", "compute", *rule], prefix="mine_")
    _add_where(command)


def add_evaluate(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse evaluate MODEL`."""
    command = _command(
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
        help="published benchmarks from --data-root, without an experiment: sts, xsts, translation, "
        "retrieval, fever, transfer, glue, geometry, cost, mteb:TASK",
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
    _add_experiment(command)
    _add_where(command)


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
    command = _command(
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
    _add_common(command)


def add_export(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse export STAGE FOLDER`."""
    command = _command(
        commands,
        "export",
        "write a trained student as a folder that sentence-transformers loads, or in another form",
        "stillhouse export runs/stages/finetune-0123456789abcdef my-student\n"
        "  stillhouse export runs/stages/finetune-0123456789abcdef --format list\n"
        "  stillhouse export runs/stages/finetune-0123456789abcdef my-graph --format onnx-int8",
    )
    command.add_argument("stage", type=Path, help="folder of a finished stage")
    command.add_argument("folder", type=Path, nargs="?", help="where to write")
    command.add_argument(
        "--format",
        default="sentence-transformers",
        metavar="FORM",
        help="sentence-transformers (default), onnx or onnx-int8 (extra onnx), compact (tied layers once; "
        "only this package reads it), or list: which of them this student has",
    )
    _add_common(command)


def add_store(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse store {ls,verify,gc}`."""
    command = _command(
        commands,
        "store",
        "list, verify and clear the teacher stores",
        "stillhouse store ls\n  stillhouse store verify\n  stillhouse store gc --yes",
    )
    command.add_argument("action", choices=["ls", "verify", "gc"])
    command.add_argument("--yes", action="store_true", help="gc: delete; without it, only show")
    _add_common(command)


def add_presets(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse presets METHOD`."""
    command = _command(
        commands,
        "presets",
        "show a method's presets side by side: what the paper says, and what the authors' code does",
        "stillhouse presets ibkd",
    )
    command.add_argument("method", help="a method, such as ibkd, ckd or mse")
    _add_common(command)


def _command(
    commands: "_SubParsersAction[ArgumentParser]", name: str, what: str, examples: str
) -> ArgumentParser:
    return commands.add_parser(
        name,
        help=what,
        description=what[0].upper() + what[1:] + ".",
        epilog=f"examples:\n  {examples}",
        formatter_class=RawDescriptionHelpFormatter,
    )


def _add_method(command: ArgumentParser) -> None:
    group = command.add_argument_group("method")
    group.add_argument("--preset", default="paper", help="paper (default) or repo")
    group.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="fix a hyper-parameter; repeatable"
    )


def _add_experiment(command: ArgumentParser, names: Collection[str] = (), prefix: str = "") -> None:
    """The options of an experiment as flags, all or those of some names; a prefix is not part of the flag."""
    group = command.add_argument_group("experiment")
    told = attribute_docs(Experiment)
    for field in dataclasses.fields(Experiment):
        if names and field.name not in names:
            continue
        name, default = field.name.removeprefix(prefix), field.default
        flag = "--" + name.replace("_", "-")
        text = f"{told[field.name]} Default: {default!r}.".replace("%", "%%").replace("``", "")
        given: dict[str, Any] = {"dest": field.name, "default": None, "help": text}
        if isinstance(default, bool):
            group.add_argument(flag, action=BooleanOptionalAction, **given)
        else:
            group.add_argument(flag, type=type(default), metavar=name.upper(), **given)
    group.add_argument("--refresh", action="store_true", help="read the corpus again")


def _add_where(command: ArgumentParser) -> None:
    group = command.add_argument_group("where it runs")
    group.add_argument("--address", help="of a Ray cluster; default: the job's, else a local one")
    group.add_argument("--workers", type=int, default=1, help="training processes a run (default 1)")
    group.add_argument("--cpus-per-worker", type=float, default=1, help="default 1")
    group.add_argument("--gpus-per-worker", type=float, default=None, help="default: 1 where there is a GPU")
    group.add_argument("--actors", type=int, default=0, help="teacher actors; default: what fits")
    group.add_argument("--device", default="auto", help="auto (default), cpu, cuda or mps")
    _add_common(command)


def _add_common(command: ArgumentParser) -> None:
    group = command.add_argument_group("output")
    group.add_argument("--root", type=Path, help="workspace; default: $STILLHOUSE_ROOT, else ./runs")
    group.add_argument("--json", type=Path, metavar="FILE", help="write the results there, for machines")
    group.add_argument("-v", "--verbose", action="store_true", help="show the chatter of the libraries")


def attribute_docs(documented: type) -> dict[str, str]:
    """What a class's docstring says of each attribute, so that a help text has one source."""
    text = inspect.getdoc(documented) or ""
    found: dict[str, str] = {}
    name = ""
    for line in text.partition("Attributes:\n")[2].splitlines():
        start = re.match(r"    (\w+): (.*)", line)
        if start:
            name, found[start[1]] = start[1], start[2]
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found
