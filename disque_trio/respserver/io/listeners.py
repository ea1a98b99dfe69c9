"""Listens for clients on TCP and unix sockets, and decides which of them may connect.

Owns the listening sockets and the limits on connecting: maxclients, maxclients-per-ip and the
protected mode.
"""

import errno
import os
import socket
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import trio

from disque_trio.notation.addresses import format_address
from disque_trio.process.logs import Log
from disque_trio.process.sockets import is_local, keep_alive, on_all_interfaces
from disque_trio.respserver.acl.users import Users
from disque_trio.respserver.io.connection import Connection
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.io.links import Limits
from disque_trio.respserver.io.movable import Look
from disque_trio.respserver.io.sealing import Sealing

_TOO_MANY = b"-ERR max number of clients reached\r\n"
_TOO_MANY_THERE = b"-ERR max number of clients of one address reached\r\n"
_PROTECTED = (
    b"-DENIED this node runs in protected mode: it is bound to all interfaces and has no "
    b"password, so it serves clients of its own machine only. Set a password (requirepass), "
    b"name the addresses to bind to, or set protected-mode to no.\r\n"
)
ACCEPTS_A_TIME = 100


class ListenError(Exception):
    """Listening on a socket failed; the text says which and why."""


class Places(Protocol):
    """The settings that say where to listen."""

    @property
    def bind(self) -> tuple[str, ...]: ...
    @property
    def port(self) -> int: ...

    tls_port: int
    unixsocket: str
    unixsocketperm: int
    tcp_backlog: int


def open_listeners(
    config: Places, log: Log, activated: Sequence[socket.socket] = ()
) -> list[socket.socket]:
    """Listen on all configured addresses; without ``bind``, on all of the machine.

    ``activated`` are listening sockets that the process was given. A TCP socket replaces ``port``
    and ``bind``, one with the number of ``tls-port`` replaces that, and a unix socket replaces
    ``unixsocket``.

    Raises:
        ListenError: one of them cannot be used, or there is none. Only IPv6 addresses on a machine
            without IPv6 are skipped, with a warning.
    """
    listeners = list(activated)
    unix = [listener for listener in activated if listener.family == socket.AF_UNIX]
    tls = [listener for listener in activated if is_tls(listener, config.tls_port)]
    try:
        if config.port and config.port == config.tls_port:
            raise ListenError(f"port and tls-port are both {config.port}")
        if config.port and len(activated) == len(unix) + len(tls):
            listeners += listen_everywhere(config, config.port, log)
        if config.tls_port and not tls:
            listeners += listen_everywhere(config, config.tls_port, log)
        if config.unixsocket and not unix:
            listeners.append(_listen_unix(config))
        if not listeners:
            raise ListenError(
                "nothing: there is no port, no tls-port, no unixsocket, or no such network"
            )
    except ListenError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def open_shared(
    config: Places, log: Log, activated: Sequence[socket.socket] = ()
) -> list[socket.socket]:
    """Listen on ``port`` and ``tls-port`` for several processes; ``activated`` sockets replace
    them. Raises ``ListenError``."""
    plain, tls = shared_of(activated, config.tls_port), at(activated, config.tls_port)
    opened: list[socket.socket] = []
    try:
        if config.port and not plain:
            opened += listen_everywhere(config, config.port, log)
        if config.tls_port and not tls:
            opened += listen_everywhere(config, config.tls_port, log)
    except ListenError:
        close_listeners(opened)
        raise
    return [*plain, *tls, *opened]


def shared_of(listeners: Sequence[socket.socket], tls_port: int) -> list[socket.socket]:
    """Those of ``listeners`` at which all processes of a server accept clients without TLS: their
    connections can be handed over."""
    tcp = [listener for listener in listeners if listener.family != socket.AF_UNIX]
    return [listener for listener in tcp if not is_tls(listener, tls_port)]


def listen_everywhere(config: Places, port: int, log: Log) -> list[socket.socket]:
    """Listen on ``port`` of all addresses. Raises ``ListenError``."""
    listeners: list[socket.socket] = []
    try:
        for address in config.bind or ("::", "0.0.0.0"):
            listener = listen_tcp(address, port, config.tcp_backlog)
            if listener is not None:
                listeners.append(listener)
            else:
                log.warning("this machine has no IPv6, not listening on it", address=address)
    except ListenError:
        close_listeners(listeners)
        raise
    return listeners


def at(listeners: Sequence[socket.socket], port: int) -> list[socket.socket]:
    """Those of ``listeners`` at this TCP ``port``; none for port 0."""
    tcp = [listener for listener in listeners if listener.family != socket.AF_UNIX]
    return [listener for listener in tcp if listener.getsockname()[1] == port > 0]


def is_tls(listener: socket.socket, tls_port: int) -> bool:
    """Whether clients of ``listener`` have to speak TLS."""
    return bool(at([listener], tls_port))


def known_listeners(listeners: Sequence[socket.socket], tls_port: int) -> list[socket.socket]:
    """Return the listeners of the port by which other nodes know this one.

    That is the port without TLS if there is one, otherwise the TLS port.
    """
    tcp = [listener for listener in listeners if listener.family != socket.AF_UNIX]
    return [listener for listener in tcp if not is_tls(listener, tls_port)] or tcp


def listen_tcp(address: str, port: int, backlog: int, both: bool = False) -> socket.socket | None:
    """Return a listening socket; None for an IPv6 address if there is no IPv6. ``both``: an IPv6
    socket serves IPv4 as well."""
    host = "0.0.0.0" if address == "*" else address
    try:
        family, _, _, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as failure:
        if failure.errno == errno.EAFNOSUPPORT:
            return None
        raise ListenError(f"{address} port {port}: {failure.strerror}") from failure
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not both))
        listener.bind(where)
        listener.listen(backlog)
    except OSError as failure:
        listener.close()
        # A machine whose IPv6 is switched off only says so when an address is bound.
        if failure.errno == errno.EADDRNOTAVAIL and host in ("::", "::1"):
            return None
        raise ListenError(f"{address} port {port}: {failure.strerror}") from failure
    listener.setblocking(False)
    return listener


def _listen_unix(config: Places) -> socket.socket:
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
    """Whether a process listens on the unix socket ``path``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def close_listeners(
    listeners: Sequence[socket.socket], activated: Sequence[socket.socket] = ()
) -> None:
    """Stop listening, and remove the file of a unix socket, unless the socket was ``activated``:
    the process that opened it continues to listen."""
    for listener in listeners:
        if listener.family == socket.AF_UNIX and listener not in activated:
            try:
                os.unlink(listener.getsockname())
            except OSError:
                pass
        listener.close()


def tcp_endpoints(listeners: Sequence[socket.socket]) -> list[tuple[str, int]]:
    """The addresses and ports that are listened on."""
    return [
        listener.getsockname()[:2] for listener in listeners if listener.family != socket.AF_UNIX
    ]


async def accept_clients(listener: socket.socket, engine: Engine) -> None:
    """Accept clients of ``listener`` until cancelled."""
    await accept(listener, engine, admitting(listener, engine))


def admitting(
    listener: socket.socket,
    engine: Engine,
    look: Callable[[], Look] | None = None,
    tls: bool = False,
) -> Callable[[socket.socket, str, int], None]:
    """Return what serves a client of ``listener``, given its socket, ip and port. ``look``: called
    for each client, if they may be handed to other processes; see ``MovableConnection``. ``tls``:
    they have to speak TLS, whatever the port."""
    unix = listener.family == socket.AF_UNIX
    path = listener.getsockname() if unix else ""
    exposed = on_all_interfaces(listener)
    tls = tls or is_tls(listener, engine.config.tls_port)

    def admit(sock: socket.socket, ip: str, port: int) -> None:
        address = f"{path}:0" if unix else format_address(ip, port)
        if tls:
            _shake_hands(engine, sock, address, ip, exposed)
        else:
            how = look() if look is not None else None
            admit_client(engine, sock, address, ip, exposed, look=how)
        engine.stir()  # it may have to be closed when it is silent for too long

    return admit


def _shake_hands(engine: Engine, sock: socket.socket, address: str, ip: str, exposed: bool) -> None:
    """Admit the client at the other end of ``sock`` after its TLS handshake."""

    def admit(sealing: Sealing) -> None:
        connection = admit_client(engine, sock, address, ip, exposed, sealing)
        if connection is not None:
            engine.read(connection)

    handshakes = engine.clients.handshakes
    if 0 < engine.config.maxclients_per_ip <= handshakes.origins.count(ip):
        # Without a message, which would have to be encrypted.
        engine.stats.rejected += 1
        sock.close()
        return
    sock.setblocking(False)
    try:
        # The messages of a handshake are small, and each side waits for the other.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handshakes.begin(sock, address, engine.clock.now(), admit)
        handshakes.origins.enter(sock.fileno(), ip)
    except OSError:
        sock.close()  # the client is gone already


def say_where(
    listeners: Sequence[socket.socket], config: Limits, log: Log, connect: str, users: Users
) -> None:
    """Log where clients can connect. ``connect``: a command for that, with {where} for its options.
    ``users``: who may log in. ``exposure`` logs which of these are open to strangers."""
    for address, port in tcp_endpoints(listeners):
        where = f"-h {address} -p {port}" + (" --tls" if port == config.tls_port else "")
        log.notice(
            "ready to accept connections",
            port=port,
            bind=address,
            connect=connect.format(where=where),
        )
    for listener in listeners:
        if listener.family == socket.AF_UNIX:
            log.notice("ready to accept connections", unixsocket=listener.getsockname())
    guarded = config.protected_mode and users.default.open
    if guarded and any(map(on_all_interfaces, listeners)):
        log.notice(
            "bound to all interfaces without a password: only clients of this machine are served "
            "(protected-mode)"
        )


async def accept(
    listener: socket.socket, engine: Engine, admit: Callable[[socket.socket, str, int], None]
) -> None:
    """Call ``admit`` with socket, ip and port (unix: "" and 0) of each new connection."""
    while True:
        await trio.lowlevel.wait_readable(listener)
        if engine.halted:
            # New clients wait for the process that takes over the socket.
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
            if listener.family == socket.AF_UNIX:
                admit(sock, "", 0)
            else:
                admit(sock, peer[0], peer[1])


def admit_client(
    engine: Engine,
    sock: socket.socket,
    address: str,
    ip: str,
    exposed: bool,
    sealing: Sealing | None = None,
    look: Look | None = None,
) -> Connection | None:
    """Serve the client at the other end of ``sock``, or tell it why not, and return None.

    Args:
        ip: its address; empty on a unix socket.
        exposed: it came to a listener that was given no address.
        sealing: of a TLS connection.
        look: of one that may be handed to another process.
    """
    config = engine.config
    stats = engine.stats
    stats.connections += 1
    sock.setblocking(False)
    refusal = b""
    if len(engine.clients.connections) >= config.maxclients:
        refusal = _TOO_MANY
    elif exposed and config.protected_mode and engine.node.users.default.open and not is_local(ip):
        refusal = _PROTECTED
    elif 0 < config.maxclients_per_ip <= engine.clients.origins.count(ip):
        refusal = _TOO_MANY_THERE
    if refusal:
        stats.rejected += 1
        if sealing is not None:
            refusal = sealing.encrypt(refusal) + sealing.end()
        try:
            sock.send(refusal)
        except OSError:
            pass
        sock.close()
        return None
    try:
        if ip:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(sock, config.tcp_keepalive)
        connection = engine.clients.add(sock, address, not ip, sealing, look)
        engine.clients.origins.enter(sock.fileno(), ip)
        return connection
    except OSError:
        sock.close()  # the client is gone already
        return None
