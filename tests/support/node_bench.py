"""A node without a process, with a clock moved by hand and seeded random numbers."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hiredis

from disque_trio.aof.loader import Loader
from disque_trio.cluster.peers import Peers
from disque_trio.node.commands.table import build_table
from disque_trio.node.core.changes.updates import PENDING_OVERHEAD
from disque_trio.node.core.copies.copies import SHORT_OVERHEAD
from disque_trio.node.core.copies.handover import OVERHEAD as HANDOVER_OVERHEAD
from disque_trio.node.core.jobs.job import JOB_OVERHEAD
from disque_trio.node.core.jobs.uniques import counted
from disque_trio.node.core.lifecycle.job_waits import WAIT_OVERHEAD
from disque_trio.node.core.node import Node
from disque_trio.node.core.queues.group_limits import GROUP_LIMIT_OVERHEAD
from disque_trio.node.core.queues.grouping import GROUP_OVERHEAD
from disque_trio.node.core.queues.queue import QUEUE_OVERHEAD
from disque_trio.protocol.trailer import Letter
from disque_trio.respserver.client import Client
from disque_trio.respserver.host import Host
from disque_trio.respserver.slices import do_slice

START = 1_700_000_000_000  # ms
JITTER_LOW, JITTER_HIGH = -250, 249  # ms around a requeue time
GRAIN = 32  # ms by which the node may handle a job late

JOB_FIELDS = [
    b"id", b"queue", b"state", b"repl", b"ttl", b"ctime", b"delay", b"retry", b"nacks",
    b"additional-deliveries", b"nodes-delivered", b"nodes-confirmed", b"next-requeue-within",
    b"next-awake-within", b"body",
]  # fmt: skip


class SteadyJitter(random.Random):
    """Spreads every requeue time by the same ``jitter`` ms."""

    def __init__(self, seed: int, jitter: int) -> None:
        super().__init__(seed)
        self.jitter = jitter

    def random(self) -> float:
        return (self.jitter - JITTER_LOW + 0.5) / (JITTER_HIGH - JITTER_LOW + 1)


class BenchHost(Host):
    """Records what commands asked of the process."""

    def __init__(self) -> None:
        self.connected: list[Client] = []
        self.closed: list[Client] = []
        self.asked: list[tuple[object, ...]] = []
        self.wishes: list[tuple[str, Callable[[list[str]], None]]] = []
        self.limits: list[str] = []
        self.deeds: list[tuple[str, bytes, int]] = []

    def did(self, client: Client, what: str, about: bytes = b"", jobs: int = 0) -> None:
        self.deeds.append((what, about, jobs))

    def clients(self) -> list[Client]:
        return [client for client in self.connected if client not in self.closed]

    def address(self, client: Client) -> str:
        return f"10.0.0.{client.id}:7000"

    def close(self, client: Client) -> None:
        self.closed.append(client)

    def limit_reached(self, text: str) -> None:
        self.limits.append(text)

    def pause(self, milliseconds: int) -> None:
        self.asked.append(("pause", milliseconds))

    def shutdown(self, rewrite_aof: bool) -> str | None:
        if rewrite_aof:
            return "ERR Errors trying to SHUTDOWN. Check logs."
        self.asked.append(("shutdown",))
        return None

    def look_up(self, name: str, found: Callable[[list[str]], None]) -> None:
        self.wishes.append((name, found))

    def sleep(self, seconds: float) -> None:
        self.asked.append(("sleep", seconds))

    def crash(self, restart: bool, delay: int) -> None:
        self.asked.append(("crash", restart, delay))

    def reset_stats(self) -> None:
        self.asked.append(("reset_stats",))


class Bench:
    """A node, its clock and its clients.

    ``command_takes`` is the apparent duration of each command in ns.

    Args:
        jitter: ms by which every requeue time is spread, -250 to 249, or None for random.
        peers: the rest of the cluster, or None.
        id: of the node; None to make one from the seed.
    """

    def __init__(
        self,
        seed: int = 1,
        maxmemory: int = 0,
        password: bytes | None = None,
        jitter: int | None = None,
        peers: Peers | None = None,
        id: bytes | None = None,
    ) -> None:
        rng = random.Random(seed) if jitter is None else SteadyJitter(seed, jitter)
        self.now = START
        self.host = BenchHost()
        self.command_takes = 0
        self._ns = 0
        self.node = Node(
            id=id or b"%040x" % rng.getrandbits(160),
            commands=build_table(),
            host=self.host,
            peers=peers or Peers(),
            entropy=rng.randbytes,
            rng=rng,
            clock=self._clock,
            maxmemory=maxmemory,
        )
        self.node.users.require(password or b"")
        self._clients = 0
        self._pushed: dict[Client, list[list[Any]]] = {}
        self.me = self.client()

    def _clock(self) -> int:
        self._ns += self.command_takes
        return self._ns

    def client(self) -> Client:
        """A new connected client."""
        self._clients += 1
        client = Client(self._clients, self.node.users.default)
        self.host.connected.append(client)
        return client

    def disconnect(self, client: Client) -> None:
        """``client`` closes its connection."""
        self.host.connected.remove(client)
        self.node.forget_client(client)

    def send(self, client: Client, *args: bytes | str | int) -> None:
        """A request of ``client``."""
        words = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        self.node.command(client, words, self.now)

    def raw(self, client: Client) -> bytes:
        """The bytes sent to ``client`` since the last call."""
        self.node.commit()
        data = b"".join(client.out)
        client.out.clear()
        return data

    def replies(self, client: Client) -> list[object]:
        """The replies to ``client`` since the last call, without pushed messages."""
        reader = hiredis.Reader()
        reader.feed(self.raw(client))
        found: list[object] = []
        while (reply := reader.gets()) is not False:
            if isinstance(reply, hiredis.PushNotification):
                self._pushed.setdefault(client, []).append([*reply])
            else:
                found.append(reply)
        return found

    def pushes(self, client: Client) -> list[list[Any]]:
        """The messages pushed to ``client`` since the last call."""
        assert self.replies(client) == []
        return self._pushed.pop(client, [])

    def finish(self, client: Client) -> None:
        """Take turns until the command of ``client`` that runs in slices is over."""
        while client.in_slices:
            if self.node.batches.waiting:
                do_slice(self.node, self.now)
            else:
                self.node.tick(self.now)

    def ask(self, client: Client, *args: bytes | str | int) -> object:
        """The reply to a request of ``client`` that does not block."""
        self.send(client, *args)
        self.finish(client)
        replies = self.replies(client)
        assert len(replies) == 1, replies
        return replies[0]

    def __call__(self, *args: bytes | str | int) -> object:
        """The reply to a request that does not block."""
        return self.ask(self.me, *args)

    def error(self, *args: bytes | str | int) -> str:
        """The text of the error that a request must get."""
        return self.error_of(self.me, *args)

    def error_of(self, client: Client, *args: bytes | str | int) -> str:
        """The same for a request of ``client``."""
        reply = self.ask(client, *args)
        assert isinstance(reply, hiredis.ReplyError), reply
        return str(reply)

    def text(self, *args: bytes | str | int) -> str:
        """The reply, as text, to a request."""
        reply = self(*args)
        assert isinstance(reply, bytes), reply
        return reply.decode()

    def add(self, queue: str = "q", body: str = "body", *options: str | int) -> bytes:
        """ADDJOB; returns the id."""
        id = self("ADDJOB", queue, body, 0, *options)
        assert isinstance(id, bytes), id
        return id

    def get(self, *queues: str) -> bytes | None:
        """GETJOB NOHANG; returns the id or None."""
        found = self.get_all(*queues, count=1)
        return found[0] if found else None

    def get_all(self, *queues: str, count: int = 1_000_000) -> list[bytes]:
        """GETJOB NOHANG COUNT; returns the ids in the order of delivery."""
        reply = self("GETJOB", "NOHANG", "COUNT", count, "FROM", *(queues or ("q",)))
        return [] if reply is None else self.ids(reply)

    def get_with_body(self) -> tuple[bytes, bytes] | None:
        """GETJOB NOHANG; returns id and body of the next job of ``q``, or None."""
        reply = self("GETJOB", "NOHANG", "FROM", "q")
        return None if reply is None else tuple(reply[0][1:])  # type: ignore[index]

    @staticmethod
    def ids(reply: object) -> list[bytes]:
        """The ids in a reply of GETJOB or QPEEK."""
        assert isinstance(reply, list), reply
        return [entry[1] for entry in reply]

    def block(self, *queues: str, timeout: int = 0, client: Client | None = None) -> Client:
        """Make a client (by default a new one) wait for a job."""
        client = client or self.client()
        self.send(client, "GETJOB", "TIMEOUT", timeout, "FROM", *(queues or ("q",)))
        assert client.blocked
        assert client.out == []
        return client

    def make_queue(self, name: str = "q") -> None:
        """Make an empty queue: a client waits for it, and disconnects."""
        self.disconnect(self.block(name))

    def got(self, client: Client) -> bytes:
        """The id of the one job that the waiting ``client`` got."""
        assert not client.blocked
        (reply,) = self.replies(client)
        (id,) = self.ids(reply)
        return id

    def fields(self, *args: bytes | str | int) -> dict[bytes, Any]:
        """The reply to a request, from alternating names and values."""
        reply = self(*args)
        assert isinstance(reply, list), reply
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def show(self, id: bytes) -> dict[bytes, object]:
        """The fields of a job that the node holds."""
        return self.fields("SHOW", id)

    def held(self, id: bytes) -> bool:
        """Whether the node knows the job ``id``."""
        return self("SHOW", id) is not None

    def number(self, id: bytes, field: bytes) -> int:
        """A field of SHOW that is a number."""
        value = self.show(id)[field]
        assert isinstance(value, int), value
        return value

    def requeue_within(self, id: bytes) -> int | None:
        """ms until the job is requeued."""
        value = self.show(id)[b"next-requeue-within"]
        assert value is None or isinstance(value, int)
        return value

    def queue(self, name: str = "q") -> dict[bytes, object]:
        """The fields of a queue that exists."""
        return self.fields("QSTAT", name)

    def number_queued(self, name: str = "q") -> int:
        """The number of jobs in a queue."""
        queue = self.node.queues.by_name.get(name.encode())
        return 0 if queue is None else queue.length

    def info(self, section: str) -> dict[str, str]:
        """The fields of a section of INFO."""
        lines = self.text("INFO", section).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def advance(self, seconds: float) -> None:
        """Let time pass, ticking exactly when the node asks for it."""
        end = self.now + round(seconds * 1000)
        while (due := self.node.next_wake()) and due <= end:
            self._tick(max(self.now, due))
        self._tick(end)

    def _tick(self, now: int) -> None:
        self.now = now
        self.node.tick(now)
        self.node.replied()  # or notes would be due a ms later, again and again

    def evict_idle_queues(self, steps: int = 200) -> int:
        """Forget idle queues; returns their number."""
        self.node.now = self.now
        return self.node.queues.evict_idle(steps)

    def counted_memory(self) -> int:
        """The memory of the node's jobs and queues, added up one by one."""
        jobs = [len(job.body or b"") + JOB_OVERHEAD for job in self.node.store.jobs.values()]
        queues = [len(name) + QUEUE_OVERHEAD for name in self.node.queues.by_name]
        return sum(jobs) + sum(queues) + counted_extras(self.node)


def loaded_again(bench: Bench, directory: Path) -> Bench:
    """A restarted node after a kill, with the contents of the journal of ``bench``."""
    path = directory / "aof"
    path.write_bytes(b"".join(bench.node.journal))
    again = Bench(7)
    again.now = again.node.now = bench.now
    for _ in Loader(str(path), again.node, False).steps():
        pass
    return again


def counted_extras(node: Node) -> int:
    """The memory of trailers, keys, groups, waits for jobs, and jobs that are not added yet, added
    up."""
    store = node.store
    groups = [name for groups in node.limits.grouping.groups.values() for name in groups.by_name]
    held_back = [admission.job for admission in node.admissions.held.values()]
    return (
        sum(trailer.counted for trailer in store.trailers.all())
        + store.outcomes.kept.size
        + store.outcomes.cancelled.size
        + store.outcomes.index_size
        + sum(counted(entry) for entry in store.uniques.entries.values())
        + sum(JOB_OVERHEAD + len(job.body or b"") for job in held_back)
        + sum(GROUP_OVERHEAD + len(name) for name in groups)
        + sum(GROUP_LIMIT_OVERHEAD + len(group) for _, group in node.limits.of_groups.in_use)
        + PENDING_OVERHEAD * len(node.updates.pending.by_id)
        + SHORT_OVERHEAD * len(node.copies.by_id)
        + HANDOVER_OVERHEAD * (len(node.handover.under_way) + len(node.handover.in_hand))
        + sum(WAIT_OVERHEAD * len(awaited.waits) for awaited in node.job_waits._awaited.values())
    )


def letter_of(bench: Bench, id: bytes) -> Letter:
    """Return where the dead letter ``id`` says that it comes from."""
    job = bench.node.store.jobs.get(id)
    assert job is not None
    trailer = bench.node.store.trailers.of(job)
    assert trailer is not None
    assert trailer.letter is not None
    return trailer.letter
