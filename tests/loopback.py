"""A server on this machine that speaks the OpenAI embeddings protocol, and can be told to misbehave."""

import base64
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import numpy.typing as npt

DIM = 8
Fault = Callable[["Handler", dict[str, Any]], bool]
"""Answers a request wrongly and returns True, or leaves it to the server."""


def vector_of(text: str, dim: int = DIM) -> npt.NDArray[np.float32]:
    """The unit vector that the server gives a text."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    vector = np.random.default_rng(seed).normal(size=dim).astype(np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


class Loopback(ThreadingHTTPServer):
    """The server.

    Attributes:
        faults: What happens to the requests that come next, one fault each.
        always: What happens to every request.
        asked: How often each text was answered.
        seen: The bodies of all requests, with their headers.
        most: Requests that were under way at the same time, at most.
        delay: Seconds that every answer takes.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults: list[Fault] = []
        self.always: Fault | None = None
        self.asked: Counter[str] = Counter()
        self.seen: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.lock, self.now, self.most, self.delay = threading.Lock(), 0, 0, 0.0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is no news."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Loopback
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer with vectors, or as the next fault says."""
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.seen.append((body, dict(self.headers)))
            server.now += 1
            server.most = max(server.most, server.now)
            fault = server.faults.pop(0) if server.faults else server.always
        time.sleep(server.delay)
        with server.lock:
            server.now -= 1  # before the client has its answer, and asks again
        if self.path != "/v1/embeddings":
            self.send(404, {"error": "no such path"})
        elif fault is None or not fault(self, body):
            self.give(body, answer(body))

    def give(self, body: dict[str, Any], content: Any) -> None:
        """Send an answer that counts."""
        with self.server.lock:
            self.server.asked.update(body["input"])
        self.send(200, content)

    def send(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        """Send JSON."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """The right answer to a request, its vectors in another order than the texts."""
    dim = body.get("dimensions", DIM)
    found: list[Any] = [vector_of(text, dim) for text in body["input"]]
    if body.get("encoding_format") == "base64":
        found = [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in found]
    else:
        found = [vector.tolist() for vector in found]
    rows = [{"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(found)]
    tokens = sum(len(text.split()) for text in body["input"])
    return {
        "data": rows[::-1],
        "model": body["model"],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def status(code: int, content: Any = None, **headers: str) -> Fault:
    """Answer with a status of failure."""

    def fault(handler: Handler, body: dict[str, Any]) -> bool:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.send(code, content or {"error": {"message": f"status {code}"}}, named)
        return True

    return fault


def changed(change: Callable[[dict[str, Any]], Any]) -> Fault:
    """Answer with something else than the right answer."""

    def fault(handler: Handler, body: dict[str, Any]) -> bool:
        handler.send(200, change(answer(body)))
        return True

    return fault


def too_late(seconds: float) -> Fault:
    """Answer when nobody waits any more."""

    def fault(handler: Handler, body: dict[str, Any]) -> bool:
        time.sleep(seconds)
        handler.send(200, answer(body))
        return True

    return fault


def hangs_up(handler: Handler, body: dict[str, Any]) -> bool:
    """Close the connection in the middle of the answer."""
    data = json.dumps(answer(body)).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    handler.close_connection = True
    return True


@contextmanager
def loopback() -> Iterator[Loopback]:
    """Run the server in a thread."""
    server = Loopback()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
