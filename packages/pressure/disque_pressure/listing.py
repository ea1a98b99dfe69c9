"""Lists all queues under a prefix, found by their keys that end in ``:bound``."""

import re
from typing import Any, NamedTuple, cast

from disque_pressure.settings import Client, Settings, servers
from disque_trio.notation.addresses import Address
from disque_trio.redis.connection import Open, RedisConnection
from disque_trio.redis.errors import RedisError
from disque_trio.redis.script import Script
from disque_trio.respclient.background import background
from disque_trio.respclient.concurrency import Nursery
from disque_trio.respclient.connection import Connection

# KEYS: data, bound, closed. A key of the wrong type yields nil.
_NUMBERS = Script(
    """
local length = redis.pcall('LLEN', KEYS[1])
local bound = redis.pcall('GET', KEYS[2])
if type(length) == 'table' then length = false end
if type(bound) == 'table' then bound = false end
return {length, bound, redis.call('EXISTS', KEYS[3])}
""",
    "pressure_list",
)


class Listed(NamedTuple):
    """A queue. ``length`` and ``bound`` are None if their key has the wrong type, or if the keys
    are on several nodes; ``bound`` also if the queue has none."""

    name: str
    length: int | None
    bound: int | None
    closed: bool


async def queues(
    settings: Settings, client: Client | None = None, *, cluster: bool = False
) -> list[Listed]:
    """Return all queues under the prefix, by name.

    Scans the whole database, in small steps that do not block Redis.

    Args:
        client: as for ``PressureQueue``.
        cluster: whether to ask all nodes that serve slots, instead of only the given one.

    Raises:
        RedisUnavailable: Redis cannot be reached.
        RedisError: Redis refuses a command.
    """
    found: list[Listed] = []
    open_ = servers(settings, client).connect
    async with background() as nursery:
        connections = [RedisConnection(nursery, open_)]
        if cluster:
            connections = await _nodes(nursery, connections[0], open_)
        for redis in connections:
            found += await _queues(redis, settings.prefix)
    # A queue that moves to another node meanwhile may be seen on both.
    return sorted({entry.name: entry for entry in found}.values())


async def _nodes(nursery: Nursery, redis: RedisConnection, open_: Open) -> list[RedisConnection]:
    """Connect to each node of the cluster that serves slots."""
    reply = cast("list[list[Any]]", await redis.command(b"CLUSTER", b"SLOTS"))
    here = redis.host
    places = {((primary[0] or b"").decode() or here, primary[1]) for _, _, primary, *_ in reply}
    return [RedisConnection(nursery, _to(place, open_)) for place in sorted(places)]


def _to(place: tuple[str, int], open_: Open) -> Open:
    async def there(nursery: Nursery, node: Address | None, seconds: float) -> Connection:
        return await open_(nursery, node or Address(*place), seconds)

    return there


async def _queues(redis: RedisConnection, prefix: str) -> list[Listed]:
    head, tail = f"{prefix}:".encode(), b":bound"
    found: list[Listed] = []
    for name in await _names(redis, head, tail):
        data = head + name
        text = name.decode(errors="backslashreplace")
        try:
            reply = await redis.script(_NUMBERS, [data, data + tail, data + b":closed"], [])
        except RedisError as error:
            if error.code != "CROSSSLOT":
                raise
            found.append(Listed(text, None, None, False))
            continue
        length, bound, closed = cast("list[Any]", reply)
        found.append(Listed(text, length, _bound(bound), bool(closed)))
    return found


async def _names(redis: RedisConnection, head: bytes, tail: bytes) -> list[bytes]:
    # Escape the prefix, which may contain glob characters.
    pattern = re.sub(rb"([*?\[\]\\^])", rb"\\\1", head) + b"?*" + tail
    names: set[bytes] = set()
    cursor = b"0"
    while True:
        reply = await redis.command(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", 1000)
        cursor, keys = cast("tuple[bytes, list[bytes]]", reply)
        names.update(key[len(head) : -len(tail)] for key in keys)
        if cursor == b"0":
            return sorted(names)


def _bound(value: bytes | None) -> int | None:
    if value is None or len(value) > 18 or not value.isdigit():
        return None
    return int(value) or None
