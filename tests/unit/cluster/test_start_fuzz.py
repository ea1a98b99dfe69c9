"""A node with a damaged nodes.conf refuses to start or serves, at once, whatever is in the file.

The node is assembled as the server does it, with sockets that lead nowhere and a clock moved by
hand. Work is measured in function calls, as seconds say little on a busy machine.
``CONF_SEEDS=10000`` in the environment tries that many files.
"""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace

import pytest

from disque_trio.cluster import bus as bus_module
from disque_trio.cluster import buslinks as buslinks_module
from disque_trio.cluster.bus import Bus
from disque_trio.cluster.cluster import Cluster, ClusterError
from disque_trio.cluster.nodes_conf import parse_nodes
from disque_trio.cluster.nodes_file import NodesDisk
from disque_trio.config import Config
from disque_trio.form import form
from disque_trio.node.commands.table import build_table
from disque_trio.node.core.node import Node
from disque_trio.process.clock import Clock
from disque_trio.protocol.bus import PONG, PacketWriter
from disque_trio.respserver.client import Client
from disque_trio.respserver.host import Host
from disque_trio.respserver.io.stats import Stats
from tests.support.conf_fuzz import damaged_conf

SEEDS = int(os.environ.get("CONF_SEEDS", "100"))
FIRST_TURNS = 10  # of 100 ms
TURNS = 60  # of 500 ms after that: twice the node timeout
# The function calls a turn may make: a base, and some per known node. Pings, connections and gossip
# fit; work that looks at all nodes for each node does not.
BASE_CALLS, CALLS_PER_NODE = 5_000, 500
LINE_CALLS = 150  # to read a line
START = 1_700_000_000_000
FATES = ["refused", "refused", "late", "silent", "taken", "taken", "rubbish"]  # of connections


class MovedClock(Clock):
    def __init__(self) -> None:
        super().__init__()
        self.time = START

    def now(self) -> int:
        return self.time


class NoWaiting(NodesDisk):
    """A disk that completes at once."""

    def sync(self, fd: int) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass


class Log:
    def say(self, text: str, **fields: object) -> None:
        pass

    debug = verbose = notice = say

    def warning(self, text: str, exc_info: bool = False, **fields: object) -> None:
        assert not exc_info, text  # no content of a file may crash the program


class Nowhere:
    """A TCP socket: the system judges the address, chance decides the connection's fate."""

    number = 1000

    def __init__(self, rng: random.Random, family: int) -> None:
        Nowhere.number += 1
        self._fd = Nowhere.number
        self._rng = rng
        self._family = family
        self._peer = ("", 0)
        self.fate = rng.choice(FATES)

    def fileno(self) -> int:
        return self._fd

    def setblocking(self, blocking: bool) -> None:
        assert not blocking

    def setsockopt(self, *option: int) -> None:
        pass

    def getsockopt(self, *option: int) -> int:
        return 111 if self.fate == "late" else 0

    def bind(self, address: tuple[str, int]) -> None:
        pass

    def connect(self, address: tuple[str, int]) -> None:
        # A datagram socket sends nothing on connect, and judges addresses in the same way.
        with socket.socket(self._family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(address)
            except socket.gaierror as failure:
                if "%" in address[0]:
                    raise  # no such zone
                # The name would be looked up, which may take long.
                raise AssertionError(address) from failure
        self._peer = address
        if self.fate == "refused":
            raise ConnectionRefusedError(111, "refused")
        raise BlockingIOError

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self._fd

    def getpeername(self) -> tuple[str, int]:
        return self._peer

    def send(self, data: bytes | memoryview) -> int:
        return self._rng.randint(0, len(data))

    def recv(self, size: int) -> bytes:
        if self.fate == "rubbish":
            return self._rng.randbytes(50)
        if self._rng.randrange(3):
            raise BlockingIOError
        id = b"%040x" % self._rng.getrandbits(160)
        return PacketWriter(id, 7711).gossip(PONG, [])

    def close(self) -> None:
        pass


class NoEpoll:
    """Records which events are asked for; reports none."""

    def __init__(self) -> None:
        self.masks: dict[int, int] = {}

    def register(self, fd: int, mask: int) -> None:
        self.masks[fd] = mask

    modify = register

    def unregister(self, fd: int) -> None:
        del self.masks[fd]


class NoPoller:
    """A poller nobody waits on."""

    def __init__(self) -> None:
        self.epoll = NoEpoll()

    def ask_turn(self) -> None:
        pass


class Calls:
    """Counts calls of Python and C functions."""

    def __enter__(self) -> Calls:
        self.count = 0
        sys.setprofile(self._event)
        return self

    def _event(self, frame: FrameType, event: str, arg: object) -> None:
        if event != "return" and event != "c_return":
            self.count += 1

    def __exit__(self, *problem: object) -> None:
        sys.setprofile(None)


class Started:
    """A node that accepted the file."""

    def __init__(
        self, cluster: Cluster, poller: NoPoller, clock: MovedClock, rng: random.Random
    ) -> None:
        self.cluster = cluster
        self.clock = clock
        self.epoll = poller.epoll
        self.rng = rng
        membership = cluster.membership
        self.node = Node(
            id=cluster.packets.id,
            commands=build_table(),
            host=Host(),
            peers=membership,
            entropy=rng.randbytes,
            rng=rng,
            clock=lambda: 0,
            packets=cluster.packets,
        )
        self.bus = Bus(
            cluster.links,
            membership,
            self.node.receive,
            self.node.replication.wants_copy,
            cluster.changed,
            cluster._config,
            clock,
            Stats(),
            Log(),  # type: ignore[arg-type]
        )
        self.client = Client(1)

    def turn(self, milliseconds: int) -> None:
        """Do the periodic work of the cluster, then handle the sockets, as the engine does."""
        self.clock.time += milliseconds
        now = self.clock.time
        self.cluster.links.cron(now)
        self.cluster.membership.cron(now)
        self.node.commit()
        self.bus.flush()
        ready = list(self.epoll.masks.items())
        self.bus.tell_broken(now)
        for fd, mask in ready:
            link = self.cluster.links.by_fd.get(fd)
            if mask and link is not None and link.sock.fate != "silent":  # type: ignore[attr-defined]
                self.bus.handle(fd, mask, now)
        self.bus.flush()

    def answers(self) -> bool:
        for words in ([b"PING"], [b"HELLO"], [b"CLUSTER", b"NODES"], [b"CLUSTER", b"INFO"]):
            self.node.command(self.client, words, self.clock.time)
        self.node.commit()
        reply = b"".join(self.client.out)
        self.client.out.clear()
        return reply.startswith(b"+PONG\r\n*") and b"\r\n-" not in reply


def start(seed: int, directory: Path) -> bool:
    """Start a node on a file; return whether it served.

    Fail the test if it neither served nor refused.
    """
    rng = random.Random(seed)
    path = directory / f"nodes-{seed}.conf"
    path.write_bytes(damaged_conf(rng))
    lines = path.read_bytes().count(b"\n") + 1
    config = Config({"cluster-config-file": str(path)})
    config.cluster_failure_domain = rng.choice(["node", "host"])
    clock = MovedClock()
    poller = NoPoller()
    with Calls() as calls:
        try:
            cluster = Cluster(config, clock, Stats(), Log(), poller)  # type: ignore[arg-type]
        except ClusterError as problem:
            refusal = str(problem)
        else:
            refusal = ""
    if refusal:
        assert refusal.startswith(f"{path}: ")
        assert len(refusal) < 1000
        return False
    try:
        assert calls.count <= BASE_CALLS + LINE_CALLS * lines
        cluster._file._disk = NoWaiting()
        started = Started(cluster, poller, clock, rng)
        for turn in range(FIRST_TURNS + TURNS):
            with Calls() as calls:
                started.turn(100 if turn < FIRST_TURNS else 500)
            known = len(cluster.membership._members)
            most = BASE_CALLS + CALLS_PER_NODE * known
            assert calls.count <= most, f"turn {turn}: {calls.count} calls, {known} nodes"
            assert started.answers()
        again = parse_nodes(cluster.membership.dump_conf())
        assert again.myself.id == cluster.packets.id
    finally:
        cluster.links.close_all()
        cluster.close()
    return True


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[random.Random], None]:
    """Give the bus sockets that lead nowhere."""

    def use(rng: random.Random) -> None:
        fake = SimpleNamespace(**vars(socket))
        fake.socket = lambda family, kind: Nowhere(rng, family)
        for module in (bus_module, buslinks_module):
            monkeypatch.setattr(module, "socket", fake)

    return use


@pytest.mark.skipif(form() != "pure Python", reason="compiled code makes no calls to be counted")
@pytest.mark.timeout(1200)
@pytest.mark.slow
def test_a_node_with_a_damaged_file_says_no_or_serves_at_once(
    tmp_path: Path, nowhere: Callable[[random.Random], None]
) -> None:
    served = 0
    failures: list[str] = []
    for seed in range(SEEDS):
        nowhere(random.Random(seed))
        try:
            served += start(seed, tmp_path)
        except Exception as failure:
            failures.append(f"seed {seed}: {type(failure).__name__}: {failure}")
    assert not failures, "\n".join([f"{len(failures)} starts failed", *failures[:10]])
    assert SEEDS / 10 < served < SEEDS * 9 / 10  # the files are neither all good nor all bad
