"""Decodes replies into the values that the client returns.

All functions raise ``ProtocolError`` on a reply of another shape.
"""

from typing import TypeAlias

from disque_trio.client.jobs import Job
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import elements, integer, pairs, text, unexpected

Record: TypeAlias = dict[str, int | str | bytes | list[str] | None]
"""Fields of SHOW or QSTAT by name; only ``body`` is bytes."""


def record(reply: Reply) -> Record | None:
    """A flat array of names and values; None for a null."""
    if reply is None:
        return None
    fields: Record = {}
    for name, value in pairs(reply):
        if isinstance(value, list):
            fields[name] = [text(element) for element in value]
        elif isinstance(value, bytes):
            fields[name] = value if name == "body" else text(value)
        elif value is None or isinstance(value, int):
            fields[name] = value
        else:
            unexpected(value)
    return fields


def jobs(reply: Reply) -> list[Job]:
    """GETJOB's or QPEEK's array of jobs; a null is none."""
    return [] if reply is None else [_job(entry) for entry in elements(reply)]


def _job(entry: Reply) -> Job:
    fields = elements(entry)
    if len(fields) < 3 or not isinstance(fields[2], bytes):
        unexpected(entry)
    counters = dict(pairs(fields[3:]))
    return Job(
        text(fields[1]),
        text(fields[0]),
        fields[2],
        integer(counters.get("nacks", 0)),
        integer(counters.get("additional-deliveries", 0)),
    )


def page(reply: Reply) -> tuple[bytes, list[Reply]]:
    """The next cursor and the elements of one step of a scan."""
    cursor, found = elements(reply, 2)
    if not isinstance(cursor, bytes):
        unexpected(reply)
    return cursor, elements(found)


def info(reply: Reply) -> dict[str, str]:
    """INFO's lines ``name:value``, the section titles left out."""
    fields = {}
    for line in text(reply).splitlines():
        name, colon, value = line.partition(":")
        if colon and not line.startswith("#"):
            fields[name] = value
    return fields
