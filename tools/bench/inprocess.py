"""A node, or bananaq, in this process: its engine with clients at the other ends of socket pairs.

What a server does is the same each time: its clock stands, its randomness has a seed, and the
turns are taken by hand. So what it costs can be counted, or looked at step by step.
"""

from __future__ import annotations

import os
import random
import select
import socket
from pathlib import Path

import hiredis

from disque_trio.aof.survey import Survey
from disque_trio.bananaq.check import EventSurvey
from disque_trio.bananaq.commands.table import build_table as build_banana_table
from disque_trio.bananaq.core.broker import Broker
from disque_trio.bananaq.core.embedded import EmbeddedStore
from disque_trio.commands.table import build_table
from disque_trio.config import Config
from disque_trio.core.host import Host
from disque_trio.core.machine import Machine
from disque_trio.core.node import Node
from disque_trio.core.peers import Peers
from disque_trio.server.clock import Clock
from disque_trio.server.connection import Connection
from disque_trio.server.engine import Engine
from disque_trio.server.links import NoLinks
from disque_trio.server.logs import Logging
from disque_trio.server.persistence import Persistence
from disque_trio.server.stats import Stats

START = 1_700_000_000_000  # ms since the epoch
_BUFFER = 1 << 20


class StillClock(Clock):
    """``now()`` is what ``time`` says, in ms."""

    def __init__(self) -> None:
        super().__init__()
        self.time = START

    def now(self) -> int:
        return self.time


class _QuietHost(Host):
    """Nothing is around the machine."""


def no_duration() -> int:
    """Commands seem to take no time."""
    return 0


def make_node(peers: Peers | None = None, seed: int = 1) -> Node:
    """A node alone, or with ``peers``."""
    rng = random.Random(seed)
    return Node(
        id=b"%040x" % rng.getrandbits(160),
        commands=build_table(),
        host=_QuietHost(),
        peers=peers or Peers(),
        entropy=rng.randbytes,
        rng=rng,
        clock=no_duration,
        maxmemory=0,
    )


def make_broker() -> Broker:
    """A bananaq that keeps its events itself."""
    store = EmbeddedStore()
    return Broker(store, store, build_banana_table(True), _QuietHost(), no_duration)


class Desk:
    """``machine`` with ``clients`` that are connected to it.

    Args:
        aof: directory of an append-only file, which is never synced; None: there is none.

    Attributes:
        connections: the server's ends. socks: the clients' ends.
    """

    def __init__(self, machine: Machine, clients: int = 1, aof: str | None = None) -> None:
        self.machine = machine
        self._logging = Logging(level="warning", path=os.devnull)
        self.clock = StillClock()
        path = str(Path(aof or ".", "aof"))
        config = Config({"appendonly": aof is not None, "appendfilename": path})
        config.appendfsync = "no"
        log = self._logging.log
        self.engine = Engine(machine, NoLinks(), config, self.clock, Stats(), log)
        self.persistence: Persistence | None = None
        if aof is not None:
            survey: type[Survey] = EventSurvey if isinstance(machine, Broker) else Survey
            self.persistence = Persistence(machine, config, log, survey=survey)
            self.persistence.open()
            self.engine.persist = self.persistence.turn
        self.socks: list[socket.socket] = []
        for _ in range(clients):
            ours, theirs = socket.socketpair()
            for end in (ours, theirs):
                end.setblocking(False)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            self.engine.add(ours, "client", True)
            self.socks.append(theirs)
        self.connections: list[Connection] = list(self.engine.connections.values())
        self.ready = [(connection.fd, select.EPOLLIN) for connection in self.connections]
        self._reader = hiredis.Reader()

    def send(self, batch: bytes) -> None:
        """Let each client send ``batch``."""
        for sock in self.socks:
            if sock.send(batch) != len(batch):
                raise RuntimeError("the batch is longer than a socket takes")

    def turn(self) -> None:
        """Serve what was sent."""
        self.engine.turn(self.ready)

    def replies(self) -> list[object]:
        """What all clients were sent.

        Raises:
            RuntimeError: an error was.
        """
        found: list[object] = []
        for sock in self.socks:
            while True:
                try:
                    data = sock.recv(_BUFFER)
                except BlockingIOError:
                    break
                if not data:
                    raise RuntimeError("the server closed the connection")
                self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                if isinstance(reply, hiredis.ReplyError):
                    raise RuntimeError(str(reply))
                found.append(reply)
        return found

    def close(self) -> None:
        """Leave nothing open."""
        self.engine.close_all()
        for sock in self.socks:
            sock.close()
        if self.persistence is not None:
            self.persistence.close()
        self._logging.close()


def request(*words: bytes) -> bytes:
    """A request as it is on the wire."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)
