"""The console command, `stillhouse COMMAND`; the jobs call it too."""

import os
import platform
import select
import sys
import traceback
from argparse import SUPPRESS, Action, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from stillhouse import __version__
from stillhouse.cli import (
    compare,
    dashboard,
    doctor,
    embed,
    evaluate,
    export,
    fields,
    mine,
    plan,
    presets,
    store,
    sweep,
    train,
    verify,
)
from stillhouse.cli.arguments import CommandParser
from stillhouse.cli.parsed_values import follow_sweep
from stillhouse.core.artifacts import default_root
from stillhouse.core.console import log_failure, log_in, private_environment, results_aside, show, warn
from stillhouse.core.errors import Hindered, mistake_in
from stillhouse.core.integrity import VERIFY
from stillhouse.core.machine import variables_set
from stillhouse.core.redaction import remembering
from stillhouse.core.signals import lost_threads_end, sigterm_interrupts
from stillhouse.core.user_files import STDOUT, check_directory, check_writable
from stillhouse.corpora.reading.understood import recorded

COMMANDS = (
    sweep,
    train,
    doctor,
    plan,
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
  stillhouse sweep ibkd                              search a method; again: more --trials of that sweep
  stillhouse sweep ibkd --trials 30 --corpus hf:wikitext:wikitext-103-raw-v1:train --split-sentences
  stillhouse train ibkd --set distil_learning_rate=3e-4 --local
  stillhouse doctor ibkd                             what is wrong with a run, before it starts
  stillhouse plan ibkd --trials 30                   how long it would take, before it starts
  stillhouse mine --labelled pairs.jsonl --negatives 4 --output mined.jsonl
  stillhouse evaluate all-MiniLM-L6-v2 --json teacher.json
  stillhouse compare --experiment ibkd
  stillhouse verify

Exit codes: 0 done, 1 failed (`doctor`, `verify`: they found an error), 2 bad input, 130 interrupted (the same
command resumes), 141 the reader of the output closed the pipe.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by the arguments after the program's name; None takes the process's own.

    The exit code is 0, 1 (failed), 2 (bad input), 130 (interrupted) or 141 (the reader closed the pipe).
    """
    private_environment()
    with remembering(sys.argv if arguments is None else map(str, arguments)):
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    """Run one command, and say what went wrong."""
    options = Namespace(root=None, verbose=False)
    try:
        check_directory()
        options = parser().parse_args(arguments, Namespace())
        if getattr(options, "json", None) is not None:
            check_writable(options.json, "--json")
        follow_sweep(options)
        chosen = getattr(options, "verify", None)
        with (
            sigterm_interrupts(),
            lost_threads_end(),
            variables_set({VERIFY: chosen} if chosen else {}),
            results_aside(when=_to_stdout(options)),
            recorded() as options.understood,
        ):
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
            log = log_in(_logs_of(options)) if isinstance(mistake, Hindered) else None
            if log is not None:
                warn(f"The log is in {log}.")
            return 2
        _report_failure(error, options)
        return 1


def _to_stdout(options: Namespace) -> bool:
    """Return whether a file of results goes to standard output, and so nothing else may."""
    return any(getattr(options, name, None) == STDOUT for name in ("json", "run", "output", "folder"))


def parser() -> ArgumentParser:
    """Build the parser of the whole command line."""
    top = CommandParser(
        prog="stillhouse",
        description="Distil a large text-embedding model into a small, fast one.",
        epilog=_EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=_Version, help="show the versions of the package and of its engines")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands).set_defaults(execute=command.run)
    return top


class _Version(Action):
    """The flag that prints versions and ends."""

    def __init__(self, option_strings: Sequence[str], dest: str, **others: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=SUPPRESS, **others)

    def __call__(self, parser: ArgumentParser, *_: Any) -> None:
        """Print the versions; nothing heavy is imported for them."""
        for name, version in versions().items():
            show(f"{name} {version}")
        parser.exit()


def versions() -> dict[str, str]:
    """The versions of the package, of Python, torch and Ray."""
    found = {"stillhouse": __version__, "python": platform.python_version()}
    for name in ("torch", "ray"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "is not installed"
    return found


def _reader_left() -> bool:
    """Return whether the reader closed a pipe that is written to, as `head` does; then writing stops."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        poll.register(stream.fileno(), 0)
    left = [pipe for pipe, event in poll.poll(0) if event & (select.POLLERR | select.POLLHUP)]
    for pipe in left:
        os.dup2(os.open(os.devnull, os.O_WRONLY), pipe)
    return bool(left)


def _report_failure(error: Exception, options: Namespace) -> None:
    """Print one line; the traceback goes to the log, or to the screen with `-v`."""
    text = next(iter(str(error).strip().splitlines()), "")
    if options.verbose:
        warn("".join(traceback.format_exception(error)))
        warn(f"failed: {text}")
        return
    log = log_failure(error, _logs_of(options))
    warn(f"failed: {type(error).__name__}: {text} The traceback is in {log}; -v shows it here.")


def _logs_of(options: Namespace) -> Path:
    """The folder of log files of a command."""
    return Path(options.root or default_root()).resolve() / "logs"


if __name__ == "__main__":
    sys.exit(main())
