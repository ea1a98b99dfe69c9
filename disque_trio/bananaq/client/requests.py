"""From Python values to the arguments of commands, and from replies to values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from disque_trio.client.connection import Reply
from disque_trio.client.errors import LoadingError, MisconfError, ProtocolError, ReplyError

Name = str | bytes
"""The name of a queue or group, or a body: `str` is sent as UTF-8."""

Status: TypeAlias = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Of each queue the groups, of each group its counts."""

DEFAULT_PORT = 4777
HOLD = 30.0
"""Seconds for which an event is given to a consumer, if nothing else is said."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event as QGET gives it.

    Attributes:
        id: for QACK. If others of the group had the event before, it tells this delivery from
            theirs.
        queue: name of its queue; bytes that are not UTF-8 appear as surrogate escapes.
        body: what was added.
    """

    id: str
    queue: str
    body: bytes

    @property
    def delivery(self) -> int:
        """1 when the group gets it for the first time, then 2 and so on."""
        parts = self.id.split("_")
        return int(parts[2]) if len(parts) == 3 and parts[2].isdecimal() else 1


def seconds(value: float) -> str:
    """A time for the wire. Raises ValueError for what is not a number."""
    if not math.isfinite(value):
        raise ValueError(f"a number of seconds expected, got {value!r}")
    return f"{value:.6f}".rstrip("0").rstrip(".")


def as_text(name: Name) -> str:
    """A name as `str`; bytes that are not UTF-8 become surrogate escapes."""
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name


def text(reply: Reply) -> str:
    """A string."""
    if not isinstance(reply, bytes):
        unexpected(reply)
    return as_text(reply)


def yes(reply: Reply) -> bool:
    """1 or 0; the last version of the original answers with a string."""
    if reply not in (0, 1, b"0", b"1"):
        unexpected(reply)
    return reply in (1, b"1")


def event(reply: Reply, queue: str) -> Event | None:
    """What QGET answers."""
    if reply is None:
        return None
    if not isinstance(reply, list) or len(reply) != 2 or not isinstance(reply[1], bytes):
        unexpected(reply)
    return Event(text(reply[0]), queue, reply[1])


def status(reply: Reply) -> Status:
    """What QSTATUS answers."""
    queues: dict[str, dict[str, dict[str, int]]] = {}
    for entry in _elements(reply):
        name, groups = _elements(entry, 2)
        queues[text(name)] = {
            group: {key: _integer(value) for key, value in _pairs(counts)}
            for group, counts in _pairs(groups)
        }
    return queues


def lines(reply: Reply) -> list[str]:
    """An array of strings."""
    return [text(line) for line in _elements(reply)]


def passing(error: ReplyError) -> bool:
    """Whether the error is about a state that passes: the server is still reading its file, cannot
    write it, or does not reach its Redis. Only in the first case it is sure that the command was
    not executed."""
    if isinstance(error, LoadingError | MisconfError):
        return True
    return error.message.startswith("server-side error")


def unexpected(reply: Reply) -> NoReturn:
    """Raise ProtocolError."""
    raise ProtocolError(f"unexpected reply: {reply!r:.200}")


def _integer(reply: Reply) -> int:
    if not isinstance(reply, int):
        unexpected(reply)
    return reply


def _elements(reply: Reply, count: int | None = None) -> list[Reply]:
    if not isinstance(reply, list) or (count is not None and len(reply) != count):
        unexpected(reply)
    return reply


def _pairs(reply: Reply) -> list[tuple[str, Reply]]:
    flat = _elements(reply)
    if len(flat) % 2:
        unexpected(reply)
    return [(text(key), value) for key, value in zip(flat[::2], flat[1::2], strict=True)]
