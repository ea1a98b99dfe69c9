"""The keys of a queue, and a different client."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import redis
import trio

from disque_pressure import PressureQueue
from tests.support.commands import start_command
from tests.support.harness import HANG_SECONDS
from tests.support.redis_server import RedisServer, plain_client, until


class Spot:
    """The keys of one queue, read with a plain client.

    Attributes:
        data: the key of the list.
    """

    def __init__(self, port: int, prefix: str, name: str, raw: "redis.Redis") -> None:
        self.port = port
        self.prefix = prefix
        self.name = name
        self.raw = raw
        self.data = f"{prefix}:{name}"

    def queue(self, **options: Any) -> PressureQueue:
        """A handle of the package."""
        return PressureQueue(self.name, port=self.port, prefix=self.prefix, **options)

    def key(self, suffix: str) -> str:
        """A key: "" is the list, "bound" its bound..."""
        return f"{self.data}:{suffix}" if suffix else self.data

    def keys(self) -> set[str]:
        """The suffixes of all keys that exist."""
        found = {key.decode() for key in self.raw.scan_iter(f"{self.prefix}:*", count=1000)}
        return {key[len(self.data) :].lstrip(":") for key in found}

    def values(self) -> dict[str, object]:
        """The contents of the protocol's keys: strings, and lengths of lists; for the data, its
        elements in the order in which they will be taken."""
        values: dict[str, object] = {}
        for suffix in self.keys():
            if suffix.startswith(("lease:", "held:")):
                continue
            key = self.key(suffix)
            if suffix == "":
                values["data"] = list(reversed(self.raw.lrange(key, 0, -1)))
            elif self.raw.type(key) == b"list":
                values[suffix] = self.raw.llen(key)
            else:
                values[suffix] = self.raw.get(key)
        return values

    def tokens(self) -> tuple[int, int, int, int]:
        """Lengths of producer_free, consumer_free, not_full and closed."""
        names = ("producer_free", "consumer_free", "not_full", "closed")
        lengths = [self.raw.llen(self.key(name)) for name in names]
        return lengths[0], lengths[1], lengths[2], lengths[3]


class ForeignClosed(Exception):
    """The other client found the queue closed."""


class Foreign:
    """A client that follows the protocol's pseudo-code, one command at a time.

    Methods that end in ``_steps`` are generators that stop after each command, so that a test can
    act in between or abandon them; the others run them to the end. ``log`` contains the names of
    the steps.
    """

    uid = b"foreign_pid1"

    def __init__(self, client: "redis.Redis", data: str, timeout: int = 15) -> None:
        self.client = client
        self.data = data
        self.timeout = timeout

    def _key(self, suffix: str) -> str:
        return f"{self.data}:{suffix}"

    def create(self, bound: int) -> None:
        assert self.client.setnx(self._key("bound"), bound)
        for name in ("producer_free", "consumer_free", "not_full"):
            self.client.lpush(self._key(name), 1)

    def put_steps(self, data: bytes, block: bool = True) -> Iterator[str]:
        c, key = self.client, self._key
        assert c.exists(key("bound"))
        yield "checked"
        if block:
            assert c.brpop([key("producer_free")], self.timeout), "no role"
        else:
            assert c.rpop(key("producer_free")) is not None, "in use"
        yield "popped producer_free"
        c.set(key("producer"), self.uid)
        yield "set producer"
        if c.exists(key("closed")):
            c.lpush(key("producer_free"), 0)
            raise ForeignClosed
        yield "not closed"
        if block:
            assert c.brpop([key("not_full")], self.timeout), "full"
        elif c.rpop(key("not_full")) is None:
            c.lpush(key("producer_free"), 0)
            raise AssertionError("full")
        yield "popped not_full"
        length = c.lpush(self.data, data)
        yield "pushed"
        bound = int(c.get(key("bound")) or 0)
        if bound == 0 or length < bound:
            c.lpush(key("not_full"), 0)
            yield "pushed not_full"
            c.ltrim(key("not_full"), 0, 0)
        yield "not_full is right"
        c.incr(key("stats:produced_messages"))
        c.incrby(key("stats:produced_bytes"), len(data))
        yield "counted"
        c.lpush(key("producer_free"), 0)
        yield "gave back"

    def get_steps(self, block: bool = True) -> Iterator[str | bytes]:
        c, key = self.client, self._key
        assert c.exists(key("bound"))
        yield "checked"
        if block:
            assert c.brpop([key("consumer_free")], self.timeout), "no role"
        else:
            assert c.rpop(key("consumer_free")) is not None, "in use"
        yield "popped consumer_free"
        c.set(key("consumer"), self.uid)
        yield "set consumer"
        if c.exists(key("closed")) and c.llen(self.data) == 0:
            c.lpush(key("consumer_free"), 0)
            raise ForeignClosed
        if block:
            found = c.brpop([self.data, key("closed")], self.timeout)
            assert found, "empty"
            if found[0].decode() == key("closed"):
                c.lpush(key("consumer_free"), 0)
                raise ForeignClosed
            data = found[1]
        else:
            data = c.rpop(self.data)
            if data is None:
                c.lpush(key("consumer_free"), 0)
                raise AssertionError("empty")
        yield "popped"
        c.lpush(key("not_full"), 0)
        yield "pushed not_full"
        c.ltrim(key("not_full"), 0, 0)
        yield "trimmed not_full"
        c.incr(key("stats:consumed_messages"))
        c.incrby(key("stats:consumed_bytes"), len(data))
        yield "counted"
        c.lpush(key("consumer_free"), 0)
        yield "gave back"
        yield data

    def close_steps(self) -> Iterator[str]:
        c, key = self.client, self._key
        assert c.exists(key("bound"))
        assert c.brpop([key("producer_free")], self.timeout), "no role"
        yield "popped producer_free"
        c.set(key("producer"), self.uid)
        if c.exists(key("closed")):
            c.lpush(key("producer_free"), 0)
            raise ForeignClosed
        c.lpush(key("closed"), 0, 0)
        yield "pushed closed"
        c.lpush(key("producer_free"), 0)
        yield "gave back"

    def delete_steps(self) -> Iterator[str]:
        c, key = self.client, self._key
        assert c.exists(key("bound"))
        c.delete(key("bound"))
        yield "deleted bound"
        c.lpush(key("not_full"), 0)
        c.lpush(key("closed"), 0, 0)
        yield "woke all"
        for role in ("producer", "consumer"):
            assert c.brpop([key(f"{role}_free")], self.timeout), "in use"
            yield f"popped {role}_free"
            c.delete(key(role), key(f"{role}_free"))
        c.delete(key("not_full"), key("closed"))
        for name in ("produced_messages", "produced_bytes", "consumed_messages", "consumed_bytes"):
            c.delete(key(f"stats:{name}"))
        c.delete(self.data)
        yield "gone"

    def put(self, data: bytes, block: bool = True) -> None:
        run(self.put_steps(data, block))

    def get(self, block: bool = True) -> bytes:
        data = run(self.get_steps(block))
        assert isinstance(data, bytes)
        return data

    def close(self) -> None:
        run(self.close_steps())

    def delete(self) -> None:
        run(self.delete_steps())


def run(steps: Iterator[Any]) -> object:
    """Run all steps; returns the last value."""
    with closing(steps):  # type: ignore[type-var]
        every = list(steps)
    return every[-1]


def upto(steps: Iterator[Any], step: str) -> None:
    """Run the steps up to this one."""
    for name in steps:
        if name == step:
            return
    raise AssertionError(f"there is no step {step!r}")


async def blocked(raw: "redis.Redis", clients: int = 1) -> None:
    """Wait until Redis blocks ``clients`` connections, all of this test."""
    await until(lambda: sum("b" in row["flags"] for row in raw.client_list()) >= clients)


async def settled(servers: list[RedisServer]) -> None:
    """Wait until the nodes know each other and serve all slots."""

    def is_well(server: RedisServer) -> bool:
        with plain_client(server.port) as client:
            info = client.execute_command("CLUSTER INFO")
            text = info.decode() if isinstance(info, bytes) else str(info)
            return "cluster_state:ok" in text or "'cluster_state': 'ok'" in text

    for server in servers:
        await until(lambda server=server: is_well(server))


class Child:
    """A Python process that communicates in lines."""

    uid = ""

    def __init__(self, source: str, *arguments: object) -> None:
        self.process = start_command(
            "python -c",
            source,
            *map(str, arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    async def line(self) -> str:
        """The next line it writes."""
        out = self.process.stdout
        assert out is not None
        return (
            (await trio.to_thread.run_sync(out.readline, abandon_on_cancel=True)).decode().strip()
        )

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self.process.kill()
        self.close()

    def wait(self, seconds: float = HANG_SECONDS) -> int:
        """Its exit status."""
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(HANG_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
