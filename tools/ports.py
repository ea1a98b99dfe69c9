"""Free ports for servers, which no other process of the tests or benchmarks takes at that time."""

import fcntl
import os
import random
import socket
import tempfile
from collections import deque
from functools import cache
from pathlib import Path

BUS_OFFSET = 10_000
PORTS = range(10_000, 20_000)
SLICES = 20
_given: deque[int] = deque(maxlen=100)  # recent results


@cache
def _own_ports() -> range:
    """A range of ports that no other test process on this machine uses: otherwise another process
    could take a port between the check that it is free and the start of the node. The lock is held
    for the life of this process."""
    size = len(PORTS) // SLICES
    for number in range(SLICES):
        path = Path(tempfile.gettempdir(), f"disque-trio-ports-{number}-{os.getuid()}.lock")
        lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return PORTS[number * size : (number + 1) * size]
    return PORTS


def free_port() -> int:
    """A free TCP port for clients, whose bus port is also free; both are below the ephemeral range.
    Recent ports are not returned again, because nobody may be listening on them yet."""
    for _ in range(200):
        port = random.choice(_own_ports())
        if port not in _given and _is_free(port):
            _given.append(port)
            return port
    raise RuntimeError("no free port")


def free_ports(count: int) -> list[int]:
    """``count`` free client ports that follow each other, the first of which ends in 1. Their bus
    ports are free, too."""
    own = _own_ports()
    for _ in range(200):
        first = 10 * random.randrange(own.start // 10, own.stop // 10) + 1
        ports = list(range(first, first + count))
        if not set(ports) & set(_given) and all(_is_free(port) for port in ports):
            _given.extend(ports)
            return ports
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    """Whether nobody uses the port or its bus port."""
    with socket.socket() as probe, socket.socket() as bus_probe:
        try:
            probe.bind(("127.0.0.1", port))
            bus_probe.bind(("127.0.0.1", port + BUS_OFFSET))
        except OSError:
            return False
    return True
