"""Servers that commands talk to, each in a process of its own, and how they misbehave."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from loopback import Fault, Handler, Loopback, answer, changed, hangs_up, status, too_late

URL = "http://127.0.0.1:9/v1"
"""Where commands look for the endpoint: the same for all, as it is part of what the vectors are named by."""
TIMEOUT = 0.5
REQUESTS = {
    "requests.timeout": TIMEOUT,
    "requests.attempts": 3,
    "requests.pause": 0.01,
    "requests.batch": 32,
}


def _with_values(value: float) -> Callable[[dict[str, Any]], Any]:
    """Make a change that puts a number into the first vector of an answer."""

    def change(content: dict[str, Any]) -> Any:
        content["data"][0]["embedding"][2] = value
        return content

    return change


def _without_last(content: dict[str, Any]) -> Any:
    return {**content, "data": content["data"][:-1]}


def _same_index(content: dict[str, Any]) -> Any:
    for each in content["data"]:
        each["index"] = 0
    return content


def _shorter(content: dict[str, Any]) -> Any:
    content["data"][0]["embedding"].pop()
    return content


def _answers_twice(handler: Handler, body: dict[str, Any]) -> bool:
    handler.give(body, answer(body))
    handler.give(body, answer(body))
    return True


MISBEHAVIOURS: dict[str, Fault] = {
    "is too busy (429)": status(429, Retry_After="0"),
    "fails (500)": status(500),
    "is overloaded (503)": status(503),
    "hangs": too_late(4 * TIMEOUT),
    "hangs up in the middle": hangs_up,
    "answers with a web page": status(200, b"<html>sign in</html>"),
    "answers with half of the JSON": changed(lambda content: b'{"data": [{"index": 0, "embed'),
    "answers with NaN": changed(_with_values(float("nan"))),
    "answers with infinity": changed(_with_values(float("inf"))),
    "leaves a vector out": changed(_without_last),
    "gives all vectors one number": changed(_same_index),
    "gives a shorter vector": changed(_shorter),
    "answers twice": _answers_twice,
    "refuses the key (401)": status(401),
}
"""What an endpoint does instead of answering, by its name in the report."""
_ASKED_ONCE_MORE = ("answers with NaN", "answers with infinity")
"""Twice in a row, they set a row aside."""
REFUSES = "refuses connections"
LASTING = ", always"
"""Suffix of a misbehaviour that does not end; others concern a few requests."""


@contextlib.contextmanager
def endpoint_server(fault: str) -> Iterator[Callable[[], None]]:
    """Run an endpoint that misbehaves as named, or well; see `scenarios.Service`."""
    server = Loopback()
    port = server.server_address[1]
    name = fault.removesuffix(LASTING)
    if name in MISBEHAVIOURS:
        if fault.endswith(LASTING):
            server.always = MISBEHAVIOURS[name]
        else:
            # The first request asks for the dimension only.
            times = 1 if name in _ASKED_ONCE_MORE else 2
            server.faults = [lambda handler, body: False, *[MISBEHAVIOURS[name]] * times]
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if name == REFUSES:
            server.server_close()
            time.sleep(600)
        else:
            server.serve_forever(poll_interval=0.05)
        os._exit(0)
    server.socket.close()
    try:
        yield lambda: _lead_to(port)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _lead_to(port: int) -> None:
    """Let this process find another port where it looks for the endpoint's."""
    original = socket.create_connection

    def connect(address: tuple[str, int], *arguments: Any, **named: Any) -> socket.socket:
        real = (address[0], port) if address == ("127.0.0.1", 9) else address
        return original(real, *arguments, **named)

    socket.create_connection = connect  # type: ignore[assignment]
