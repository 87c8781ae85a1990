"""What the commands share while they run: a workspace with one writer, Ray, and the results' file."""

import contextlib
from argparse import Namespace
from typing import Any

from stillhouse.cli.options import device_of, root_of
from stillhouse.core.artifacts import Workspace, without_nan, write_json
from stillhouse.core.console import diverted_chatter
from stillhouse.sweeps.session import session


def write_results(options: Namespace, content: Any) -> None:
    """Write what `--json` asks for."""
    if options.json:
        write_json(options.json, without_nan(content))


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
