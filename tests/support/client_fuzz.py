"""Clients of two nodes that send requests by the grammar of the command table."""

import random
from collections import deque
from typing import Final

import hiredis

from disque_trio.config import Config, ConfigError
from disque_trio.node.core.node import Node
from disque_trio.respserver.client import REPLY_ON, Client
from disque_trio.respserver.slices import do_slice
from tests.support.bus_fuzz import dumped
from tests.support.client_grammar import Grammar, World
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

CLIENTS: Final = 8
LONGEST_WAIT: Final = 40  # turns until a client that waits disconnects
STAYS: Final = 300  # requests of a client
OFTEN: Final = {
    # Nodes should have jobs, in all states, and clients that get them.
    "addjob": 400,
    **dict.fromkeys(("getjob", "consume", "hello", "working", "nack", "exec"), 50),
    **dict.fromkeys(("fastack", "deljob", "ackjob", "cancel", "qpurge", "credit", "discard"), 8),
    **dict.fromkeys(
        ("watch", "unwatch", "select", "loadjob", "bgrewriteaof", "slowlog", "latency", "echo",
         "time", "command", "ping"),
        4,
    ),
    # These end connections, or change what all others may do.
    **dict.fromkeys(
        ("debug", "quit", "reset", "auth", "acl", "shutdown", "restart", "monitor", "config",
         "cluster"),
        2,
    ),
}  # fmt: skip
"""How often commands come, if not as others."""
IDS: Final = 60
MAXMEMORY: Final = 3_000_000
EVERYTHING: Final = (b"reset", b"on", b"nopass", b"~*", b"&*", b"+@all")
USERS: Final = {
    b"limited": (
        *EVERYTHING, b"%maxmemory=200kb", b"%maxkeys=20", b"%maxschedules=5", b"%maxbindings=5",
        b"%maxconnections=3", b"%maxoutput=50kb", b"%rate=1000/s",
    ),
    b"mailer": (b"reset", b"on", b"nopass", b"~mail.*", b"%R~q", b"+@all", b"-@dangerous"),
    b"reader": (b"reset", b"on", b"nopass", b"%R~*", b"+@read", b"(+addjob %W~mail.*)"),
}  # fmt: skip
TROUBLES: Final = (  # loading, why nothing can be written, why nothing may be added, lagging
    (False, "a broken disk", "", False), (False, "", "a full disk", False),
    (False, "", "", True), (True, "", "", False),
)  # fmt: skip


class Seat:
    """A client of a node, which is replaced when it has gone."""

    def __init__(self, bench: Bench, client: Client) -> None:
        self.bench = bench
        self.client = client
        self.reader = hiredis.Reader(replyError=lambda text: text)
        self.requests = 0
        self.waited = 0


class Crowd:
    """The clients, and the two nodes.

    Attributes:
        sent: bytes. commands: how many.
        refused: how many replies were errors. served: all others.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.mesh = Mesh(2, seed=seed + 2, maxmemory=MAXMEMORY)
        self.world = World(settings=list(Config.table), commands=list(self.mesh[0].node.commands))
        self.grammar = Grammar(self.mesh[0].node.commands, self.world, self.rng, OFTEN)
        self.sent = self.commands = self.refused = self.served = 0
        self._ids: deque[bytes] = deque(maxlen=IDS)
        self.world.ids = self._ids
        for bench in self.mesh.nodes:
            bench.node.replicas.default_copies = 2
            bench.node.journaling = bench.node.notes.eventing = True
            _equip(bench, self.rng)
        self.restore()
        self.seats = [self._seat() for _ in range(CLIENTS)]

    def _seat(self) -> Seat:
        bench = self.rng.choice(self.mesh.nodes)
        seat = Seat(bench, bench.client())
        if self.rng.random() < 0.3:
            bench.send(seat.client, "HELLO", 3)
        if self.rng.random() < 0.2:
            bench.send(seat.client, "AUTH", self.rng.choice(list(USERS)), "x")
        return seat

    def turn(self) -> None:
        """A few clients send a request each."""
        rng = self.rng
        for at in rng.sample(range(CLIENTS), rng.choice((1, 1, 2, 5))):
            self._serve(at)
        if rng.random() < 0.3:
            self.mesh.settle()
        if rng.random() < 0.02:
            self.restore()
        if rng.random() < 0.003:
            self._disturb()
        if rng.random() < 0.1:
            self.advance(rng.choice((0.001, 0.05, 0.5, 3.0)))
        self._slices()
        for at, seat in enumerate(self.seats):
            self._read(seat)
            if self._has_gone(seat):
                self._leave(seat)
                self.seats[at] = self._seat()

    def advance(self, seconds: float) -> None:
        """Let time pass, and do what is left of commands about many ids."""
        self._slices()
        self.mesh.advance(seconds)
        for bench in self.mesh.nodes:
            bench.node.cron(bench.now)
        self._slices()

    def _disturb(self) -> None:
        """Part the nodes, or let something be wrong with the file of one, until ``restore``."""
        if self.rng.random() < 0.5:
            self.mesh.cut(0, 1)
        else:
            self.rng.choice(self.mesh.nodes).node.set_trouble(*self.rng.choice(TROUBLES))

    def empty(self) -> None:
        """All clients leave, and what they have made is removed."""
        for seat in self.seats:
            self._leave(seat)
        self.advance(1)
        self.restore()
        for bench in self.mesh.nodes:
            client = bench.client()
            for policy in bench.node.policies.all():
                bench.send(client, "QDEL", policy.name)
            for binding in bench.node.topics.bindings.all():
                bench.send(client, "UNBIND", binding.topic, binding.queue)
            for schedule in bench.node.ticks.schedules.all():
                bench.send(client, "CRON", "DEL", schedule.name)
            bench.send(client, "DEBUG", "FLUSHALL")
            self.mesh.settle()
            bench.disconnect(client)
        self.advance(5)
        for bench in self.mesh.nodes:
            assert bench("DEBUG", "FLUSHALL") == b"OK"  # once more: packets brought jobs back
            bench.now += 600_000
        self.advance(1)
        for bench in self.mesh.nodes:
            while bench.evict_idle_queues(1000):
                pass

    def restore(self) -> None:
        """End all troubles: the nodes know each other and take jobs, and users may do what they
        should."""
        if self.mesh.peers[0].away:
            self.mesh.join(0, 1)
        for bench in self.mesh.nodes:
            bench.node.set_leaving(False)
            bench.node.set_trouble(False, "")
            bench.node.users.set(b"default", EVERYTHING)
            for name, rules in USERS.items():
                bench.node.users.set(name, rules)

    def _serve(self, at: int) -> None:
        seat = self.seats[at]
        client = seat.client
        words = self.grammar.request()
        if client.group is None and words[0] in (b"exec", b"discard") and self.rng.random() < 0.9:
            return
        if client.group is not None and self.rng.random() < 0.2:
            words = [self.rng.choice((b"exec", b"exec", b"exec", b"discard"))]
        if [word.lower() for word in words[:2]] == [b"cluster", b"reset"]:
            return  # a node with another id would be a stranger to the mesh
        overlaps = client.in_flight and not client.in_slices
        if client.waits_for or client.in_slices:
            return
        if overlaps and not seat.bench.node.may_overlap(words):
            return
        self.world.clients = [seat.client.id for seat in self.seats]
        self.world.now = seat.bench.now
        self.sent += sum(len(word) + 8 for word in words)
        self.commands += 1
        seat.requests += 1
        seat.bench.node.command(client, words, seat.bench.now)
        node = seat.bench.node
        if node.flushed:  # the process begins a new file; what followed in a slice is in it
            node.journal[:] = [dumped(node)]
            node.flushed = False
        if not seat.bench.node.users.default.unrestricted:
            self.restore()

    def _slices(self) -> None:
        for bench in self.mesh.nodes:
            while bench.node.batches.waiting:
                do_slice(bench.node, bench.now)
        self.mesh.settle()

    def _read(self, seat: Seat) -> None:
        """Parse the replies: they are all RESP."""
        seat.bench.node.commit()
        if not seat.client.out:
            return
        data = b"".join(seat.client.out)
        seat.client.out.clear()
        seat.reader.feed(data)
        while (reply := seat.reader.gets()) is not False:
            if isinstance(reply, str):
                assert "internal error" not in reply, reply
                self.refused += 1
            else:
                self.served += 1
            self._note(reply)

    def _note(self, reply: object) -> None:
        """Remember the ids of jobs in a reply."""
        if isinstance(reply, bytes) and reply[:2] == b"D-" and len(reply) == 40:
            self._ids.append(reply)
        elif isinstance(reply, list):
            for part in reply[:10]:
                self._note(part)

    def _has_gone(self, seat: Seat) -> bool:
        client = seat.client
        seat.waited = seat.waited + 1 if client.blocked else 0
        silent = client.reply_mode != REPLY_ON or client.monitor
        return (
            client.close
            or client in seat.bench.host.closed
            or seat.waited > LONGEST_WAIT
            or seat.requests > (STAYS // 10 if silent or not client.unrestricted else STAYS)
        )

    def _leave(self, seat: Seat) -> None:
        bench = seat.bench
        self._slices()
        self._read(seat)
        assert not seat.client.in_slices
        bench.disconnect(seat.client)
        if seat.client in bench.host.closed:
            bench.host.closed.remove(seat.client)


def _equip(bench: Bench, rng: random.Random) -> None:
    """Give the node what a process has: settings, and random bytes."""
    config = Config()
    host = bench.host

    def config_set(pairs: list[tuple[bytes, bytes]], client: Client | None = None) -> str | None:
        try:
            config.config_set(pairs)
        except ConfigError as failure:
            return str(failure)
        return None

    host.config_get = config.config_get  # type: ignore[method-assign]
    host.config_set = config_set  # type: ignore[method-assign]
    host.entropy = rng.randbytes  # type: ignore[method-assign]
    host.ip = lambda client: f"10.0.0.{client.id % 250}"  # type: ignore[method-assign]


def left(node: Node) -> dict[str, int]:
    """What a node without clients, jobs and changes must have none of."""
    found = {
        "memory": node.memory.used,
        "jobs": len(node.store.jobs),
        "queues": len(node.queues.by_name),
        "blocked clients": node.blocked_clients,
        "monitors": len(node.monitors),
        "answered": len(node.answered),
        "batches": len(node.batches.waiting),
    }
    return {name: count for name, count in found.items() if count}
