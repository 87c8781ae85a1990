"""What the commands share while they run: a workspace, Ray, and the results' file."""

import contextlib
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stillhouse.cli.options import device_of, need_of, remote_of, root_of
from stillhouse.core.artifacts import Workspace, check_no_url, without_nan, write_json
from stillhouse.core.console import diverted_chatter, doing, never_silent
from stillhouse.core.errors import BadInput, require
from stillhouse.sweeps.session import session


def write_results(options: Namespace, content: Any) -> None:
    """Write what `--json` asks for."""
    if options.json:
        write_json(options.json, without_nan(content))


def check_json(path: Path | None) -> None:
    """Refuse a file for `--json` that could not be written at the end.

    Raises:
        BadInput: It is a URL or a folder, or lies in something that is not one.
    """
    if path is None:
        return
    check_no_url(path, "--json must name a file, not a URL", "json")
    require(not path.is_dir(), "--json must name a file", json=str(path), remedy="It is a folder.")
    parent = next(each for each in path.absolute().parents if each.exists())
    try:
        tempfile.TemporaryFile(dir=parent).close()
    except OSError as error:
        raise BadInput(
            f"--json must name a file in a folder that can be written, but {parent} cannot be: "
            f"{error.strerror}. Give another file."
        ) from None


def on_ray(options: Namespace) -> contextlib.AbstractContextManager[tuple[Workspace, str]]:
    """The workspace, locked, and the device; Ray is started unless `--local`.

    Raises:
        BadInput: An address of a cluster is given for work that does not use Ray.
    """
    require(
        not options.local or options.address is None,
        "--address must be given only where Ray is used",
        address=options.address,
        remedy="Leave it out, or leave out --local; `evaluate` uses Ray with --search-shards above 1.",
    )
    return session(
        root_of(options),
        device=device_of(options),
        local=options.local,
        address=options.address,
        need=need_of(options),
        wait_s=options.wait_for_nodes,
        verbose=options.verbose,
        remote=remote_of(options),
    )


@contextlib.contextmanager
def quietly(options: Namespace) -> Iterator[None]:
    """Send the output of the libraries to the log, unless `-v`, and never be silent for long."""
    with (
        diverted_chatter(root_of(options) / "logs", verbose=options.verbose),
        never_silent(),
        doing("working"),
    ):
        yield
