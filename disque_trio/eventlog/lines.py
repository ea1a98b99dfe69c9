"""What a line of the event log looks like, and the events that lines are made of.

An event is a tuple; what does not apply to it is empty or -1, and may be left out at the end.
"""

from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import Any, TypeAlias

# In this order:
#   time (ms since the epoch), event, id of the job, queue (bytes), reason, client (text),
#   peer (a node id), nacks, deliveries, size (bytes), repl, copies, retry (s), ttl (s), delay (s),
#   ctime (ns)
# or, for events that are not in the log: time, "dropped", how many. An "added" with a reason stands
# for two events: the job was also queued, for that reason.
Event: TypeAlias = tuple[int | str | bytes, ...]

DROPPED = "dropped"

_ADDED = "added"
_COUNTERS = (',"nacks":', ',"deliveries":')
_FACTS = tuple(
    f',"{name}":' for name in ("size", "repl", "copies", "retry", "ttl", "delay", "ctime")
)
_NOTHING = ("", b"", b"", "", "", b"", -1, -1)  # behind the time
_BEFORE_SIZE = 1 + len(_NOTHING)
_MOST_TEXTS = 10_000  # remembered of each kind; clients without a name come and go


def count(events: Sequence[tuple[Any, ...]]) -> int:
    """How many events ``events`` stand for, not counting what says that some are missing."""
    return sum(
        0 if event[1] == DROPPED else 2 if event[1] == _ADDED and event[4] else 1
        for event in events
    )


class LineWriter:
    """Makes lines of the events of one node.

    Args:
        node: its id, 40 hex characters.
    """

    def __init__(self, node: str) -> None:
        self._node = f',"node":{quote(node)},"event":'
        self._texts: dict[tuple[bytes, str, str, bytes], str] = {}
        self._counters: dict[tuple[int, int], str] = {}

    def lines(self, events: Sequence[tuple[Any, ...]]) -> bytes:
        """One line for each event, each with its line feed."""
        parts: list[str] = []
        for event in events:
            if event[1] == DROPPED:
                time, name, missing = event
                parts.append(f'{{"time":{time}{self._node}"{name}","count":{missing}}}\n')
            elif event[1] == _ADDED and event[4]:
                # Not one tuple more for each new job: the node would pay for it.
                parts.append(self._line((*event[:4], "", *event[5:])))
                parts.append(self._line((event[0], "queued", *event[2:_BEFORE_SIZE])))
            else:
                parts.append(self._line(event))
        return "".join(parts).encode("ascii")

    def _line(self, event: tuple[Any, ...]) -> str:
        length = len(event)
        if length < _BEFORE_SIZE:
            event += _NOTHING[length - 1 :]
        time, name, id, queue, reason, client, peer, nacks, deliveries = event[:_BEFORE_SIZE]
        texts = self._texts
        key = (queue, reason, client, peer)
        text = texts.get(key)
        if text is None:
            if len(texts) >= _MOST_TEXTS:
                texts.clear()
            text = texts[key] = _text(*key)
        counters = self._counters
        counted = counters.get((nacks, deliveries))
        if counted is None:
            if len(counters) >= _MOST_TEXTS:
                counters.clear()
            counted = _numbers(_COUNTERS, (nacks, deliveries))
            counters[nacks, deliveries] = counted
        about = f',"id":"{id.decode("ascii")}"' if id else ""
        facts = _numbers(_FACTS, event[_BEFORE_SIZE:]) if length > _BEFORE_SIZE else ""
        return f'{{"time":{time}{self._node}"{name}"{about}{text}{counted}{facts}}}\n'


def _text(queue: bytes, reason: str, client: str, peer: bytes) -> str:
    """The fields that are text, of those that apply."""
    text = ""
    if queue:
        text += ',"queue":' + quote(queue.decode("utf-8", "backslashreplace"))
    if reason:
        text += ',"reason":' + quote(reason)
    if client:
        text += ',"client":' + quote(client)
    if peer:
        text += ',"peer":' + quote(peer.decode("ascii", "backslashreplace"))
    return text


def _numbers(names: Sequence[str], values: Sequence[int]) -> str:
    """Fields that are numbers, of those that apply."""
    text = ""
    for name, value in zip(names, values, strict=False):
        if value >= 0:
            text += f"{name}{value}"
    return text
