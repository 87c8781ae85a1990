"""What the commands share while they run: a workspace with one writer, Ray, and the results' file."""

import contextlib
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from stillhouse.cli.options import device_of, root_of
from stillhouse.core.artifacts import Workspace, without_nan, write_json
from stillhouse.core.console import diverted_chatter
from stillhouse.core.errors import require
from stillhouse.sweeps.session import session


def write_results(options: Namespace, content: Any) -> None:
    """Write what `--json` asks for."""
    if options.json:
        write_json(options.json, without_nan(content))


def check_json(path: Path | None) -> None:
    """Refuse a file for `--json` that could not be written at the end.

    Raises:
        BadInput: It is a folder, or lies in something that is not one.
    """
    if path is None:
        return
    require(not path.is_dir(), "--json must name a file", json=str(path), remedy="It is a folder.")
    parent = next(each for each in path.absolute().parents if each.exists())
    writable = parent.is_dir() and os.access(parent, os.W_OK)
    require(writable, "--json must name a file in a folder that can be written", json=str(path))


def on_ray(options: Namespace) -> contextlib.AbstractContextManager[tuple[Workspace, str]]:
    """The workspace, locked, and the device; Ray is started unless `--local`."""
    return session(
        root_of(options),
        device=device_of(options),
        local=options.local,
        address=options.address,
        nested=options.workers > 1,
        verbose=options.verbose,
    )


def quietly(options: Namespace) -> contextlib.AbstractContextManager[None]:
    """Send the output of the libraries to the log, unless `-v`."""
    return diverted_chatter(root_of(options) / "logs", verbose=options.verbose)
