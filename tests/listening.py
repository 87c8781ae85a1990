"""Who listens where: the sockets of a process and of all that it has started."""

import ipaddress
import subprocess
import time
from collections.abc import Iterator

import psutil
from patience import STUCK_S


def listening(process: psutil.Process) -> Iterator[tuple[str, str]]:
    """Yield the address and the name of every listening socket of a process and of what it has started."""
    for each in (process, *process.children(recursive=True)):
        try:
            name = " ".join(each.cmdline())
            connections = each.net_connections(kind="inet")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        for connection in connections:
            if connection.status == psutil.CONN_LISTEN:
                yield str(connection.laddr.ip), name


def is_loopback(address: str) -> bool:
    """Whether an address is of this machine alone, also written as an IPv6 address."""
    ip = ipaddress.ip_address(address)
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped or ip).is_loopback)


def seen_while_it_runs(run: "subprocess.Popen[str]", seconds: float = STUCK_S) -> set[tuple[str, str]]:
    """Return what a process and its children listened on until it ended; it is killed when it is late."""
    found, process, deadline = set[tuple[str, str]](), psutil.Process(run.pid), time.monotonic() + seconds
    while run.poll() is None:
        if time.monotonic() > deadline:
            run.kill()
        found |= set(listening(process))
        time.sleep(0.3)
    return found
