"""The load generator: drives many connections of one process through one epoll.

It owns the sockets and the clock of a measurement and knows nothing of queues: a *script* (a
generator) yields what one connection sends, and gets each reply. Requests are encoded in advance
and replies are checked with a few operations on bytes, because on a machine with two cores a slow
generator would measure itself.
"""

from __future__ import annotations

import gc
import math
import select
import socket
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

RECEIVE_BYTES = 256 * 1024
STALL_SECONDS = 30.0
PING = (b"*1\r\n$4\r\nPING\r\n", b"+PONG")


class LoadError(Exception):
    """The server did not do the work: an error reply, a lost connection, or silence."""


class Shape(Protocol):
    """The form of the replies to a batch."""

    def complete(self, reply: bytes, count: int) -> bool:
        """Whether ``reply`` contains all ``count`` replies; raises LoadError on any other reply."""


class Exchange(NamedTuple):
    """One batch: the request, the number of ``commands`` in it, and the shape of their replies."""

    request: bytes
    shape: Shape
    commands: int


Script = Generator[Exchange, bytes, None]


@dataclass(frozen=True, slots=True)
class Load:
    """The result of one run: commands answered, wall time and the generator's own CPU time in
    seconds, and the sorted times in seconds from sending a batch to its last reply."""

    commands: int
    seconds: float
    own_cpu: float
    latencies: Sequence[float]


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The nearest-rank percentile of a sorted sequence, ``fraction`` within 0..1.

    Raises ValueError if the sequence is empty.
    """
    if not ordered:
        raise ValueError("no percentile of an empty sequence")
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


@contextmanager
def connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Opens ``count`` connections to a local port and closes them at the end.

    Each one gets a reply to PING before the next is opened, so that the listen queue cannot
    overflow and all are known to be served. Raises LoadError if the server refuses one.
    """
    with ExitStack() as stack:
        yield [stack.enter_context(_connect(port)) for _ in range(count)]


def _connect(port: int) -> socket.socket:
    try:
        sock = dial(port)
    except OSError as error:
        raise LoadError(f"cannot connect to port {port}: {error}") from error
    try:
        answer = ask(sock, PING[0])
        if answer != PING[1]:
            raise LoadError(f"PING was answered with {answer!r}")
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def dial(port: int) -> socket.socket:
    """A blocking connection with TCP_NODELAY."""
    sock = socket.create_connection(("127.0.0.1", port), STALL_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def receive(sock: socket.socket, done: Callable[[bytes], bool]) -> bytes:
    """Receives from a blocking connection until ``done`` returns true.

    Raises LoadError if the connection ends or fails first.
    """
    reply = b""
    try:
        while not done(reply):
            chunk = sock.recv(RECEIVE_BYTES)
            if not chunk:
                raise LoadError("the server closed the connection")
            reply += chunk
    except OSError as error:
        raise LoadError(f"the connection failed: {error}") from error
    return reply


def ask(sock: socket.socket, request: bytes) -> bytes:
    """Sends one request on a blocking connection; returns the reply, a line or a RESP bulk string,
    as text. Raises LoadError if the connection ends or fails first."""
    try:
        sock.sendall(request)
    except OSError as error:
        raise LoadError(f"the connection failed: {error}") from error

    def whole(reply: bytes) -> bool:
        head, found, rest = reply.partition(b"\r\n")
        if head.startswith(b"$") and head != b"$-1":
            return len(rest) >= int(head[1:]) + 2 if found else False
        return reply.endswith(b"\r\n")

    reply = receive(sock, whole)
    return reply.partition(b"\r\n")[2][:-2] if reply.startswith(b"$") else reply[:-2]


def ask_once(port: int, request: bytes) -> bytes:
    """The same on a new connection."""
    with dial(port) as sock:
        return ask(sock, request)


def info(port: int, *sections: bytes) -> dict[str, str]:
    """The fields of these sections of INFO."""
    with dial(port) as sock:
        texts = [ask(sock, b"INFO %b\r\n" % section).decode() for section in sections]
    lines = "\n".join(texts).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


class _Client:
    """One connection with its script, the batch in flight and the reply so far."""

    __slots__ = ("exchange", "reply", "script", "sent_at", "sock", "unsent")

    def __init__(self, sock: socket.socket, script: Script, first: Exchange) -> None:
        self.sock = sock
        self.script = script
        self.exchange = first
        self.reply = b""
        self.unsent = b""
        self.sent_at = 0.0


def run(socks: Iterable[socket.socket], scripts: Iterable[Script]) -> Load:
    """Drives each script over its connection until all have ended.

    Each connection has one batch in flight. Raises LoadError as soon as a reply is wrong, a
    connection ends, or no reply comes for STALL_SECONDS.
    """
    clients: dict[int, _Client] = {}
    for sock, script in zip(socks, scripts, strict=True):
        # A script without work ends at once.
        first = next(script, None)
        if first is not None:
            clients[sock.fileno()] = _Client(sock, script, first)
    collecting = gc.isenabled()
    # With millions of small objects, our own garbage collector would distort the measurement.
    gc.collect()
    gc.disable()
    try:
        with select.epoll() as epoll:
            for fd in clients:
                epoll.register(fd, select.EPOLLIN)
            return _drive(epoll, clients)
    except OSError as error:
        raise LoadError(f"the connection failed: {error}") from error
    finally:
        if collecting:
            gc.enable()


def _drive(epoll: select.epoll, clients: dict[int, _Client]) -> Load:
    latencies: list[float] = []
    commands = 0
    active = len(clients)
    now = time.perf_counter
    cpu_before = time.process_time()
    started = now()
    for client in clients.values():
        client.sent_at = now()
        _send(epoll, client, client.exchange.request)
    while active:
        events = epoll.poll(STALL_SECONDS)
        if not events:
            raise LoadError(f"no reply for {STALL_SECONDS:g} s, {active} clients are waiting")
        for fd, event in events:
            client = clients[fd]
            if client.unsent:
                if event & select.EPOLLOUT:
                    _send(epoll, client, client.unsent)
                if not event & ~select.EPOLLOUT:
                    continue
            chunk = client.sock.recv(RECEIVE_BYTES)
            if not chunk:
                raise LoadError("the server closed the connection")
            reply = client.reply + chunk if client.reply else chunk
            exchange = client.exchange
            if not exchange.shape.complete(reply, exchange.commands):
                client.reply = reply
                continue
            finished = now()
            latencies.append(finished - client.sent_at)
            commands += exchange.commands
            client.reply = b""
            try:
                client.exchange = exchange = client.script.send(reply)
            except StopIteration:
                active -= 1
                continue
            client.sent_at = now()
            _send(epoll, client, exchange.request)
    seconds = now() - started
    own_cpu = time.process_time() - cpu_before
    latencies.sort()
    return Load(commands, seconds, own_cpu, latencies)


def _send(epoll: select.epoll, client: _Client, data: bytes) -> None:
    try:
        sent = client.sock.send(data)
    except BlockingIOError:
        sent = 0
    unsent = data[sent:] if sent < len(data) else b""
    if bool(unsent) != bool(client.unsent):
        epoll.modify(client.sock, select.EPOLLIN | (select.EPOLLOUT if unsent else 0))
    client.unsent = unsent
