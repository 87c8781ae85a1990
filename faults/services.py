"""Servers that commands talk to, each in a process of its own, and how they misbehave."""

import contextlib
import io
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import object_store
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
def endpoint_server(fault: str, _root: Path) -> Iterator[Callable[[], None]]:
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
    with _serving(server, refuses=name == REFUSES):
        yield lambda: _lead_to(port)


@contextlib.contextmanager
def _serving(server: ThreadingHTTPServer, *, refuses: bool) -> Iterator[None]:
    """Let a process of its own answer for a server, or refuse every connection, while the block runs."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if refuses:
            server.server_close()
            time.sleep(600)
        else:
            server.serve_forever(poll_interval=0.05)
        os._exit(0)
    server.socket.close()
    with _ended_afterwards(child):
        yield


@contextlib.contextmanager
def _ended_afterwards(child: int) -> Iterator[None]:
    try:
        yield
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


TRACKING_URL = "http://127.0.0.1:9"
"""Where commands look for the tracking server: a journal counts what it has sent by this address."""
TRACKING_TIMEOUT = 4.0
TRACKING_REQUESTS = 15
"""Requests of one recording among which the first is chosen that is not answered well."""
AT = " at request "
"""Before the number of the request, in a misbehaviour's full name."""

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]
Misdeed = Callable[[Application, dict[str, Any], Any], Iterable[bytes]]
"""What a tracking server does with a request; like an application, with the right one before it."""


def _answers(code: str, content: bytes, kind: str = "application/json") -> Misdeed:
    """Answer without doing anything."""

    def misdeed(_right: Application, _request: dict[str, Any], start: Any) -> Iterable[bytes]:
        start(code, [("Content-Type", kind), ("Content-Length", str(len(content)))])
        return [content]

    return misdeed


def _done(right: Application, request: dict[str, Any], body: bytes) -> tuple[Any, bytes]:
    """Let the application do what is asked; its status with headers, and its answer."""
    said: list[Any] = []
    answered = right({**request, "wsgi.input": io.BytesIO(body)}, lambda *start, **_: said.append(start))
    return said[0], b"".join(answered)


def _body_of(request: dict[str, Any]) -> bytes:
    return bytes(request["wsgi.input"].read(int(request.get("CONTENT_LENGTH") or 0)))


def _hangs(right: Application, request: dict[str, Any], start: Any) -> Iterable[bytes]:
    """Do it when nobody waits any more."""
    time.sleep(1.5 * TRACKING_TIMEOUT)
    return right(request, start)


def _does_it_and_hangs_up(right: Application, request: dict[str, Any], start: Any) -> Iterable[bytes]:
    _done(right, request, _body_of(request))
    return _hangs_up(right, request, start)


def _hangs_up(_right: Application, request: dict[str, Any], start: Any) -> Iterable[bytes]:
    request["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    start("200 OK", [])
    return []


def _does_it_twice(right: Application, request: dict[str, Any], start: Any) -> Iterable[bytes]:
    body = _body_of(request)
    _done(right, request, body)
    (status_line, headers, *_), content = _done(right, request, body)
    start(status_line, headers)
    return [content]


def _tells_it_twice(right: Application, request: dict[str, Any], start: Any) -> Iterable[bytes]:
    """Send the answer two times over one connection, the second right behind the first.

    One that comes when the next request is under way would be taken for that request's, by any client.
    """
    (status_line, headers, *_), content = _done(right, request, _body_of(request))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    start(status_line, headers)
    return [content + f"HTTP/1.1 {status_line}\r\n{head}\r\n".encode() + content]


def _is_killed(_right: Application, _request: dict[str, Any], _start: Any) -> Iterable[bytes]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _is_stopped(right: Application, request: dict[str, Any], start: Any) -> Iterable[bytes]:
    """Stand still for a while, as a paused process does, and go on."""
    server = os.getpid()
    if os.fork() == 0:
        time.sleep(1.5 * TRACKING_TIMEOUT)
        os.kill(server, signal.SIGCONT)
        os._exit(0)
    os.kill(server, signal.SIGSTOP)
    return right(request, start)


TRACKING_MISDEEDS: dict[str, Misdeed] = {
    "is too busy (429)": _answers("429 TOO MANY REQUESTS", b"{}"),
    "fails (500)": _answers("500 INTERNAL SERVER ERROR", b'{"error_code": "INTERNAL_ERROR"}'),
    "is overloaded (503)": _answers("503 SERVICE UNAVAILABLE", b"<html>busy</html>", "text/html"),
    "refuses the key (401)": _answers("401 UNAUTHORIZED", b"{}"),
    "answers with a web page": _answers("200 OK", b"<html>sign in</html>", "text/html"),
    "answers with half of the JSON": _answers("200 OK", b'{"run": {"info": {"run_'),
    "answers with another thing": _answers("200 OK", b"[]"),
    "hangs": _hangs,
    "hangs up": _hangs_up,
    "does what is asked and hangs up": _does_it_and_hangs_up,
    "does what is asked twice": _does_it_twice,
    "answers twice": _tells_it_twice,
    "dies (SIGKILL)": _is_killed,
    "stands still (SIGSTOP and SIGCONT)": _is_stopped,
}
"""What a tracking server does with one request, or with every one, by its name in the report."""


@contextlib.contextmanager
def tracking_server(fault: str, root: Path) -> Iterator[Callable[[], None]]:
    """Run MLflow's own server over the workspace's database; see `scenarios.Service`."""
    from mlflow.server import app

    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        if fault == f"{REFUSES}{LASTING}":
            listening.close()
            time.sleep(600)
        _serve(app.wsgi_app, listening, root / "mlflow.db", fault)
    listening.close()
    with _ended_afterwards(child):
        yield lambda: _lead_urllib3_to(port)


def _serve(right: Application, listening: socket.socket, database: Path, fault: str) -> None:
    """Answer requests, one thread each, with MLflow's application; never returns."""
    from mlflow.server.handlers import initialize_backend_stores
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Kept(WSGIRequestHandler):
        """Keeps connections open, as the real server does."""

        protocol_version = "HTTP/1.1"

    initialize_backend_stores(f"sqlite:///{database}", default_artifact_root=str(database.parent / "files"))
    name, _, first = fault.removesuffix(LASTING).partition(AT)
    asked = 0

    def application(request: dict[str, Any], start: Any) -> Iterable[bytes]:
        nonlocal asked
        asked += 1
        aimed = fault.endswith(LASTING) or (first and asked == int(first))
        if name and aimed:
            return TRACKING_MISDEEDS[name](right, request, start)
        return right(request, start)

    server = make_server(
        "127.0.0.1", 0, application, threaded=True, request_handler=Kept, fd=listening.fileno()
    )
    server.serve_forever(poll_interval=0.05)
    os._exit(0)


def _lead_urllib3_to(port: int) -> None:
    """Let this process find another port where it looks for the tracking server's."""
    from urllib3.util import connection

    original = connection.create_connection

    def connect(address: tuple[str, int], *arguments: Any, **named: Any) -> socket.socket:
        real = (address[0], port) if address == ("127.0.0.1", 9) else address
        return original(real, *arguments, **named)

    connection.create_connection = connect


REMOTE = "s3://bucket/team"
"""The remote of the commands that publish and fetch."""
OBJECTS = "bucket"
"""Folder beside a workspace with what the object store keeps."""
OBJECT_REQUESTS = 40
"""Requests of one command among which the first is chosen that is not answered well."""
ROW = 3
"""How many requests in a row: pyarrow's client repeats a request by itself."""
_SLOW_S = 6.0
"""Longer than pyarrow's client waits for an answer."""

ObjectFault = Callable[[object_store.Handler], bool]


class StoredObjects(MutableMapping[str, bytes]):
    """The objects of a store as files, which outlive its process.

    Args:
        folder: Holds them, by bucket and key.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise KeyError(name) from None

    def __setitem__(self, name: str, data: bytes) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self._folder.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        (self._folder / name).unlink()

    def __iter__(self) -> Iterator[str]:
        return (str(path.relative_to(self._folder)) for path in self._folder.rglob("*") if path.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _refuses(code: int, name: str) -> ObjectFault:
    """Answer with an error of the protocol."""

    def fault(handler: object_store.Handler) -> bool:
        handler.send(code, f"<Error><Code>{name}</Code><Message>{name}</Message></Error>".encode())
        return True

    return fault


def _changes(change: Callable[[bytes], bytes]) -> ObjectFault:
    """Answer a request for bytes with others of the same status; leave other requests alone."""

    def fault(handler: object_store.Handler) -> bool:
        def changed(status: int, data: bytes, **headers: str) -> None:
            del handler.send  # The next request of this connection is answered well.
            handler.send(status, change(data), **headers)

        if handler.command == "GET":
            handler.send = changed  # type: ignore[method-assign]
        return False

    return fault


def _one_bit_flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(byte ^ 16 for byte in data[middle : middle + 1]) + data[middle + 1 :]


def _promises_more(handler: object_store.Handler) -> bool:
    """Hang up in the middle of an answer; one to HEAD has no middle."""
    if handler.command == "HEAD":
        return False
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"x" * 10)
    return True


def _is_late(handler: object_store.Handler) -> bool:
    time.sleep(_SLOW_S)
    return False


def _does_it_unheard(handler: object_store.Handler) -> bool:
    """Do what is asked and hang up."""
    handler.send = lambda *_, **__: handler.connection.shutdown(socket.SHUT_RDWR)  # type: ignore[method-assign]
    handler.close_connection = True
    return False


def _pauses(_handler: object_store.Handler) -> bool:
    """Stand still for a while, as a paused process does, and go on."""
    server = os.getpid()
    if os.fork() == 0:
        time.sleep(_SLOW_S)
        os.kill(server, signal.SIGCONT)
        os._exit(0)
    os.kill(server, signal.SIGSTOP)
    return False


def _dies(_handler: object_store.Handler) -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


OBJECT_MISDEEDS: dict[str, ObjectFault] = {
    "is too busy (503)": _refuses(503, "SlowDown"),
    "fails (500)": _refuses(500, "InternalError"),
    "refuses the key (403)": _refuses(403, "AccessDenied"),
    "has lost the bucket (404)": _refuses(404, "NoSuchBucket"),
    "is full (507)": _refuses(507, "InsufficientStorage"),
    "hangs up": lambda handler: True,
    "hangs up in the middle": _promises_more,
    "does what is asked and hangs up": _does_it_unheard,
    "hangs": _is_late,
    "answers with half of the bytes": _changes(lambda data: data[: len(data) // 2]),
    "answers with a flipped bit": _changes(_one_bit_flipped),
    "answers with a web page": _changes(lambda data: b"<html>sign in</html>"),
    "dies (SIGKILL)": _dies,
    "stands still (SIGSTOP and SIGCONT)": _pauses,
}
"""What an object store does with some requests in a row, or with every one, by its name in the report."""


@contextlib.contextmanager
def object_server(fault: str, root: Path) -> Iterator[Callable[[], None]]:
    """Run an object store that misbehaves as named, or well; see `scenarios.Service`."""
    server = object_store.ObjectStore()
    server.objects = StoredObjects(root.parent / OBJECTS)
    port = server.server_address[1]
    name, _, first = fault.removesuffix(LASTING).partition(AT)
    if name in OBJECT_MISDEEDS:
        server.fault = _some_requests(OBJECT_MISDEEDS[name], int(first or 1), fault.endswith(LASTING))
    with _serving(server, refuses=name == REFUSES):
        yield lambda: os.environ.update(_settings_of_storage(port))


def _some_requests(misdeed: ObjectFault, first: int, lasting: bool) -> ObjectFault:
    asked, lock = 0, threading.Lock()

    def fault(handler: object_store.Handler) -> bool:
        nonlocal asked
        with lock:
            asked += 1
            aimed = lasting or first <= asked < first + ROW
        return aimed and misdeed(handler)

    return fault


def _settings_of_storage(port: int) -> dict[str, str]:
    """What tells S3 clients where the server is; it takes any key."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key-of-the-tests",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
