"""The shared parts of running commands: a workspace, Ray, and the results' file."""

import contextlib
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from stillhouse.cli.parsed_values import asked, root_of
from stillhouse.core.artifacts import Workspace, as_json, without_nan
from stillhouse.core.console import diverted_chatter, doing, never_silent
from stillhouse.core.user_files import writing
from stillhouse.sweeps.session import session_of


def write_results(options: Namespace, content: Any) -> None:
    """Write what `--json` asks for; what sources were taken for stands under ``data``."""
    read = [each.noted() for each in getattr(options, "understood", ())]
    if isinstance(content, dict) and read:
        given = content.get("data", {})
        content = {
            **content,
            "data": {**(given if isinstance(given, dict) else {"read": given}), "sources": read},
        }
    if options.json:
        with writing(options.json) as file:
            file.write(as_json(without_nan(content)))


def on_ray(options: Namespace) -> contextlib.AbstractContextManager[tuple[Workspace, str]]:
    """The workspace, locked, and the device; Ray is started unless `--local`.

    Raises:
        BadInput: A flag that Ray alone reads is given for work that does not use it.
    """
    return session_of(asked(options), local=options.local)


@contextlib.contextmanager
def quietly(options: Namespace) -> Iterator[None]:
    """Send the output of the libraries to the log, unless `-v`, and never be silent for long."""
    with (
        diverted_chatter(root_of(options) / "logs", verbose=options.verbose),
        never_silent(),
        doing("working"),
    ):
        yield
