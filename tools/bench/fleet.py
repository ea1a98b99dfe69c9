"""Nodes that form a cluster: started, joined, watched, and what they used, added up."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tools.bench.load import RECEIVE_BYTES, LoadError
from tools.bench.servers import DISQUE_COMMAND, Server, ServerError, disque_server
from tools.bench.workloads import encode

HOST = "127.0.0.1"
JOIN_SECONDS = 30.0
SETTLE_SECONDS = 120.0
POLL_SECONDS = 0.05
# The generator has one CPU, the nodes share the others.
_CPUS = sorted(os.sched_getaffinity(0))
GENERATOR_CPUS = frozenset(_CPUS[:1])
NODE_CPUS = frozenset(_CPUS[1:]) or GENERATOR_CPUS


@dataclass(frozen=True, slots=True)
class Usage:
    """What all nodes together have used: CPU seconds, packets and bytes sent over the bus.
    ``bus_bytes`` is None when the nodes do not count them."""

    cpu: float
    packets: int
    bus_bytes: int | None

    def since(self, before: Usage) -> Usage:
        """What came on top of ``before``."""
        both = self.bus_bytes is not None and before.bus_bytes is not None
        return Usage(
            self.cpu - before.cpu,
            self.packets - before.packets,
            (self.bus_bytes or 0) - (before.bus_bytes or 0) if both else None,
        )


class Fleet:
    """A cluster of running nodes. All methods raise ServerError when one does not do its work."""

    def __init__(self, servers: Sequence[Server], controls: Sequence[socket.socket]) -> None:
        self.servers = list(servers)
        self._controls = list(controls)

    def __len__(self) -> int:
        return len(self.servers)

    def join(self) -> None:
        """Lets the nodes meet and waits until each can use all the others."""
        for other in self.servers[1:]:
            self._ask(0, b"CLUSTER", b"MEET", HOST.encode(), b"%d" % other.port)
        self._wait(self._joined, JOIN_SECONDS, "the nodes do not join")

    def settle(self, held: int, more: bool = False) -> float:
        """Waits until all copies are made and all acknowledged jobs are gone: until the nodes
        hold ``held`` jobs, added up. ``more``: or more, since a job whose copies take their time
        gets further ones; then until their number stays. Returns how long that took, in seconds.
        """
        started = time.monotonic()
        last = -1

        def settled() -> bool:
            nonlocal last
            before, last = last, self.held()
            return last == held or (more and last > held and last == before)

        self._wait(settled, SETTLE_SECONDS, f"{held} copies should be held")
        return time.monotonic() - started

    def held(self) -> int:
        """The jobs of all nodes, added up."""
        return sum(self._number(n, b"jobs", "registered_jobs") for n in range(len(self)))

    def usage(self) -> Usage:
        """What the nodes have used so far."""
        nodes = range(len(self))
        sizes = [self._bus_bytes(n) for n in nodes]
        return Usage(
            cpu=sum(server.cpu_seconds() for server in self.servers),
            packets=sum(self._cluster_number(n, "cluster_stats_messages_sent") for n in nodes),
            bus_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        )

    def failure(self, what: object) -> ServerError:
        """The error for ``what`` went wrong; names a node that has ended, if one has."""
        ended = [server for server in self.servers if server.process.poll() is not None]
        return (ended or self.servers)[0].failure(what)

    def _joined(self) -> bool:
        wanted = len(self) - 1
        return all(
            self._cluster_number(n, "cluster_reachable_nodes") == wanted for n in range(len(self))
        )

    def _wait(self, condition: Callable[[], bool], seconds: float, problem: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise self.failure(f"{problem} (not within {seconds:g} s; held: {self.held()})")
            time.sleep(POLL_SECONDS)

    def _bus_bytes(self, node: int) -> int | None:
        found = re.search(rb"total_cluster_output_bytes:(\d+)", self._ask(node, b"INFO", b"stats"))
        return int(found[1]) if found else None

    def _number(self, node: int, section: bytes, field: str) -> int:
        return self._field(node, field, self._ask(node, b"INFO", section))

    def _cluster_number(self, node: int, field: str) -> int:
        return self._field(node, field, self._ask(node, b"CLUSTER", b"INFO"))

    def _field(self, node: int, field: str, text: bytes) -> int:
        found = re.search(rb"^%b:(\d+)" % field.encode(), text, re.MULTILINE)
        if found is None:
            raise self.servers[node].failure(f"says no {field}")
        return int(found[1])

    def _ask(self, node: int, *words: bytes) -> bytes:
        """The text of a reply that is one line or one bulk string."""
        try:
            return _ask(self._controls[node], encode(*words))
        except (LoadError, OSError) as error:
            raise self.servers[node].failure(error) from error


def _ask(sock: socket.socket, request: bytes) -> bytes:
    sock.sendall(request)
    reply = b""
    while True:
        line, found, rest = reply.partition(b"\r\n")
        if line.startswith(b"-"):
            raise LoadError(f"the server answered {line!r}")
        if found and not line.startswith(b"$"):
            return line[1:]
        if found and len(rest) >= int(line[1:]) + 2:
            return rest[:-2]
        chunk = sock.recv(RECEIVE_BYTES)
        if not chunk:
            raise LoadError("the server closed the connection")
        reply += chunk


@contextmanager
def fleet(count: int, command: Sequence[str] = DISQUE_COMMAND) -> Iterator[Fleet]:
    """A cluster of ``count`` nodes that have joined; they end with the block."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(disque_server(f"node-{n}", command, NODE_CPUS))
            for n in range(count)
        ]
        controls = [
            stack.enter_context(socket.create_connection((HOST, server.port), 60.0))
            for server in servers
        ]
        running = Fleet(servers, controls)
        running.join()
        yield running
