"""Listens for other nodes: on the port of each client address, plus 10000."""

import socket
from collections.abc import Sequence

from disque_trio.cluster.bus import Bus
from disque_trio.process.addresses import BUS_OFFSET, MAX_PORT
from disque_trio.process.sockets import on_all_interfaces
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.io.listeners import (
    ListenError,
    Places,
    accept,
    close_listeners,
    known_listeners,
    listen_tcp,
)


def open_bus_listeners(config: Places, listeners: Sequence[socket.socket]) -> list[socket.socket]:
    """Listen for other nodes wherever ``listeners`` listen on TCP for clients, 10000 ports above;
    above ``tls-port`` only if clients have no other port.

    Raises:
        ListenError: a port cannot be used. A node without all of its bus would be deaf to others
            and still seem well.
    """
    opened: list[socket.socket] = []
    try:
        for listener in known_listeners(listeners, config.tls_port):
            address, port = listener.getsockname()[:2]
            if port > MAX_PORT:
                raise ListenError(
                    f"{address} port {port}: the cluster bus needs the port plus {BUS_OFFSET}, so "
                    f"{MAX_PORT} is the highest for clients"
                )
            both = listener.family == socket.AF_INET6 and not listener.getsockopt(
                socket.IPPROTO_IPV6, socket.IPV6_V6ONLY
            )
            try:
                bus = listen_tcp(address, port + BUS_OFFSET, config.tcp_backlog, both)
            except ListenError as failure:
                raise ListenError(f"the cluster bus: {failure}") from failure
            if bus is None:
                raise ListenError(f"the cluster bus: this machine has no IPv6 for {address}")
            opened.append(bus)
    except ListenError:
        close_listeners(opened)
        raise
    return opened


async def accept_nodes(listener: socket.socket, engine: Engine, bus: Bus) -> None:
    """Accept connections of other nodes on ``listener`` until cancelled."""
    exposed = on_all_interfaces(listener)

    def admit(sock: socket.socket, ip: str, port: int) -> None:
        sock.setblocking(False)
        bus.admit(sock, ip, exposed)

    await accept(listener, engine, admit)
