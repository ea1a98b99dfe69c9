"""All queues under a prefix: those keys that end in `:bound`."""

import re
from typing import Any, NamedTuple, cast

import trio
from coredis.client import Client
from coredis.connection import BaseConnection, TCPLocation
from coredis.exceptions import ClusterCrossSlotError

from disque_trio.pressure.settings import Settings
from disque_trio.pressure.tasks import background
from disque_trio.redis_link import Link, Open, Script, opener

# KEYS: data, bound, closed. A key of the wrong type gives nil.
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
    """A queue. length, bound: None if the key is of the wrong type, or the keys are on several
    nodes; bound also if there is none."""

    name: str
    length: int | None
    bound: int | None
    closed: bool


async def queues(
    settings: Settings, client: "Client[Any] | None" = None, *, cluster: bool = False
) -> list[Listed]:
    """All queues under the prefix, by name.

    The whole database is scanned, in steps that hold nobody up.

    Args:
        client: as for `PressureQueue`.
        cluster: ask all nodes that serve slots, not only the one that was named.

    Raises:
        LinkLost: Redis cannot be reached.
        RedisError: it refuses a command.
    """
    found: list[Listed] = []
    failure: Exception | None = None
    open_ = opener(settings, client)
    async with background() as nursery:
        try:
            links = [Link(nursery, open_)]
            if cluster:
                links = await _nodes(nursery, links[0], open_)
            for link in links:
                found += await _queues(link, settings.prefix)
        except Exception as error:
            failure = error  # kept out of the nursery, which would wrap it in a group
    if failure is not None:
        raise failure
    # A queue that moves to another node meanwhile is seen on both.
    return sorted({entry.name: entry for entry in found}.values())


async def _nodes(nursery: trio.Nursery, link: Link, open_: Open) -> list[Link]:
    """A link to each node of the cluster that serves slots."""
    reply = cast("list[list[Any]]", await link.command(b"CLUSTER", b"SLOTS"))
    here = link.host
    places = {(primary[0] or here, primary[1]) for _, _, primary, *_ in reply}
    return [Link(nursery, _to(place, open_)) for place in sorted(places)]


def _to(place: tuple[bytes, int], open_: Open) -> Open:
    host, port = place

    async def there(location: TCPLocation | None) -> BaseConnection:
        return await open_(location or TCPLocation(host.decode(), port))

    return there


async def _queues(link: Link, prefix: str) -> list[Listed]:
    head, tail = f"{prefix}:".encode(), b":bound"
    found: list[Listed] = []
    for name in await _names(link, head, tail):
        data = head + name
        text = name.decode(errors="backslashreplace")
        try:
            reply = await link.script(_NUMBERS, [data, data + tail, data + b":closed"], [])
        except ClusterCrossSlotError:
            found.append(Listed(text, None, None, False))
            continue
        length, bound, closed = cast("list[Any]", reply)
        found.append(Listed(text, length, _bound(bound), bool(closed)))
    return found


async def _names(link: Link, head: bytes, tail: bytes) -> list[bytes]:
    # Glob characters of the prefix are meant as they are.
    pattern = re.sub(rb"([*?\[\]\\^])", rb"\\\1", head) + b"?*" + tail
    names: set[bytes] = set()
    cursor = b"0"
    while True:
        reply = await link.command(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", 1000)
        cursor, keys = cast("tuple[bytes, list[bytes]]", reply)
        names.update(key[len(head) : -len(tail)] for key in keys)
        if cursor == b"0":
            return sorted(names)


def _bound(value: bytes | None) -> int | None:
    if value is None or len(value) > 18 or not value.isdigit():
        return None
    return int(value) or None
