"""Converts events of the node to lines of the event log."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from disque_trio.eventlog.schema import (
    ADDED,
    FIELDS,
    NEW_JOB_FIELDS,
    NODE_FACTS,
    POLICY,
    QUEUED,
    RARE_FIELDS,
    SEGMENT,
    STARTED,
    TICK_REASONS,
    Event,
)

_ALONE = 3  # the most fields of an event without a job
_EVENT = FIELDS.index("event")
_REASON = FIELDS.index("reason")
_SIZE = len(FIELDS)
_CTIME = _SIZE + NEW_JOB_FIELDS.index("ctime")
_FACTS = tuple(f',"{name}":' for name in NEW_JOB_FIELDS[:-1])  # the ctime differs in each line
_PRIORITY, _GROUP, _UNTIL, _ORIGIN = (_CTIME + 1 + place for place in range(len(RARE_FIELDS) + 2))
_PLAIN = bytes(byte for byte in range(0x20, 0x7F) if byte not in b'"\\')  # as they are in JSON
_MOST_TEXTS = 10_000  # to cache; clients without a name come and go


def count(events: Sequence[Event]) -> int:
    """Count the events of jobs that ``events`` stand for."""
    total = 0
    each = 1
    for event in events:
        if isinstance(event, bytes):
            total += each
        elif isinstance(event, tuple):
            each = 2 if _is_queued(event) else 1
    return total


def first_time(events: Sequence[Event]) -> int:
    """Return when the first of ``events`` happened; 0 if there are none."""
    times = (event[0] for event in events if isinstance(event, tuple))
    return next((time for time in times if isinstance(time, int)), 0)


def _is_queued(event: tuple[Any, ...]) -> bool:
    """Return whether the event means that jobs are both added and queued."""
    return event[_EVENT] == ADDED and len(event) > _ALONE and event[_REASON] != ""


class LineWriter:
    """Makes log lines from one node's events.

    Args:
        node: the id of the node, 40 hex characters.

    Attributes:
        facts: what first lines say about the node, see ``NODE_FACTS``; lines that change it are
            noticed.
    """

    def __init__(self, node: str) -> None:
        self.facts: dict[str, Any] = {}
        self._node = f',"node":{quote(node)},"event":'

    def lines(self, events: Sequence[str | tuple[Any, ...] | bytes]) -> bytes:
        """Return one line for each event, each ending in a line feed."""
        lines: list[str] = []
        client = ""
        what: tuple[Any, ...] = ()
        ctime = -1
        around: tuple[str, ...] = ()  # text before and after an id
        for event in events:
            if isinstance(event, bytes):
                around = around or self._around(what, client)
                id = event.decode("ascii", "backslashreplace")
                if event.translate(None, _PLAIN):  # of a damaged append-only file
                    id = quote(id)[1:-1]
                line = f"{around[0]}{id}{around[1]}"
                if ctime >= 0:
                    line += f',"ctime":{ctime}'
                    ctime += 1
                lines.append(line + "}\n")
                if len(around) > 2:
                    lines.append(f"{around[2]}{id}{around[3]}}}\n")
            elif isinstance(event, str):
                client = event
                around = ()
            elif event[_EVENT] in TICK_REASONS:
                lines.append(self._tick(*event))
            elif event[_EVENT] == POLICY:
                lines.append(self._policy(*event))
            elif len(event) > _ALONE:
                what = event
                ctime = event[_CTIME] if len(event) > _CTIME else -1
                around = ()
            else:
                lines.append(self._mark(event[0], event[1], event[2:]))
        return "".join(lines).encode("ascii")

    def head(self, time: int, name: str, after: str, count: int) -> bytes:
        """Return the first line of the segment ``name``.

        It contains the name of the previous segment and its number of lines (-1: not known), so
        that a lost segment can be noticed, and the facts about the node, so that a lost log can.
        """
        text = f'{self._begin(time, SEGMENT)},"name":{quote(name)}'
        if after:
            text += f',"after":{quote(after)}' + _numbers((',"events":',), (count,))
        return f"{text}{facts_text(self.facts)}}}\n".encode("ascii")

    def _mark(self, time: int, event: str, about: Sequence[int | str]) -> str:
        """Return a line about the log itself."""
        text = self._begin(time, event)
        if event == STARTED and self.facts:
            self.facts["since"] = time
        for one in about:
            if isinstance(one, int):
                text += f',"count":{one}'
            elif event == SEGMENT:
                self.facts["nodes"] = one.split()
                text += facts_text({"nodes": self.facts["nodes"]})
            else:
                text += f',"reason":{quote(one)}'
        return text + "}\n"

    def _policy(self, time: int, kind: str, queue: bytes, what: bytes, client: str) -> str:
        """Return the line of a policy that a client has set."""
        text = self._begin(time, kind)
        text += ',"queue":' + _quoted(queue)
        if client:
            text += ',"client":' + quote(client)
        return f'{text},"what":{_quoted(what)}}}\n'

    def _tick(
        self, time: int, kind: str, name: bytes, tick: int, queue: bytes, why: str, until: int,
        id: bytes,
    ) -> str:  # fmt: skip
        """Return the line of a tick of a schedule."""
        text = self._begin(time, kind)
        if id:
            text += ',"id":' + quote(id.decode("ascii", "backslashreplace"))
        text += ',"queue":' + _quoted(queue)
        if why:
            text += ',"reason":' + quote(why)
        text += _numbers((',"until":',), (until,))
        text += ',"schedule":' + _quoted(name)
        return f'{text},"tick":{tick}}}\n'

    def _begin(self, time: int, event: str) -> str:
        return f'{{"time":{time}{self._node}"{event}"'

    def _around(self, what: tuple[Any, ...], client: str) -> tuple[str, ...]:
        """Return the text before and after an id, without the ctime, for one line or for two."""
        time, name, queue, reason, *others = what[:_SIZE]
        begin = self._begin(time, name) + ',"id":"'
        facts = _numbers(_FACTS, what[_SIZE:_CTIME])
        if len(what) > _GROUP:
            if what[_PRIORITY]:
                facts += f',"priority":{what[_PRIORITY]}'
            if what[_GROUP]:
                facts += ',"group":' + _quoted(what[_GROUP])
        facts += _numbers((',"until":',), what[_UNTIL:_ORIGIN])
        if len(what) > _ORIGIN:
            facts += ',"origin":' + _quoted(what[_ORIGIN])
        if not _is_queued(what):
            return begin, _text(queue, reason, client, *others) + facts
        return (
            begin,
            _text(queue, "", client, *others) + facts,
            self._begin(time, QUEUED) + ',"id":"',
            _text(queue, reason, client, *others),
        )


def _quoted(name: bytes) -> str:
    """Return bytes as a JSON string; those that are not UTF-8 are escaped."""
    return quote(name.decode("utf-8", "backslashreplace"))


def facts_text(facts: Mapping[str, Any]) -> str:
    """Format facts about a node, see ``NODE_FACTS``."""
    text = ""
    for name in NODE_FACTS:
        fact = facts.get(name)
        if isinstance(fact, int):
            text += f',"{name}":{fact}'
        elif isinstance(fact, str):
            text += f',"{name}":{quote(fact)}'
        elif fact is not None:
            text += f',"{name}":[{",".join([quote(one) for one in fact])}]'
    return text


@lru_cache(_MOST_TEXTS)  # most combinations repeat
def _text(
    queue: bytes,
    reason: str,
    client: str,
    peer: bytes = b"",
    nacks: int = -1,
    deliveries: int = -1,
) -> str:
    """Format those fields after the id that apply, beginning with the id's closing quote."""
    text = '"'
    if queue:
        text += ',"queue":' + _quoted(queue)
    if reason:
        text += ',"reason":' + quote(reason)
    if client:
        text += ',"client":' + quote(client)
    if peer:
        text += ',"peer":' + quote(peer.decode("ascii", "backslashreplace"))
    return text + _numbers((',"nacks":', ',"deliveries":'), (nacks, deliveries))


def _numbers(names: Sequence[str], values: Sequence[int]) -> str:
    """Format those numeric fields that apply."""
    text = ""
    for name, value in zip(names, values, strict=False):
        if value >= 0:
            text += f"{name}{value}"
    return text
