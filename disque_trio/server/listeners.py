"""Where clients connect: TCP and unix sockets, and who is let in.

Owns the listening sockets and the limits on connecting: maxclients and the protected mode.
"""

import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

import trio

from disque_trio.config import Config
from disque_trio.server.engine import Engine
from disque_trio.server.logs import Log

_TOO_MANY = b"-ERR max number of clients reached\r\n"
_PROTECTED = (
    b"-DENIED this node runs in protected mode: it is bound to all interfaces and has no "
    b"password, so it serves clients of its own machine only. Set a password (requirepass), "
    b"name the addresses to bind to, or set protected-mode to no.\r\n"
)
_WILDCARDS = ("0.0.0.0", "::")
ACCEPTS_A_TIME = 100


class ListenError(Exception):
    """A socket cannot be listened on; the text says which and why."""


def open_listeners(
    config: Config, log: Log, activated: Sequence[socket.socket] = ()
) -> list[socket.socket]:
    """Listen on all configured addresses, without ``bind`` on all of the machine.

    ``activated`` are listening sockets that the process was given. Those of TCP take the place
    of ``port`` and ``bind``, a unix socket that of ``unixsocket``.

    Raises:
        ListenError: one of them cannot be had, or there is none. Only IPv6 addresses on a
            machine that has no IPv6 are left out, with a warning.
    """
    listeners = list(activated)
    given = {listener.family == socket.AF_UNIX for listener in activated}
    try:
        if config.port and False not in given:
            for address in config.bind or ("::", "0.0.0.0"):
                listener = _listen_tcp(config, address)
                if listener is not None:
                    listeners.append(listener)
                else:
                    log.warning("this machine has no IPv6, not listening on it", address=address)
        if config.unixsocket and True not in given:
            listeners.append(_listen_unix(config))
        if not listeners:
            raise ListenError("nothing: there is no port, no unixsocket, or no such network")
    except ListenError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _listen_tcp(config: Config, address: str) -> socket.socket | None:
    """A listening socket; None for an IPv6 address where there is no IPv6."""
    host = "0.0.0.0" if address == "*" else address
    try:
        family, _, _, _, where = socket.getaddrinfo(
            host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as failure:
        if failure.errno == errno.EAFNOSUPPORT:
            return None
        raise ListenError(f"{address} port {config.port}: {failure.strerror}") from failure
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(where)
        listener.listen(config.tcp_backlog)
    except OSError as failure:
        listener.close()
        # A machine whose IPv6 is switched off says so only when an address is bound.
        if failure.errno == errno.EADDRNOTAVAIL and host in ("::", "::1"):
            return None
        raise ListenError(f"{address} port {config.port}: {failure.strerror}") from failure
    listener.setblocking(False)
    return listener


def _listen_unix(config: Config) -> socket.socket:
    path = Path(config.unixsocket)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            if _answers(path):
                raise ListenError(f"{path}: another process listens there")
            path.unlink()  # left behind by a process that was killed
        listener.bind(str(path))
        if config.unixsocketperm:
            path.chmod(config.unixsocketperm)
        listener.listen(config.tcp_backlog)
    except (OSError, ListenError) as failure:
        listener.close()
        if isinstance(failure, ListenError):
            raise
        raise ListenError(f"{path}: {failure.strerror or failure}") from failure
    listener.setblocking(False)
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def close_listeners(
    listeners: Sequence[socket.socket], activated: Sequence[socket.socket] = ()
) -> None:
    """Stop listening; the file of a unix socket goes with it, unless it was ``activated``: whoever
    opened it goes on listening."""
    for listener in listeners:
        if listener.family == socket.AF_UNIX and listener not in activated:
            try:
                os.unlink(listener.getsockname())  # noqa: PTH108
            except OSError:
                pass
        listener.close()


def tcp_endpoints(listeners: Sequence[socket.socket]) -> list[tuple[str, int]]:
    """Addresses and ports that are listened on."""
    return [
        listener.getsockname()[:2] for listener in listeners if listener.family != socket.AF_UNIX
    ]


def on_all_interfaces(listener: socket.socket) -> bool:
    """Whether anybody who reaches the machine reaches ``listener``: no address was named."""
    return listener.family != socket.AF_UNIX and listener.getsockname()[0] in _WILDCARDS


async def accept(listener: socket.socket, engine: Engine) -> None:
    """Take in clients of ``listener`` until cancelled."""
    unix = listener.family == socket.AF_UNIX
    path = listener.getsockname() if unix else ""
    exposed = on_all_interfaces(listener)
    while True:
        await trio.lowlevel.wait_readable(listener)
        if engine.halted:
            # Whoever comes now waits for the process that goes on with the socket.
            await trio.sleep_forever()
        for _ in range(ACCEPTS_A_TIME):
            try:
                sock, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as failure:
                # Out of descriptors or memory: let others finish instead of spinning.
                engine.log.warning("cannot accept", reason=failure.strerror)
                await trio.sleep(0.1)
                break
            if unix:
                address = f"{path}:0"
            elif ":" in peer[0]:
                address = f"[{peer[0]}]:{peer[1]}"
            else:
                address = f"{peer[0]}:{peer[1]}"
            _admit(engine, sock, address, "" if unix else peer[0], exposed)


def _admit(engine: Engine, sock: socket.socket, address: str, ip: str, exposed: bool) -> None:
    config = engine.config
    stats = engine.stats
    stats.connections += 1
    sock.setblocking(False)
    refusal = b""
    if len(engine.connections) >= config.maxclients:
        refusal = _TOO_MANY
    elif exposed and config.protected_mode and not config.requirepass and not _is_loopback(ip):
        refusal = _PROTECTED
    if refusal:
        stats.rejected += 1
        try:
            sock.send(refusal)
        except OSError:
            pass
        sock.close()
        return
    try:
        if ip:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(sock, config.tcp_keepalive)
        engine.add(sock, address, not ip)
    except OSError:
        sock.close()  # it is gone already


def _is_loopback(ip: str) -> bool:
    address = ipaddress.ip_address(ip.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped  # on a socket for both
    return address.is_loopback


def _keep_alive(sock: socket.socket, seconds: int) -> None:
    """Let the kernel ask a silent peer every ``seconds`` whether it is there (0: never)."""
    if seconds:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(seconds // 3, 1))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
