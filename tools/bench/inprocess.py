"""A node or bananaq in this process: its engine, with clients at the other ends of socket pairs.

The server is deterministic: its turns are run by hand, its clock stands still or goes by them, and
its random numbers have a seed. So its cost can be counted, or examined step by step.
"""

from __future__ import annotations

import os
import random
import select
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import hiredis

from disque_bananaq.check import EventScanner
from disque_bananaq.commands.table import build_table as build_banana_table
from disque_bananaq.core.broker import Broker
from disque_bananaq.core.embedded import EmbeddedStore
from disque_trio.aof.persistence import Persistence
from disque_trio.aof.scanner import Scanner
from disque_trio.cluster.peers import Peers
from disque_trio.config import Config
from disque_trio.node.commands.table import build_table
from disque_trio.node.core.node import Node
from disque_trio.node.progress_file import ProgressFile
from disque_trio.process.clock import Clock
from disque_trio.process.logs import Logging
from disque_trio.protocol.bus import PacketWriter
from disque_trio.resp.command import encode_command
from disque_trio.respserver.command import Command
from disque_trio.respserver.host import Host
from disque_trio.respserver.io.connection import Connection
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.io.links import Links
from disque_trio.respserver.io.poller import Poller
from disque_trio.respserver.io.stats import Stats
from disque_trio.respserver.io.tasks import RequeueTimer
from disque_trio.respserver.machine import Machine

START = 1_700_000_000_000  # ms since the epoch
QUEUE = b"guard"
BODY = b"x" * 100
JOB_COMMANDS = ("ADDJOB", "GETJOB", "ACKJOB")
EVENT_COMMANDS = ("QADD", "QGET", "QACK")
ENDS = ("ACKJOB", "QACK")
TURNS_A_MS = 8  # a busy node takes at least that many
_BUFFER = 1 << 20

M = TypeVar("M")  # a machine


class StillClock(Clock):
    """``now()`` returns ``time``, in ms."""

    def __init__(self) -> None:
        super().__init__()
        self.time = START

    def now(self) -> int:
        return self.time


def _ignore(due: int) -> None:
    pass


class _QuietHost(Host):
    """A host that does nothing."""


def no_duration() -> int:
    """Makes commands appear to take no time."""
    return 0


def make_node(
    peers: Peers | None = None,
    seed: int = 1,
    more: Sequence[Command[Machine]] = (),
    clock: Callable[[], int] = no_duration,
    packets: PacketWriter | None = None,
) -> Node:
    """A node, alone or with ``peers``, with the additional commands ``more``. Its id is that of
    ``packets``, if given."""
    rng = random.Random(seed)
    id = b"%040x" % rng.getrandbits(160)
    return Node(
        id=packets.id if packets is not None else id,
        commands=build_table() | _by_name(more),
        host=_QuietHost(),
        peers=peers or Peers(),
        entropy=rng.randbytes,
        rng=rng,
        clock=clock,
        maxmemory=0,
        packets=packets,
    )


def make_broker(
    more: Sequence[Command[Machine]] = (), clock: Callable[[], int] = no_duration
) -> Broker:
    """A bananaq with its own store and the additional commands ``more``."""
    commands = build_banana_table(True) | _by_name(more)
    return Broker(EmbeddedStore(), commands, _QuietHost(), clock)


def _by_name(commands: Sequence[Command[M]]) -> dict[bytes, Command[M]]:
    return {command.name.encode(): command for command in commands}


class Desk:
    """``machine`` with ``clients`` connected to it.

    Args:
        aof: directory of an append-only file, which is never synced, or None.
        timed: whether the engine tells ``timer`` what is due.
        bus: the links to other nodes, in ``poller``, which the engine shares.

    Attributes:
        connections: the server's ends. socks: the clients' ends.
        timer: the engine's.
    """

    def __init__(
        self,
        machine: Node | Broker,
        clients: int = 1,
        aof: str | None = None,
        timed: bool = False,
        bus: Links | None = None,
        poller: Poller | None = None,
    ) -> None:
        self.machine = machine
        self._logging = Logging(level="warning", path=os.devnull)
        self.clock = StillClock()
        path = str(Path(aof or ".", "aof"))
        config = Config({"appendonly": aof is not None, "appendfilename": path})
        config.appendfsync = "no"
        log = self._logging.log
        self.persistence: Persistence | None = None
        if aof is not None:
            scanner: type[Scanner] = EventScanner if isinstance(machine, Broker) else Scanner
            self.persistence = Persistence(machine, config, log, scanner=scanner)
            self.persistence.file.open()
        self.progress_file: ProgressFile | None = None
        self._batches = 0
        if aof is not None and isinstance(machine, Node):
            self.progress_file = ProgressFile(machine, config, log)
            self.progress_file.start()
        self.timer = RequeueTimer(self.clock)
        self.engine = Engine(
            machine,
            bus or Links(),
            config,
            self.clock,
            Stats(),
            log,
            self.persistence,
            poller,
            on_wake=self.timer.wake_at if timed else _ignore,
        )
        self.socks: list[socket.socket] = []
        for _ in range(clients):
            ours, theirs = socket.socketpair()
            for end in (ours, theirs):
                end.setblocking(False)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            self.engine.clients.add(ours, "client", True)
            self.socks.append(theirs)
        self.connections: list[Connection] = list(self.engine.clients.connections.values())
        self.ready = [(connection.fd, select.EPOLLIN) for connection in self.connections]
        self._reader = hiredis.Reader()

    def send(self, batch: bytes) -> None:
        """Send ``batch`` from each client."""
        for sock in self.socks:
            if sock.send(batch) != len(batch):
                raise RuntimeError("the batch does not fit into the socket buffer")
        self._batches += 1
        if self.progress_file is not None and self._batches % TURNS_A_MS == 0:
            self.clock.time += 1  # what became of jobs is written down once in a ms

    def turn(self) -> None:
        """Serve the requests sent so far."""
        self.engine.turn(self.ready)
        while self.engine.is_behind:  # a command took long, because the machine did
            self.engine.turn(self.ready)

    def replies(self) -> list[object]:
        """The replies to all clients.

        Raises:
            RuntimeError: a reply is an error.
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
        """Close everything."""
        self.engine.close_all()
        for sock in self.socks:
            sock.close()
        if self.persistence is not None:
            self.persistence.close()
        if self.progress_file is not None:
            self.progress_file.close()
        self._logging.close()


def request(*words: bytes) -> bytes:
    """An encoded request."""
    return encode_command(words)


def requests_of(command: str, count: int, taken: Sequence[bytes]) -> list[list[bytes]]:
    """``count`` requests; ``taken``: the ids of the jobs or events to end."""
    name = command.encode()
    if command in ENDS:
        words = [name] if command == "ACKJOB" else [name, QUEUE, b"group"]
        return [[*words, id] for id in taken]
    words = {
        "ADDJOB": [name, QUEUE, BODY, b"0"],
        "GETJOB": [name, b"NOHANG", b"FROM", QUEUE],
        "QADD": [name, QUEUE, b"1000", BODY],
        "QGET": [name, QUEUE, b"group"],
    }[command]
    return [words] * count


def id_in(reply: object) -> bytes:
    """The id in the reply to a command that adds or takes a job or an event."""
    if isinstance(reply, list):
        first = reply[0]
        reply = first[1] if isinstance(first, list) else first  # GETJOB or QGET
    if not isinstance(reply, bytes):
        raise TypeError(f"not an id: {reply!r}")
    return reply
