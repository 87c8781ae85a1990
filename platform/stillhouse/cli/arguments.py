"""The arguments of the commands that make something. Nothing heavy is imported: `--help` answers at once."""

from argparse import SUPPRESS, ArgumentParser, _SubParsersAction
from pathlib import Path

from stillhouse.cli.groups import add_common, add_experiment, add_method, add_where, new_command
from stillhouse.plan.mining_rule import MINING_RULE
from stillhouse.search.samplers import known_samplers
from stillhouse.search.schedulers import known_schedulers


def add_sweep(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse sweep METHOD`."""
    command = new_command(
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
    search.add_argument("--sampler", default="tpe", help=f"{_one_of(known_samplers())} (default tpe)")
    search.add_argument(
        "--objectives", default="quality", help="quality, or a pair: quality,size quality,latency"
    )
    search.add_argument(
        "--scheduler",
        default="asha",
        help=f"rule that stops weak trials early: {_one_of(known_schedulers())} (default asha)",
    )
    for flag, name in (("--asha", "asha"), ("--no-asha", "none")):
        search.add_argument(flag, dest="scheduler", action="store_const", const=name, help=SUPPRESS)
    search.add_argument("--full", type=int, default=3, help="trials that are never stopped early (default 3)")
    search.add_argument("--concurrency", type=int, default=0, help="trials at once; default: what fits")
    search.add_argument("--register", default="", metavar="NAME", help="name in the MLflow model registry")
    add_method(command)
    add_experiment(command)
    add_where(command)


def _one_of(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def add_train(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse train METHOD`."""
    command = new_command(
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
    add_method(command)
    add_experiment(command)
    add_where(command)


def add_embed(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse embed`."""
    command = new_command(
        commands,
        "embed",
        "read a corpus and run the teacher over it once",
        "stillhouse embed --corpus 'texts/*.jsonl' --column body --sentences 0\n  stillhouse embed --local",
    )
    command.add_argument("--local", action="store_true", help="one plain process, without Ray")
    add_experiment(command)
    add_where(command)


def add_mine(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse mine`."""
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
    command.add_argument("--pairs", type=int, help="pairs to take; default: all of FILE, 2048 of pydocs")
    command.add_argument("--negatives", type=int, help="K, hard negatives a pair (default 1)")
    command.add_argument("--local", action="store_true", help="one plain process, without Ray")
    rule = [f"mine_{name}" for name in MINING_RULE]
    add_experiment(command, ["teacher", "max_length", "compute", *rule], prefix="mine_")
    add_where(command)


def add_export(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse export STAGE FOLDER`."""
    command = new_command(
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
    add_common(command)


def add_store(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse store {ls,verify,gc}`."""
    command = new_command(
        commands,
        "store",
        "list, verify and clear the teacher stores",
        "stillhouse store ls\n  stillhouse store verify\n  stillhouse store gc --yes",
    )
    command.add_argument("action", choices=["ls", "verify", "gc"])
    command.add_argument("--yes", action="store_true", help="gc: delete; without it, only show")
    add_common(command)


def add_presets(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """`stillhouse presets METHOD`."""
    command = new_command(
        commands,
        "presets",
        "show a method's presets side by side: what the paper says, and what the authors' code does",
        "stillhouse presets ibkd",
    )
    command.add_argument("method", help="a method, such as ibkd, ckd or mse")
    add_common(command)
