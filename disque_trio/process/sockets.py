"""Helpers for the TCP sockets of clients and other nodes."""

import socket

from disque_trio.process.addresses import is_loopback, plain_ip

WILDCARDS = ("0.0.0.0", "::")


def is_local(ip: str) -> bool:
    """Whether a peer with the address ``ip`` is certainly on this machine."""
    return is_loopback(plain_ip(ip))


def is_own_address(ip: str) -> bool:
    """Whether ``ip`` is an address of this machine."""
    if is_loopback(ip):
        return True
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing. The system uses an address as the source only for connections to
            # itself. ``bind`` would not tell: it can be allowed for foreign addresses.
            probe.connect((ip, 9))
        except OSError:
            return False
        return str(probe.getsockname()[0]) == ip


def on_all_interfaces(listener: socket.socket) -> bool:
    """Whether ``listener`` is reachable on all addresses of the machine: none was named."""
    return listener.family != socket.AF_UNIX and listener.getsockname()[0] in WILDCARDS


def keep_alive(sock: socket.socket, seconds: int) -> None:
    """Make the kernel check every ``seconds`` whether a silent peer is there (0: never)."""
    if seconds:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(seconds // 3, 1))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
