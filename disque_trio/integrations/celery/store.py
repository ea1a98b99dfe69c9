"""Values by keys, on all nodes of a cluster: each is the body of a job that has the key as its
UNIQUE key.

Nobody takes these jobs: they are delayed until their life is over. Where a value changes, its job
is acknowledged, with the new value as its result, and another one takes its place. So who waits for
a value waits for the end of the job that has the old one (WAITJOB), at any node.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from disque_trio.client import Client as AsyncClient
from disque_trio.client import ConnectionLost, ReplyError, replies
from disque_trio.client.sync import Client, connect
from disque_trio.integrations.celery.options import CLIENTS, DAY, Access, Options

QUEUE: Final = "celery-results"
_FOR_EVER: Final = 3650 * DAY


@dataclass(frozen=True, slots=True)
class Entry:
    """The job that has the value of a key now.

    Attributes:
        id: of the job.
        value: its body; empty: there is no value, and somebody has asked for it.
    """

    id: str
    value: bytes


class Store:
    """The values of a cluster. Its methods raise ``DisqueError``.

    Args:
        access: to the cluster.
        options: ``queue_prefix``, ``replicate`` and ``add_timeout`` are of interest here.
        expires: how long a value lives, s; None or 0: ten years.
    """

    def __init__(self, access: Access, options: Options, expires: float | None) -> None:
        self._access = access
        self._options = options
        self._queue = options.queue_prefix + QUEUE
        self._ttl = max(int(expires or _FOR_EVER), 2)
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The client, which the connections of this process share."""
        if self._client is None:
            self._client = CLIENTS.take(self._access)
        return self._client

    def find(self, keys: Iterable[bytes], value: bytes = b"") -> list[Entry]:
        """What the keys have. Those that had nothing have ``value`` now."""
        names = list(keys)
        found = self.client.run(lambda client: self._find(client, names, value))
        return [Entry(id, self._elsewhere(id) if body is None else body) for id, body in found]

    async def _find(
        self, client: AsyncClient, keys: list[bytes], value: bytes
    ) -> list[tuple[str, bytes | None]]:
        """The ids and bodies; None where the node does not have the job."""
        ids = await client.add_many(
            self._queue,
            [value] * len(keys),
            unique=keys,
            ttl=self._ttl,
            delay=self._ttl - 1,
            replicate=self._options.replicate,
            timeout=self._options.add_timeout,
        )
        bodies: dict[str, bytes | None] = {}

        async def show(id: str) -> None:
            bodies[id] = _body(await client.show(id))

        async with trio.open_nursery() as nursery:
            for id in ids:
                nursery.start_soon(show, id)
        return [(id, bodies[id]) for id in ids]

    def _elsewhere(self, id: str) -> bytes:
        """The body of a job that only other nodes have; empty if it has ended meanwhile."""
        nodes = self.client.hello().nodes
        password = self._access.cluster.password
        # The id of a job begins with that of the node where it was added.
        for node in sorted(nodes, key=lambda node: not node.id.startswith(id[2:10])):
            try:
                with connect([str(node.address)], password=password, retry_for=0) as client:
                    body = _body(client.show(id))
            except ConnectionLost:
                continue
            if body is not None:
                return body
        return b""

    def put(self, key: bytes, value: bytes, stays: Callable[[bytes], bool]) -> None:
        """Store a value, unless there is one that ``stays``."""
        while True:
            [entry] = self.find([key], value)
            if entry.value == value or (entry.value and stays(entry.value)):
                return
            try:
                self.client.ack(entry.id, result=value)
            except ReplyError:  # too long for a result: who waits for it finds it
                self.client.ack(entry.id)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Delete the values of keys."""
        self.client.ack(*[entry.id for entry in self.find(keys)])

    def wait(self, ids: Sequence[str], timeout: float) -> dict[str, bytes | None]:
        """Wait until all the jobs have ended, or the time (s) is over, and tell of those that
        have: the next value, or None where it has to be looked for."""
        return {
            job.id: job.result
            for job in self.client.wait(ids, timeout=timeout)
            if job.state != "pending"
        }


def _body(record: replies.Record | None) -> bytes | None:
    body = None if record is None else record["body"]
    return body if isinstance(body, bytes) else None
