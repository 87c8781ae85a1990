"""Addresses where no Ray cluster answers are refused within their limit, whatever listens there."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import grpc
import pytest
from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc
from ray.exceptions import AuthenticationError

from stillhouse.cluster import connection, probe
from stillhouse.core.errors import BadInput


class ControlService(gcs_service_pb2_grpc.NodeInfoGcsServiceServicer):  # type: ignore[misc]
    def CheckAlive(self, request: Any, context: Any) -> Any:
        return gcs_service_pb2.CheckAliveReply()


class Refusing(grpc.ServerInterceptor):  # type: ignore[misc]
    """A server that takes no token."""

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        def refuse(_request: Any, context: Any) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken")

        return grpc.unary_unary_rpc_method_handler(refuse)


def add_control(server: grpc.Server) -> None:
    gcs_service_pb2_grpc.add_NodeInfoGcsServiceServicer_to_server(ControlService(), server)


@contextmanager
def serving(*services: Callable[[grpc.Server], None], port: int = 0, **options: Any) -> Iterator[int]:
    """A gRPC server on every address of this machine, as Ray's are; yields its port."""
    server = grpc.server(ThreadPoolExecutor(1), **options)
    for add in services:
        add(server)
    bound = server.add_insecure_port(f"0.0.0.0:{port}")
    server.start()
    try:
        yield bound
    finally:
        server.stop(None).wait(5)


@contextmanager
def silence() -> Iterator[int]:
    """A socket that accepts connections and says nothing."""
    with socket.create_server(("0.0.0.0", 0)) as listening:
        yield listening.getsockname()[1]


@contextmanager
def website() -> Iterator[int]:
    """Such as Ray's dashboard, whose port is easily confused with the cluster's."""
    with HTTPServer(("0.0.0.0", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_a_cluster_that_answers_is_accepted() -> None:
    with serving(add_control) as port:
        probe.require_answer(f"127.0.0.1:{port}", seconds=5)


def test_a_cluster_that_answers_late_is_waited_for() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]

    def late() -> None:
        time.sleep(0.5)
        with serving(add_control, port=port):
            ended.wait(20)

    ended = threading.Event()
    thread = threading.Thread(target=late)
    begun = time.monotonic()
    thread.start()
    try:
        probe.require_answer(f"127.0.0.1:{port}", seconds=20)
        assert time.monotonic() - begun > 0.4
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not answer is asked for a moment only."""
    monkeypatch.setattr(connection, "_ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(probe, "_LONGEST_CALL", 0.2)


@pytest.mark.parametrize("listener", [silence, website])
def test_what_accepts_connections_without_being_ray_is_refused(
    listener: Callable[[], Any], impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ray.init` would wait two minutes, and not end on SIGTERM."""
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray was asked"))
    begun = time.monotonic()
    with listener() as port, pytest.raises(BadInput, match=r"does not answer as Ray does.*6379"):
        connection.connect(f"127.0.0.1:{port}", nested=False, verbose=False)
    assert time.monotonic() - begun < 10


def test_another_service_of_ray_is_named() -> None:
    with serving() as port, pytest.raises(BadInput, match=r"another service answers.*6379"):
        probe.require_answer(f"127.0.0.1:{port}", seconds=5)


def test_an_address_of_rays_client_is_refused_at_once_with_the_command_instead() -> None:
    with pytest.raises(BadInput, match=r"Ray Data cannot run.* --address http://head:8265 --working-dir \."):
        probe.require_answer("ray://head:10001", seconds=5)


def test_a_refused_token_is_named() -> None:
    refusing = serving(add_control, interceptors=(Refusing(),))
    with refusing as port, pytest.raises(BadInput, match=r"refuses the token.*RAY_AUTH_MODE=token"):
        probe.require_answer(f"127.0.0.1:{port}", seconds=5)


def test_a_missing_token_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_token(_where: str) -> None:
        raise AuthenticationError("Token authentication is enabled but no token was found")

    monkeypatch.setattr("ray._private.grpc_utils.init_grpc_channel", without_token)
    with serving(add_control) as port, pytest.raises(BadInput, match=r"has no token for it.*RAY_AUTH_TOKEN"):
        probe.require_answer(f"127.0.0.1:{port}", seconds=5)


@pytest.mark.parametrize("address", [None, "auto"])
def test_the_cluster_of_the_environment_is_asked_too(
    address: str | None, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray was asked"))
    with silence() as port:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        with pytest.raises(BadInput, match=f"must answer at 127.0.0.1:{port}"):
            connection.connect(address, nested=False, verbose=False)


def test_auto_is_the_last_cluster_of_this_machine(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray leaves the address of a cluster that has ended in a file, and would wait for it."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", set)
    with silence() as port:
        monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda _: f"127.0.0.1:{port}")
        with pytest.raises(BadInput, match="must answer at auto, but: something accepts connections"):
            probe.require_answer("auto", seconds=0.2)
    monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda _: None)
    with pytest.raises(BadInput, match=r"must answer at auto, but: .*Start one: `ray start --head`"):
        probe.require_answer("auto", seconds=5)
