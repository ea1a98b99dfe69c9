"""What a line of the event log looks like, and the events that lines are made of."""

from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import Any, TypeAlias

# A list of events has three kinds of things:
# - a client (text), on whose behalf all happens from here on; empty: nobody's, as at the beginning;
# - what happens, a tuple:
#     time (ms since the epoch), event, queue (bytes), reason, peer (a node id), nacks, deliveries,
#     and of new jobs: size (bytes), repl, copies, retry (s), ttl (s), delay (s), ctime (ns) of the
#     first job; each further one's is higher by one
#   What does not apply is empty or -1, and behind the reason it may be left out. An "added" with a
#   reason stands for two events: the job was also queued, for that reason;
# - the id of a job to which that happens (bytes).
# What happens to no job is a tuple of two or three: time, event, how many ("dropped": events that
# are not in the log).
Event: TypeAlias = str | tuple[int | str | bytes, ...] | bytes

DROPPED = "dropped"
STARTED = "started"  # the node notes events from now on
STOPPED = "stopped"  # all events up to now are in the log, but for those that it says are not

_ADDED = "added"
_ALONE = 3  # the most fields of what happens to no job
_REASON = 3  # where things are in a tuple
_SIZE = 7
_CTIME = 13
_FACTS = tuple(f',"{name}":' for name in ("size", "repl", "copies", "retry", "ttl", "delay"))
_MOST_TEXTS = 10_000  # remembered; clients without a name come and go


def count(events: Sequence[Event]) -> int:
    """How many events of jobs ``events`` stand for."""
    total = 0
    each = 1
    for event in events:
        if isinstance(event, bytes):
            total += each
        elif isinstance(event, tuple):
            each = 2 if _is_queued(event) else 1
    return total


def _is_queued(event: tuple[Any, ...]) -> bool:
    """Whether jobs are added and queued as well."""
    return event[1] == _ADDED and len(event) > _ALONE and event[_REASON] != ""


class LineWriter:
    """Makes lines of the events of one node.

    Args:
        node: its id, 40 hex characters.
    """

    def __init__(self, node: str) -> None:
        self._node = f',"node":{quote(node)},"event":'
        self._texts: dict[tuple[Any, ...], str] = {}

    def lines(self, events: Sequence[str | tuple[Any, ...] | bytes]) -> bytes:
        """One line for each event, each with its line feed."""
        lines: list[str] = []
        client = ""
        what: tuple[Any, ...] = ()
        ctime = -1
        around: tuple[str, ...] = ()  # an id
        for event in events:
            if isinstance(event, bytes):
                around = around or self._around(what, client)
                id = event.decode("ascii")
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
            elif len(event) > _ALONE:
                what = event
                ctime = event[_CTIME] if len(event) > _CTIME else -1
                around = ()
            else:
                count = _numbers((',"count":',), event[2:])
                lines.append(f"{self._begin(event[0], event[1])}{count}}}\n")
        return "".join(lines).encode("ascii")

    def _begin(self, time: int, event: str) -> str:
        return f'{{"time":{time}{self._node}"{event}"'

    def _around(self, what: tuple[Any, ...], client: str) -> tuple[str, ...]:
        """What is before an id and behind it, but for the ctime; in one line or in two."""
        time, name, queue, reason, *others = what[:_SIZE]
        begin = self._begin(time, name) + ',"id":"'
        facts = _numbers(_FACTS, what[_SIZE:_CTIME])
        if not _is_queued(what):
            return begin, self._text(queue, reason, client, *others) + facts
        return (
            begin,
            self._text(queue, "", client, *others) + facts,
            self._begin(time, "queued") + ',"id":"',
            self._text(queue, reason, client, *others),
        )

    def _text(self, *fields: Any) -> str:
        """The fields from the queue to the counters; mostly they have been there before."""
        texts = self._texts
        text = texts.get(fields)
        if text is None:
            if len(texts) >= _MOST_TEXTS:
                texts.clear()
            text = texts[fields] = _text(*fields)
        return text


def _text(
    queue: bytes,
    reason: str,
    client: str,
    peer: bytes = b"",
    nacks: int = -1,
    deliveries: int = -1,
) -> str:
    """The fields behind the id, of those that apply, and what ends that."""
    text = '"'
    if queue:
        text += ',"queue":' + quote(queue.decode("utf-8", "backslashreplace"))
    if reason:
        text += ',"reason":' + quote(reason)
    if client:
        text += ',"client":' + quote(client)
    if peer:
        text += ',"peer":' + quote(peer.decode("ascii", "backslashreplace"))
    return text + _numbers((',"nacks":', ',"deliveries":'), (nacks, deliveries))


def _numbers(names: Sequence[str], values: Sequence[int]) -> str:
    """Fields that are numbers, of those that apply."""
    text = ""
    for name, value in zip(names, values, strict=False):
        if value >= 0:
            text += f"{name}{value}"
    return text
