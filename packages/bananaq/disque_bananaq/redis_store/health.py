"""The health of the Redis: lines for the log and fields for INFO.

Owns the state of each node. Callers report replies, failures and the time (seconds of any clock);
this module does nothing by itself. A cluster is as healthy as its worst node.
"""

import re
from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from disque_trio.histogram import DISK_TIMES, NS, Histogram

UP, REFUSING, HUNG, DOWN = "up", "refusing", "hung", "down"
_BEST_FIRST = (UP, REFUSING, HUNG, DOWN)

REPEAT_SECONDS = 60.0
"""Seconds between two lines that report the same state of a node."""
MOST_CHANGES = 10
"""The most lines about changes of a node in ``REPEAT_SECONDS``, so that a node that comes and goes
does not fill the log."""

REFUSAL_CODES = (
    "OOM|NOAUTH|WRONGPASS|NOPERM|READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|MISCONF|BUSY|NOREPLICAS"
    "|DENIED"
)
"""Codes of error replies about the server, as opposed to the command."""
REFUSALS = re.compile(rf"\b({REFUSAL_CODES})\b")

_EVENTS = {
    REFUSING: "Redis refuses commands",
    HUNG: "Redis does not reply",
    DOWN: "Redis cannot be reached",
}

Fields = dict[str, str | int | float]


class Notice(NamedTuple):
    """A line for the log. ``urgent``: an operator must know about it."""

    urgent: bool
    event: str
    fields: Fields


class Health:
    """The health of the known nodes of a Redis; without a cluster there is one node.

    Attributes:
        calls: how long calls took, from sending them to the reply.
        reconnects: how many connections were made again.
    """

    def __init__(self) -> None:
        self.calls = Histogram(DISK_TIMES, NS)
        self.reconnects = 0
        self._nodes: dict[str, _Node] = {}
        self._errors = 0
        self._last_error = ""
        self._last_error_at = 0.0
        self._restarts = 0

    def replied(
        self, node: str, now: float, round_trip: float, keys: int = -1, run_id: str = ""
    ) -> list[Notice]:
        """Report that a node replied, and carries out commands.

        Args:
            round_trip: seconds.
            keys: how many keys it has; -1: unknown.
            run_id: the id of its process; empty if not asked for.

        Returns:
            Lines for the log.
        """
        state = self._node(node)
        lines = state.become(UP, "", now)
        state.round_trip = round_trip
        if run_id:
            if state.run_id not in ("", run_id):
                self._restarts += 1
                lines.append(state.restarted(keys))
            state.run_id = run_id
        if keys >= 0:
            state.keys = keys
        return lines

    def failed(self, node: str, now: float, status: str, reason: str) -> list[Notice]:
        """Report that a node is refusing, hung or down, and why. Returns lines for the log."""
        state = self._node(node)
        if status != REFUSING:
            state.round_trip = -1.0
        return state.become(status, " ".join(reason.split()), now)

    def count_error(self, now: float, text: str) -> None:
        """Count an operation that ended with an error."""
        self._errors += 1
        self._last_error = " ".join(text.split())
        self._last_error_at = now

    def only(self, nodes: Collection[str]) -> None:
        """Forget all other nodes."""
        for node in [node for node in self._nodes if node not in nodes]:
            del self._nodes[node]

    def states(self) -> dict[str, int]:
        """Return the number of nodes in each state."""
        states = dict.fromkeys(_BEST_FIRST, 0)
        for node in self._nodes.values():
            if node.status:
                states[node.status] += 1
        return states

    def info(self, now: float) -> Fields:
        """Return the fields of INFO. The link is down until something is known."""
        nodes = self._nodes.values()
        bad = [node for node in nodes if node.status != UP]
        worst = max((node.status for node in nodes), key=_BEST_FIRST.index, default=DOWN)
        trips = [node.round_trip for node in nodes if node.round_trip >= 0]
        return {
            "redis_link_status": worst,
            "redis_nodes": len(nodes),
            "redis_nodes_up": len(nodes) - len(bad),
            "redis_down_since_seconds": int(max((now - node.bad_since for node in bad), default=0)),
            "redis_round_trip_us": round(max(trips) * 1e6) if trips else -1,
            "redis_restarts": self._restarts,
            "redis_errors": self._errors,
            "redis_last_error": self._last_error,
            "redis_last_error_age_seconds": int(now - self._last_error_at) if self._errors else -1,
        }

    def _node(self, name: str) -> "_Node":
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node(name)
        return node


class _Node:
    """The health of one node.

    Attributes:
        status: its state.
        bad_since: while it is not up: when that began.
        round_trip: seconds; -1: it does not reply.
        run_id, keys: the id of its process and its number of keys, as last heard.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.status = ""
        self.bad_since = 0.0
        self.round_trip = -1.0
        self.run_id = ""
        self.keys = -1
        self._was_bad = 0  # how many seconds it was not up, the last time
        self._said = ""  # the last status that was logged
        self._said_at = 0.0
        self._changes: deque[float] = deque(maxlen=MOST_CHANGES)  # when they were logged
        self._failures = 0  # since the last line

    def become(self, status: str, reason: str, now: float) -> list[Notice]:
        """Enter a state, or remain in it. Returns lines for the log."""
        if status != UP:
            self._failures += 1
            if self.status in ("", UP):
                self.bad_since = now
        elif self.status != UP:
            self._was_bad = int(now - self.bad_since)
        self.status = status
        if status == self._said:
            if status == UP or now - self._said_at < REPEAT_SECONDS:
                return []
        else:
            changes = self._changes
            if len(changes) == MOST_CHANGES and now - changes[0] < REPEAT_SECONDS:
                return []
            changes.append(now)
        line = self._line(status, reason, now)
        self._said = status
        self._said_at = now
        self._failures = 0
        return [line]

    def _line(self, status: str, reason: str, now: float) -> Notice:
        fields: Fields = {"redis": self.name}
        if status != UP:
            fields |= {"reason": reason, "seconds": int(now - self.bad_since)}
            return Notice(True, _EVENTS[status], fields | {"failures": self._failures})
        if not self._said:
            return Notice(False, "Redis replies", fields)
        fields |= {"seconds": self._was_bad, "failures": self._failures}
        return Notice(False, "Redis is back", fields)

    def restarted(self, keys: int) -> Notice:
        """Return the line about a new process."""
        fields: Fields = {"redis": self.name, "keys": keys, "keys_before": self.keys}
        if keys == 0:
            return Notice(True, "Redis was restarted, and has no data", fields)
        return Notice(True, "Redis was restarted", fields)
