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
"""Counts by queue, group and name."""

DEFAULT_PORT = 4777
HOLD = 30.0
"""The default for how long a consumer holds an event, in seconds."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event as QGET returns it.

    Attributes:
        id: for QACK. If the group had the event before, the id tells this delivery from the
            earlier ones.
        queue: the name of the queue; bytes that are not UTF-8 appear as surrogate escapes.
        body: the body of the event.
    """

    id: str
    queue: str
    body: bytes

    @property
    def delivery(self) -> int:
        """1 at the first delivery to the group, then 2 and so on."""
        parts = self.id.split("_")
        return int(parts[2]) if len(parts) == 3 and parts[2].isdecimal() else 1


def seconds(value: float) -> str:
    """Convert a time in seconds to an argument. Raises ValueError if it is not finite."""
    if not math.isfinite(value):
        raise ValueError(f"expected a number of seconds, got {value!r}")
    return f"{value:.6f}".rstrip("0").rstrip(".")


def yes(reply: Reply) -> bool:
    """Decode 1 or 0; the last version of the original bananaq returns a string."""
    if reply not in (0, 1, b"0", b"1"):
        unexpected(reply)
    return reply in (1, b"1")


def event(reply: Reply, queue: str) -> Event | None:
    """Decode a reply to QGET."""
    if reply is None:
        return None
    id, body = elements(reply, 2)
    if not isinstance(body, bytes):
        unexpected(reply)
    return Event(text(id), queue, body)


def status(reply: Reply) -> Status:
    """Decode a reply to QSTATUS."""
    queues: dict[str, dict[str, dict[str, int]]] = {}
    for entry in elements(reply):
        name, groups = elements(entry, 2)
        queues[text(name)] = {
            group: {key: integer(value) for key, value in pairs(counts)}
            for group, counts in pairs(groups)
        }
    return queues


def lines(reply: Reply) -> list[str]:
    """Decode an array of strings."""
    return [text(line) for line in elements(reply)]


def passing(error: DisqueError) -> bool:
    """Return whether the error describes a temporary state.

    In such a state the server cannot be reached, is still loading its file, cannot write it, or
    cannot reach its Redis. Only while it is loading, it is certain that the command was not
    executed.
    """
    if isinstance(error, ConnectionLost | LoadingError | MisconfError):
        return True
    return isinstance(error, ReplyError) and error.message.startswith("server-side error")
