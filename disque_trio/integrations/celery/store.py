"""Values by keys, on all nodes of a cluster: each is the body of a job that has the key as its
UNIQUE key.

Nobody takes these jobs: they are delayed until their life is over. Who asks for a value that is not
there adds its job with an empty body, and who waits for it waits for the end of a second job, the
bell (WAITJOB, at any node). Who stores a value and finds that its job was there changes the body,
and then ends the bell.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from disque_trio.client import AddManyError, ConnectionLost, NoReplError, ReplyError, replies
from disque_trio.client import Client as AsyncClient
from disque_trio.client.requests import addjob
from disque_trio.client.sync import Client
from disque_trio.client.sync.client import connect_to
from disque_trio.integrations.celery.options import CLIENTS, DAY, Access, Options
from disque_trio.integrations.express import Express
from disque_trio.resp.command import Argument

QUEUE: Final = "celery-results"
_FOR_EVER: Final = 3650 * DAY
_BELL: Final = b"?"
"""Behind a key: that of its bell."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The job of a key.

    Attributes:
        id: of the job.
        value: its body; empty: there is no value, but somebody has asked for it.
        left: its life, s.
        bell: the id of the job that ends when the value changes; empty: it was not asked for.
    """

    id: str
    value: bytes
    left: int = 0
    bell: str = ""


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
        login = access.cluster.login
        self._express = Express(lambda: self.client, login, options.add_timeout)

    @property
    def client(self) -> Client:
        """The client, which the connections of this process share."""
        if self._client is None:
            self._client = CLIENTS.take(self._access)
        return self._client

    def find(
        self, keys: Iterable[bytes], value: bytes = b"", *, bells: bool = False
    ) -> list[Entry]:
        """What the keys have, and their bells if wanted. Those that had nothing have ``value``
        now."""
        names = list(keys)
        if len(names) == 1 and not bells and (entry := self._quickly(names[0], value)):
            return [entry]
        found = self.client.run(lambda client: self._find(client, names, value, bells))
        return [entry if entry.left else self._elsewhere(entry) for entry in found]

    def _quickly(self, key: bytes, value: bytes) -> Entry | None:
        """The same for one key; None where it has to be done in another way."""
        id = self._express.ask(self._command(key, value))
        if not isinstance(id, bytes):
            return None
        fields = self._express.ask(["SHOW", id])
        if not isinstance(fields, list):
            return None
        known = dict(zip(fields[::2], fields[1::2], strict=True))
        return Entry(id.decode(), known[b"body"], max(known[b"ttl"], 1))

    def _command(self, key: bytes, value: bytes) -> list[Argument]:
        """What adds the job of a key. It lives twice as long where there is no value, which may
        come late."""
        life = self._ttl if value else 2 * self._ttl
        return addjob(
            self._queue,
            value,
            self._options.add_timeout,
            self._options.replicate,
            delay=life - 1,
            ttl=life,
            key=key,
        )

    async def _find(
        self, client: AsyncClient, keys: list[bytes], value: bytes, bells: bool
    ) -> list[Entry]:
        """The entries; one whose life is over is not on this node."""
        rung = [""] * len(keys)
        if bells:  # before the look at the values: who changes one later, ends its bell
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
        """The ids of the jobs of keys, as ``_command`` adds them. Raises the error of the first
        that is not there."""
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
        """The entry whose job only other nodes have; without a value if it has ended meanwhile."""
        nodes = self.client.hello().nodes
        cluster = self._access.cluster
        # The id of a job begins with that of the node where it was added.
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
        """Store a value, unless there is one that ``stays``."""
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
                break  # not all have it yet
            except ReplyError:
                # Not on this node, or nearly over: another one takes its place.
                self.client.ack(entry.id)
        if asked:
            self._ring(key, value)

    def _ring(self, key: bytes, value: bytes) -> None:
        async def ring(client: AsyncClient) -> None:
            [bell] = await self._add(client, [key + _BELL], b"")
            try:
                await client.ack(bell, result=value)
            except ReplyError:  # too long for a result: who waited looks for it
                await client.ack(bell)

        self.client.run(ring)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Delete the values of keys."""
        self.client.ack(*[entry.id for entry in self.find(keys)])

    def wait(self, bells: Sequence[str], timeout: float) -> dict[str, bytes | None]:
        """Wait until all the bells have ended, or the time (s) is over, and tell of those that
        have: the value, or None where it has to be looked for."""
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
