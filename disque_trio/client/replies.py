"""From RESP replies to Python values.

Owns what each kind of reply turns into. All functions raise `ProtocolError` on another shape, so
that a peer that is no Disque node is reported as such and not as a TypeError somewhere.
"""

from typing import NoReturn, TypeAlias

from disque_trio.client.connection import Reply
from disque_trio.client.errors import ProtocolError
from disque_trio.client.jobs import Job

Record: TypeAlias = dict[str, int | str | bytes | list[str] | None]
"""Fields of SHOW or QSTAT by name; only `body` is bytes."""


def _unexpected(reply: Reply) -> NoReturn:
    raise ProtocolError(f"unexpected reply: {reply!r:.200}")


def text(reply: Reply) -> str:
    """A string as str; bytes that are not UTF-8 become surrogate escapes."""
    if not isinstance(reply, bytes):
        _unexpected(reply)
    return reply.decode("utf-8", "surrogateescape")


def integer(reply: Reply) -> int:
    """An integer."""
    if not isinstance(reply, int):
        _unexpected(reply)
    return reply


def record(reply: Reply) -> Record | None:
    """A flat array of names and values; None for a null."""
    if reply is None:
        return None
    if not isinstance(reply, list) or len(reply) % 2:
        _unexpected(reply)
    fields: Record = {}
    for key, value in zip(reply[::2], reply[1::2], strict=True):
        name = text(key)
        if isinstance(value, list):
            fields[name] = [text(element) for element in value]
        elif isinstance(value, bytes):
            fields[name] = value if name == "body" else text(value)
        elif value is None or isinstance(value, int):
            fields[name] = value
        else:
            _unexpected(value)
    return fields


def jobs(reply: Reply) -> list[Job]:
    """GETJOB's or QPEEK's array of jobs; a null is none."""
    if reply is None:
        return []
    if not isinstance(reply, list):
        _unexpected(reply)
    return [_job(entry) for entry in reply]


def _job(entry: Reply) -> Job:
    if not isinstance(entry, list) or len(entry) < 3 or not isinstance(entry[2], bytes):
        _unexpected(entry)
    queue, id, body, *rest = entry
    assert isinstance(body, bytes)
    counters = record(rest) or {}
    nacks, deliveries = counters.get("nacks", 0), counters.get("additional-deliveries", 0)
    if not isinstance(nacks, int) or not isinstance(deliveries, int):
        _unexpected(entry)
    return Job(text(id), text(queue), body, nacks, deliveries)


def page(reply: Reply) -> tuple[bytes, list[Reply]]:
    """The next cursor and the elements of one step of a scan."""
    if not isinstance(reply, list) or len(reply) != 2:
        _unexpected(reply)
    cursor, elements = reply
    if not isinstance(cursor, bytes) or not isinstance(elements, list):
        _unexpected(reply)
    return cursor, elements


def info(reply: Reply) -> dict[str, str]:
    """INFO's lines `name:value`, the section titles left out."""
    fields = {}
    for line in text(reply).splitlines():
        name, colon, value = line.partition(":")
        if colon and not line.startswith("#"):
            fields[name] = value
    return fields
