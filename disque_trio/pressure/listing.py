"""All queues under a prefix: those keys that end in `:bound`."""

import re
from typing import Any, NamedTuple, cast

import coredis

from disque_trio.pressure.queue import background
from disque_trio.pressure.settings import Settings
from disque_trio.redis_link import Link, Script, opener

# KEYS: data, bound, closed. A key of the wrong type gives nil.
_NUMBERS = Script("""
local length = redis.pcall('LLEN', KEYS[1])
local bound = redis.pcall('GET', KEYS[2])
if type(length) == 'table' then length = false end
if type(bound) == 'table' then bound = false end
return {length, bound, redis.call('EXISTS', KEYS[3])}
""")


class Listed(NamedTuple):
    """A queue. length, bound: None if the key is of the wrong type, and bound if there is none."""

    name: str
    length: int | None
    bound: int | None
    closed: bool


async def queues(settings: Settings, client: "coredis.Redis[bytes] | None" = None) -> list[Listed]:
    """All queues under the prefix, by name. `client`: as for `PressureQueue`.

    The whole database is scanned, in steps that hold nobody up.

    Raises:
        LinkLost: Redis cannot be reached.
        RedisError: it refuses a command.
    """
    found: list[Listed] = []
    failure: Exception | None = None
    async with background() as nursery:
        try:
            found = await _queues(Link(nursery, opener(settings, client)), settings.prefix)
        except Exception as error:
            failure = error  # kept out of the nursery, which would wrap it in a group
    if failure is not None:
        raise failure
    return found


async def _queues(link: Link, prefix: str) -> list[Listed]:
    head, tail = f"{prefix}:".encode(), b":bound"
    found: list[Listed] = []
    for name in await _names(link, head, tail):
        data = head + name
        reply = await link.script(_NUMBERS, [data, data + tail, data + b":closed"], [])
        length, bound, closed = cast("list[Any]", reply)
        text = name.decode(errors="backslashreplace")
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
    return int(value) or None if value is not None and value.isdigit() else None
