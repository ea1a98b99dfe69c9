"""Jobs as nodes report them with SHOW, and several nodes' views of one job."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from disque_console.model.fields import NO_FIELD
from disque_trio.client.replies import record
from disque_trio.client.shown import ShownJob
from disque_trio.respclient.connection import Reply

JOB_ID: Final = re.compile(r"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-[0-9a-f]{4}")
SHOWN: Final = 64 * 1024  # bytes of a body to show on a page
HEX_WIDTH: Final = 16  # bytes per line
HEX_SHOWN: Final = 4 * 1024  # bytes of a body to show in hexadecimal

WITH_WORKER: Final = "with a worker"

_ORDER: Final = ("queued", "active", "wait-repl", "acked")
"""States of copies, the most telling first: copies on other nodes are just `active`."""


class JobCopy(ShownJob):
    """A job as one node sees it. ``client``: this node's, which has it; 0 if unknown or none."""

    __slots__ = ()

    @property
    def requeued_in(self) -> float | None:
        """Seconds from the reply; None for never."""
        return _seconds(self.next_requeue_within)

    @property
    def awake_in(self) -> float | None:
        """Seconds from the reply; None for never."""
        return _seconds(self.next_awake_within)

    def word(self, now: float) -> str:
        """Its state for display. An ``active`` job can be ``with a worker``, ``delivered`` (at most
        once, so nobody knows whether its worker still has it), or ``delayed`` if its delay is not
        over."""
        if self.state != "active":
            return self.state
        if self.client:
            return WITH_WORKER if self.retry else "delivered"
        return "delayed" if self.delay and now < self.created + self.delay else self.state


def read_copy(reply: Reply) -> JobCopy | None:
    """Read a reply to SHOW; None if the node does not know the job, or the reply is invalid."""
    fields = record(reply) if isinstance(reply, list) else None
    return None if fields is None else JobCopy.of(fields)


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as seen by all nodes that answered.

    Attributes:
        copies: at least one, by the address of the node.
        ids: the ids of these nodes, by address.
    """

    copies: Mapping[str, JobCopy]
    ids: Mapping[str, str]

    @property
    def holder(self) -> str:
        """The address of the node to send commands to: where the job is queued, or else where it
        was delivered, or else, if no node knows, where it was created."""

        def rank(address: str) -> tuple[int, bool, bool, str]:
            copy = self.copies[address]
            elsewhere = copy.id[2:10] != self.ids.get(address, "")[:8]
            return _rank(copy), not copy.client, elsewhere, address

        return min(self.copies, key=rank)

    @property
    def best(self) -> JobCopy:
        """The most telling copy."""
        return self.copies[self.holder]

    @property
    def differing(self) -> tuple[str, ...]:
        """Fields that should be the same everywhere, but on which the nodes disagree."""

        def fields(copy: JobCopy) -> tuple[tuple[str, object], ...]:
            body = copy.body[:SHOWN], copy.body_size
            return ("queue", copy.queue), ("body", body), ("retry", copy.retry)

        values = zip(*map(fields, self.copies.values()), strict=True)
        return tuple(found[0][0] for found in values if len(set(found)) > 1)


def merge(answers: Sequence[tuple[str, Reply]], ids: Mapping[str, str]) -> JobView | None:
    """Merge the replies to SHOW of nodes with these ``ids``; None if no node has the job."""
    copies = {address: copy for address, reply in answers if (copy := read_copy(reply))}
    return JobView(copies, ids) if copies else None


class Body:
    """A body for display.

    Args:
        data: the body, or at least its first ``SHOWN`` bytes.
        size: of the whole body.
    """

    def __init__(self, data: bytes, size: int) -> None:
        self.cut = size > SHOWN
        self._size = size
        self._head = data[:SHOWN]

    def __len__(self) -> int:
        return self._size

    @property
    def text(self) -> str | None:
        """As UTF-8, up to ``SHOWN`` bytes; None if it is not text."""
        try:
            return self._head.decode()
        except UnicodeDecodeError as error:
            if self.cut and error.start >= SHOWN - 3:
                return self._head[: error.start].decode()
            return None

    @property
    def json(self) -> str | None:
        """As indented JSON; None if it is not JSON, or too long to show as a whole."""
        if self.cut or self._head[:1] not in (b"{", b"["):
            return None
        try:
            json.loads(self._head, parse_int=str)
            shown = _indented(self._head.decode())
        except (ValueError, RecursionError):
            return None
        return shown if len(shown) <= 4 * SHOWN else None

    @property
    def hex(self) -> str:
        """The first ``HEX_SHOWN`` bytes: offset, digits, and printable characters."""
        lines = []
        for at in range(0, min(len(self._head), HEX_SHOWN), HEX_WIDTH):
            part = self._head[at : at + HEX_WIDTH]
            seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
            lines.append(f"{at:08x}  {part.hex(' '):<{HEX_WIDTH * 3 - 1}}  {seen}")
        return "\n".join(lines)

    @property
    def hex_shown(self) -> int:
        """How many bytes ``hex`` shows."""
        return min(len(self._head), HEX_SHOWN)

    @property
    def editable(self) -> bool:
        """Whether a form field would return exactly these bytes."""
        found = self.text
        if self.cut or found is None:
            return False
        ends = found.replace("\r\n", "\n")
        mixed = "\r" in ends or (self.has_crlf and ends.count("\n") != found.count("\r\n"))
        return not mixed and not NO_FIELD.search(ends)

    @property
    def has_crlf(self) -> bool:
        """Whether its lines end with CR LF."""
        return b"\r\n" in self._head


def _indented(text: str) -> str:
    """JSON with line breaks and indents, and otherwise unchanged."""
    words: list[str] = []
    depth = 0
    for token in _JSON_TOKEN.findall(text):
        if token in "}]":
            depth -= 1
            empty = words[-1][-1:] in ("{", "[")
            words.append(token if empty else "\n" + "  " * depth + token)
            continue
        if words and words[-1] in ("{", "[", ","):
            words.append("\n" + "  " * depth)
        words.append(": " if token == ":" else token)
        depth += token in "{["
    return "".join(words)


_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def _rank(copy: JobCopy) -> int:
    return _ORDER.index(copy.state) if copy.state in _ORDER else len(_ORDER)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
