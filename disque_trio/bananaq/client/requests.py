"""Encodes Python values as command arguments, and decodes replies into values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import (
    ConnectionLost,
    DisqueError,
    LoadingError,
    MisconfError,
    ReplyError,
)
from disque_trio.respclient.values import elements, integer, pairs, text, unexpected

Status: TypeAlias = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Of each queue the groups, of each group its counts."""

DEFAULT_PORT = 4777
HOLD = 30.0
"""Seconds for which an event is given to a consumer, if nothing else is said."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event as QGET returns it.

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


def yes(reply: Reply) -> bool:
    """1 or 0; the last version of the original answers with a string."""
    if reply not in (0, 1, b"0", b"1"):
        unexpected(reply)
    return reply in (1, b"1")


def event(reply: Reply, queue: str) -> Event | None:
    """What QGET answers."""
    if reply is None:
        return None
    id, body = elements(reply, 2)
    if not isinstance(body, bytes):
        unexpected(reply)
    return Event(text(id), queue, body)


def status(reply: Reply) -> Status:
    """What QSTATUS answers."""
    queues: dict[str, dict[str, dict[str, int]]] = {}
    for entry in elements(reply):
        name, groups = elements(entry, 2)
        queues[text(name)] = {
            group: {key: integer(value) for key, value in pairs(counts)}
            for group, counts in pairs(groups)
        }
    return queues


def lines(reply: Reply) -> list[str]:
    """An array of strings."""
    return [text(line) for line in elements(reply)]


def passing(error: DisqueError) -> bool:
    """Whether the error is about a state that passes.

    The server cannot be reached, is still reading its file, cannot write it, or does not reach its
    Redis. Only while it reads its file it is sure that the command was not executed.
    """
    if isinstance(error, ConnectionLost | LoadingError | MisconfError):
        return True
    return isinstance(error, ReplyError) and error.message.startswith("server-side error")
