"""Values by keys, on all nodes of a cluster: each is the body of a job with that UNIQUE key.

Nobody takes these jobs, since they are delayed until their life is over. A reader that finds no
value adds its job with an empty body. To wait for a value, it waits for the end of a second job,
the bell (WAITJOB, at any node). A writer that finds that the job already exists changes its body,
and then ends the bell.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from disque_integrations.celery.options import CLIENTS, DAY, Access, TransportOptions
from disque_integrations.express import Express
from disque_trio.client import AddManyError, ConnectionLost, NoReplError, ReplyError, replies
from disque_trio.client import Client as AsyncClient
from disque_trio.client.requests import addjob
from disque_trio.client.sync import Client
from disque_trio.client.sync.client import connect_to
from disque_trio.resp.command import Argument

QUEUE: Final = "celery-results"
_FOR_EVER: Final = 3650 * DAY
_BELL: Final = b"?"
"""Suffix of a key, for its bell."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The job of a key.

    Attributes:
        id: the id of the job.
        value: its body; empty: there is no value, but somebody has asked for it.
        left: its remaining life in seconds.
        bell: the id of the job that ends when the value changes; empty if not requested.
    """

    id: str
    value: bytes
    left: int = 0
    bell: str = ""


class Store:
    """The values of a cluster. Its methods raise ``DisqueError``.

    Args:
        access: the cluster.
        options: used are ``queue_prefix``, ``replicate`` and ``add_timeout``.
        expires: how long a value lives, in seconds; None or 0: ten years.
    """

    def __init__(self, access: Access, options: TransportOptions, expires: float | None) -> None:
        self._access = access
        self._options = options
        self._queue = options.queue_prefix + QUEUE
        self._ttl = max(int(expires or _FOR_EVER), 2)
        self._client: Client | None = None
        login = access.cluster.login
        self._express = Express(lambda: self.client, login, options.add_timeout)

    @property
    def client(self) -> Client:
        """The client, shared with the connections of this process."""
        if self._client is None:
            self._client = CLIENTS.take(self._access)
        return self._client

    def find(
        self, keys: Iterable[bytes], value: bytes = b"", *, bells: bool = False
    ) -> list[Entry]:
        """Return the entries of the keys, with bells if requested. Keys without a value get
        ``value``."""
        names = list(keys)
        if len(names) == 1 and not bells and (entry := self._quickly(names[0], value)):
            return [entry]
        found = self.client.run(lambda client: self._find(client, names, value, bells))
        return [entry if entry.left else self._elsewhere(entry) for entry in found]

    def _quickly(self, key: bytes, value: bytes) -> Entry | None:
        """Like ``find`` for one key. None if it has to be done in another way."""
        id = self._express.ask(self._queue, self._command(key, value))
        if not isinstance(id, bytes):
            return None
        fields = self._express.ask(self._queue, ["SHOW", id])
        if not isinstance(fields, list):
            return None
        known = dict(zip(fields[::2], fields[1::2], strict=True))
        return Entry(id.decode(), known[b"body"], max(known[b"ttl"], 1))

    def _command(self, key: bytes, value: bytes) -> list[Argument]:
        """Return the command that adds the job of a key. Without a value the job lives twice as
        long, since the value may come late."""
        life = self._ttl if value else 2 * self._ttl
        return addjob(
            self._queue,
            value,
            self._options.add_timeout,
            replicate=self._options.replicate,
            delay=life - 1,
            ttl=life,
            key=key,
        )

    async def _find(
        self, client: AsyncClient, keys: list[bytes], value: bytes, bells: bool
    ) -> list[Entry]:
        """Return the entries. If ``left`` is 0, the job is not on this node."""
        rung = [""] * len(keys)
        if bells:  # before reading values: whoever changes a value later ends its bell
            rung = await self._add(client, [key + _BELL for key in keys], b"")
        ids = await self._add(client, keys, value)
        entries: dict[str, Entry] = {}

        async def show(id: str, bell: str) -> None:
            entries[id] = _entry(id, bell, await client.show(id))

        async with trio.open_nursery() as nursery:
            for id, bell in zip(ids, rung, strict=True):
                nursery.start_soon(show, id, bell)
        return [entries[id] for id in ids]

    async def _add(self, client: AsyncClient, keys: list[bytes], value: bytes) -> list[str]:
        """Add the jobs of keys, as ``_command`` does, and return their ids. Raises the error of the
        first one that was not added."""
        life = self._ttl if value else 2 * self._ttl
        try:
            return await client.add_many(
                self._queue,
                [value] * len(keys),
                unique=keys,
                ttl=life,
                delay=life - 1,
                replicate=self._options.replicate,
                timeout=self._options.add_timeout,
            )
        except AddManyError as error:
            raise error.first from None

    def _elsewhere(self, entry: Entry) -> Entry:
        """Return an entry that is only on other nodes; without a value if it has ended by now."""
        nodes = self.client.hello().nodes
        cluster = self._access.cluster
        # The id of a job contains that of the node where it was added.
        for node in sorted(nodes, key=lambda node: not node.id.startswith(entry.id[2:10])):
            try:
                with connect_to(cluster.only(str(node.address)), 0) as client:
                    found = _entry(entry.id, entry.bell, client.show(entry.id))
            except ConnectionLost:
                continue
            if found.left:
                return found
        return entry

    def put(self, key: bytes, value: bytes, stays: Callable[[bytes], bool]) -> None:
        """Store a value, unless there is one for which ``stays`` is true."""
        asked = False
        while True:
            [entry] = self.find([key], value)
            if entry.value == value:
                break
            if entry.value and stays(entry.value):
                return
            asked = True
            life = min(self._ttl, entry.left)
            try:
                self.client.update(entry.id, body=value, ttl=life, delay=max(life - 1, 0))
                break
            except NoReplError:
                break  # not all nodes have it yet
            except ReplyError:
                # It is not on this node, or nearly over: replace it.
                self.client.ack(entry.id)
        if asked:
            self._ring(key, value)

    def _ring(self, key: bytes, value: bytes) -> None:
        async def ring(client: AsyncClient) -> None:
            [bell] = await self._add(client, [key + _BELL], b"")
            try:
                await client.ack(bell, result=value)
            except ReplyError:  # too long for a result: those who waited will look for it
                await client.ack(bell)

        self.client.run(ring)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Delete the values of keys."""
        self.client.ack(*[entry.id for entry in self.find(keys)])

    def wait(self, bells: Sequence[str], timeout: float) -> dict[str, bytes | None]:
        """Wait until all bells have ended, for at most ``timeout`` s. Return those that have, with
        the value, or None if it has to be looked up."""
        return {
            job.id: job.result
            for job in self.client.wait(bells, timeout=timeout)
            if job.state != "pending"
        }


def _entry(id: str, bell: str, record: replies.Record | None) -> Entry:
    if record is None:
        return Entry(id, b"", 0, bell)
    value, left = record["body"], record["ttl"]
    assert isinstance(value, bytes)
    assert isinstance(left, int)
    return Entry(id, value, max(left, 1), bell)
