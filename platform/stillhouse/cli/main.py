"""The console command, `stillhouse COMMAND`, and what the jobs call."""

import os
import select
import sys
import traceback
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence

from stillhouse.cli.arguments import (
    add_embed,
    add_export,
    add_mine,
    add_presets,
    add_store,
    add_sweep,
    add_train,
)
from stillhouse.cli.dashboard import add_dashboard
from stillhouse.cli.measuring_arguments import add_compare, add_evaluate
from stillhouse.core.artifacts import default_root
from stillhouse.core.console import log_failure, private_environment, warn
from stillhouse.core.errors import mistake_in
from stillhouse.core.signals import sigterm_interrupts

_EXAMPLES = """examples:
  stillhouse sweep ibkd                              the main job, with its defaults
  stillhouse sweep ibkd --trials 30 --corpus hf:wikitext:wikitext-103-raw-v1:train --split-sentences
  stillhouse train ibkd --set distil_learning_rate=3e-4 --local
  stillhouse mine --labelled pairs.jsonl --negatives 4 --output mined.jsonl
  stillhouse evaluate all-MiniLM-L6-v2 --json teacher.json
  stillhouse compare --experiment ibkd
  stillhouse store verify

Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted (the same command goes on),
141 the output's reader has left.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: As after the program's name; None takes the process's own.

    Returns:
        The exit code: 0, 1 (failed), 2 (bad input), 130 (interrupted) or 141 (the output's reader has left).
    """
    private_environment()
    options = parser().parse_args(arguments)
    try:
        with sigterm_interrupts():
            outcome = _run(options)
        sys.stdout.flush()
        return outcome
    except KeyboardInterrupt:
        warn("interrupted. The same command goes on from here.")
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_left():
            return 141
        mistake = mistake_in(error)
        if mistake is not None:
            warn(str(mistake))
            return 2
        _tell_failure(error, options)
        return 1


def parser() -> ArgumentParser:
    """The parser of the whole command line."""
    top = ArgumentParser(
        prog="stillhouse",
        description="Distil a large text-embedding model into a small, fast one.",
        epilog=_EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        add_sweep,
        add_train,
        add_embed,
        add_mine,
        add_evaluate,
        add_compare,
        add_dashboard,
        add_export,
        add_store,
        add_presets,
    ):
        add(commands)
    return top


def _run(options: Namespace) -> int:
    from stillhouse.cli import commands

    command = getattr(commands, options.command)
    outcome: int = command(options)
    return outcome


def _reader_left() -> bool:
    """Whether who read the standard output has closed it, as `head` does; then no more is written there."""
    asked = select.poll()
    asked.register(sys.stdout.fileno(), 0)
    left = any(event & (select.POLLERR | select.POLLHUP) for _, event in asked.poll(0))
    if left:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return left


def _tell_failure(error: Exception, options: Namespace) -> None:
    """One line on the screen; the traceback goes to the log, or to the screen with `-v`."""
    said = next(iter(str(error).strip().splitlines()), "")
    if options.verbose:
        traceback.print_exception(error)
        warn(f"failed: {said}")
        return
    log = log_failure(error, (options.root or default_root()).resolve() / "logs")
    warn(f"failed: {type(error).__name__}: {said} The traceback is in {log}; -v shows it here.")


if __name__ == "__main__":
    sys.exit(main())
