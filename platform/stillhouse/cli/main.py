"""The console command, `stillhouse COMMAND`; the jobs call it too."""

import os
import select
import sys
import traceback
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence

from stillhouse.cli import (
    compare,
    dashboard,
    doctor,
    embed,
    evaluate,
    export,
    fields,
    mine,
    presets,
    store,
    sweep,
    train,
    verify,
)
from stillhouse.cli.run import check_json
from stillhouse.core.artifacts import default_root
from stillhouse.core.console import log_failure, private_environment, warn
from stillhouse.core.errors import mistake_in
from stillhouse.core.signals import sigterm_interrupts
from stillhouse.experiments.experiment import Experiment

COMMANDS = (
    sweep,
    train,
    doctor,
    embed,
    mine,
    evaluate,
    compare,
    dashboard,
    export,
    verify,
    store,
    presets,
    fields,
)

_EXAMPLES = """examples:
  stillhouse sweep ibkd                              the main job, with its defaults
  stillhouse sweep ibkd --trials 30 --corpus hf:wikitext:wikitext-103-raw-v1:train --split-sentences
  stillhouse train ibkd --set distil_learning_rate=3e-4 --local
  stillhouse doctor ibkd                             what is wrong with a run, before it starts
  stillhouse mine --labelled pairs.jsonl --negatives 4 --output mined.jsonl
  stillhouse evaluate all-MiniLM-L6-v2 --json teacher.json
  stillhouse compare --experiment ibkd
  stillhouse verify --repair

Exit codes: 0 done, 1 failed (`doctor`, `verify`: they found an error), 2 bad input, 130 interrupted (the same
command resumes), 141 the reader of the output closed the pipe.
"""


def main(arguments: Sequence[str] | None = None, *, experiment: Experiment | None = None) -> int:
    """Run one command.

    Args:
        arguments: The arguments after the program's name; None takes the process's own.
        experiment: What the command's flags and file change; None takes the defaults.

    Returns:
        The exit code: 0, 1 (failed), 2 (bad input), 130 (interrupted) or 141 (the reader closed the pipe).
    """
    private_environment()
    options = parser().parse_args(arguments)
    options.base = experiment
    try:
        check_json(getattr(options, "json", None))
        with sigterm_interrupts():
            outcome: int = options.execute(options)
        sys.stdout.flush()
        return outcome
    except KeyboardInterrupt:
        warn("interrupted. The same command resumes from here.")
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_left():
            return 141
        mistake = mistake_in(error)
        if mistake is not None:
            warn(str(mistake))
            return 2
        _report_failure(error, options)
        return 1


def parser() -> ArgumentParser:
    """Build the parser of the whole command line."""
    top = ArgumentParser(
        prog="stillhouse",
        description="Distil a large text-embedding model into a small, fast one.",
        epilog=_EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands).set_defaults(execute=command.run)
    return top


def _reader_left() -> bool:
    """Whether the reader closed the pipe, as `head` does; then writing stops."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    left = any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    if left:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return left


def _report_failure(error: Exception, options: Namespace) -> None:
    """Print one line; the traceback goes to the log, or to the screen with `-v`."""
    text = next(iter(str(error).strip().splitlines()), "")
    if options.verbose:
        warn("".join(traceback.format_exception(error)))
        warn(f"failed: {text}")
        return
    log = log_failure(error, (options.root or default_root()).resolve() / "logs")
    warn(f"failed: {type(error).__name__}: {text} The traceback is in {log}; -v shows it here.")


if __name__ == "__main__":
    sys.exit(main())
