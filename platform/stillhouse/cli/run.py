"""What the commands share while they run: a workspace, Ray, and the results' file."""

import contextlib
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from stillhouse.cli.options import device_of, need_of, remote_of, root_of
from stillhouse.core.artifacts import Workspace, as_json, without_nan
from stillhouse.core.console import diverted_chatter, doing, never_silent
from stillhouse.core.errors import require
from stillhouse.core.user_files import writing
from stillhouse.sweeps.session import session

_OF_RAY = ("address", "actors", "gpus_per_worker", "wait_for_nodes")
"""Flags that nothing reads where Ray is not used."""


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
    for name in _OF_RAY:
        given = getattr(options, name, None)
        require(
            not options.local or not given,
            f"--{name.replace('_', '-')} must be given only where Ray is used",
            **{name: given},
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
