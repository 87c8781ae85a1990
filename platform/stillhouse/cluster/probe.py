"""Whether a Ray cluster answers at an address.

This is asked before `ray.init` is called, which may wait for minutes and is deaf to signals meanwhile.
"""

import socket
import time
from urllib.parse import urlsplit

from stillhouse.core.console import say
from stillhouse.core.errors import BadInput

_LONGEST_CALL = 5.0
"""Seconds that one question may take; a head that is starting is asked again."""
_PORT = "The port is that of `ray start --head`, 6379 unless `--port` says otherwise."


def require_answer(where: str, *, seconds: float) -> None:
    """Refuse an address at which no cluster answers for ``seconds``; ``auto`` is the cluster of this machine.

    Raises:
        BadInput: It is no address, nothing listens there, or what listens is no Ray cluster that takes us.
    """
    if where == "local":
        return
    host, port = _host_and_port(_of_this_machine() if where == "auto" else where)
    deadline = time.monotonic() + seconds
    told = False
    while True:
        left = deadline - time.monotonic()
        problem = _problem(where, host, port, timeout=min(max(left, 1.0), _LONGEST_CALL))
        if problem is None:
            return
        if time.monotonic() >= deadline:
            raise no_cluster(where, problem)
        if not told:
            say(f"waiting up to {seconds:.0f} s for the Ray cluster at {where}")
            told = True
        time.sleep(min(1.0, seconds / 10))


def no_cluster(where: str, problem: object, remedy: str = "Start one: `ray start --head`.") -> BadInput:
    """The message about an address where no cluster answers."""
    return BadInput(f"a Ray cluster must answer at {where}, but: {problem}. {remedy}")


def _of_this_machine() -> str:
    """The address of the cluster that runs on this machine, or was the last one here.

    Raises:
        BadInput: There was none.
    """
    from ray._private.services import canonicalize_bootstrap_address

    try:
        return str(canonicalize_bootstrap_address("auto"))
    except ConnectionError as error:
        raise no_cluster("auto", str(error).rstrip(".")) from None


def _host_and_port(where: str) -> tuple[str, int]:
    try:
        parts = urlsplit(where if "://" in where else f"//{where}")
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    if scheme == "ray" and host is not None:
        raise BadInput(
            f"the driver must run on a node of the cluster or beside one, but {where} is an address of Ray's "
            "client, through which Ray Data cannot run. Submit a job instead: `ray job submit --address "
            f"http://{host}:8265 --working-dir . -- python jobs/sweep_ibkd.py`."
        )
    if scheme in ("http", "https"):
        raise BadInput(
            f"the address of a Ray cluster must be host:port or auto, but {where} is that of a dashboard. It "
            f"takes jobs: `ray job submit --address {where} --working-dir . -- python jobs/sweep_ibkd.py`."
        )
    if host is None or port is None:
        raise BadInput(
            f"the address of a Ray cluster must be host:port or auto, but is {where!r}. Give it with "
            "--address, or in RAY_ADDRESS; `ray start --head` prints it."
        )
    return host, port


def _problem(where: str, host: str, port: int, *, timeout: float) -> str | None:
    """Why no cluster answers there yet; None if one does.

    Raises:
        BadInput: What answers is not a cluster, or refuses us: waiting does not help.
    """
    try:
        socket.create_connection((host, port), timeout=timeout).close()
    except OSError as error:
        return str(error)
    import grpc
    from ray._private.grpc_utils import init_grpc_channel
    from ray._private.services import canonicalize_bootstrap_address
    from ray.core.generated.gcs_service_pb2 import CheckAliveRequest
    from ray.core.generated.gcs_service_pb2_grpc import NodeInfoGcsServiceStub
    from ray.exceptions import AuthenticationError

    token = "Set RAY_AUTH_MODE=token, and copy ~/.ray/auth_token from the head or set RAY_AUTH_TOKEN."
    netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        # As `ray.init` does, which replaces localhost by this machine's own address.
        channel = init_grpc_channel(canonicalize_bootstrap_address(netloc))
        try:
            NodeInfoGcsServiceStub(channel).CheckAlive(
                CheckAliveRequest(), timeout=timeout, wait_for_ready=True
            )
        finally:
            channel.close()
    except AuthenticationError:
        raise no_cluster(where, "this machine has no token for it", token) from None
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            raise no_cluster(where, "it refuses the token", token) from None
        if error.code() == grpc.StatusCode.UNIMPLEMENTED:
            raise no_cluster(where, "another service answers there", _PORT) from None
        return f"something accepts connections there, but does not answer as Ray does. {_PORT.rstrip('.')}"
    return None
