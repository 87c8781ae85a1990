"""`stillhouse dashboard SWEEP`: a sweep's study in optuna-dashboard, in the browser."""

import contextlib
from argparse import ArgumentParser, Namespace, _SubParsersAction
from pathlib import Path
from typing import Any

from stillhouse.cli.arguments import add_common, new_command
from stillhouse.cli.parsed_values import root_of
from stillhouse.core.artifacts import check_name
from stillhouse.core.console import show
from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.core.notes import SWEEPS

_HOST = "127.0.0.1"


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "dashboard",
        "open a sweep's trials in optuna-dashboard",
        "stillhouse dashboard ibkd\n  stillhouse dashboard ibkd --root runs --port 8081",
    )
    command.add_argument("sweep", metavar="SWEEP", help="name of a sweep in the workspace")
    command.add_argument(
        "--port", type=int, default=8080, help="port on 127.0.0.1 (default 8080; 0: a free one)"
    )
    add_common(command, results=False)
    return command


def run(options: Namespace) -> int:
    """Serve the study until Ctrl-C."""
    require(0 <= options.port <= 65535, "--port must be a number from 0 to 65535", port=options.port)
    check_name(options.sweep, "a sweep")
    server = dashboard_server(root_of(options), options.sweep, options.port)
    show(f"sweep {options.sweep}: http://{_HOST}:{server.server_port} (Ctrl-C ends it)")
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


def dashboard_server(root: Path, sweep: str, port: int) -> Any:
    """Open a sweep's study for a web server on loopback.

    The study is opened read-only: pages follow a running sweep, and no visitor can change or delete its
    trials from the browser. A port of 0 takes a free one; the server is not yet serving.

    Raises:
        BadInput: If the sweep is unknown, the extra is not installed, or the port is taken.
    """
    from stillhouse.search.study_backup import STUDY

    sweeps = root / SWEEPS
    path = sweeps / sweep / STUDY
    if not path.exists():
        known = sorted(each.parent.name for each in sweeps.glob(f"*/{STUDY}"))
        remedy = nearest(sweep, known) if known else "Run a sweep first, or give --root."
        raise BadInput(f"unknown sweep `{sweep}` in {root}. {remedy}")
    try:
        from optuna_dashboard import wsgi
    except ImportError:
        raise BadInput(
            "`dashboard` needs optuna-dashboard, which is not installed. Install the extra `dashboard`: "
            "pip install 'stillhouse[dashboard]'."
        ) from None
    from wsgiref.simple_server import WSGIRequestHandler, make_server

    from stillhouse.search.studies import reading_storage

    class Quiet(WSGIRequestHandler):
        """A handler that prints no line per request."""

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    try:
        return make_server(_HOST, port, wsgi(reading_storage(path)), handler_class=Quiet)
    except OSError as error:
        raise BadInput(f"cannot listen on {_HOST}:{port}: {error.strerror}. Give another --port.") from None
