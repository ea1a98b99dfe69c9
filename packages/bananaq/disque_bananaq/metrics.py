"""Prometheus metrics of bananaq: its events and groups, or its Redis."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from disque_bananaq.core.embedded import EmbeddedStore
from disque_bananaq.core.events import Group, Queue
from disque_trio.metrics.labels import label_value
from disque_trio.metrics.sheet import Sheet, pairs

if TYPE_CHECKING:
    from disque_bananaq.redis_store.store import RedisStore

STATES = ("available", "inprogress", "redo")
_GROUPS_A_STEP = 16
_GROUPS_A_QUEUE = 10  # the average number of groups shown for each queue that may be shown


class EventFigures:
    """The metrics of an embedded store.

    Args:
        most: how many queues are shown by name.
    """

    def __init__(self, store: EmbeddedStore, most: Callable[[], int]) -> None:
        self._store = store
        self._most = most

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write the metrics into ``sheet``, in short steps."""
        store = self._store
        sheet.gauge("bananaq_events", "Events held.", store.index.count)
        for event, text, value in (
            ("added", "Events added.", store.added),
            ("given", "Deliveries to consumers.", store.given),
            ("acked", "Acknowledgements, one for each group.", store.acked),
            ("missed", "Deliveries that missed their deadline.", store.missed),
            ("expired", "Events that expired.", store.expired),
        ):
            sheet.counter(f"bananaq_events_{event}_total", text, value)
        yield
        most = self._most()
        lines = _Lines(sheet, most * _GROUPS_A_QUEUE)
        consumers = store.consumers
        added_up = 0
        queues = store.index.queues
        queue_names = dict.fromkeys([*queues, *consumers.queues()])  # they come and go
        for number, name in enumerate(queue_names):
            # The empty name stands for all queues that are not shown.
            shown = number < most and name != b""
            added_up += not shown
            label = label_value(name) if shown else ""
            yield from lines.add_queue(label, queues.get(name), consumers.of(name))
        lines.end()
        sheet.gauge("bananaq_queues", "Queues.", len(queue_names))
        sheet.gauge("bananaq_queues_added_up", 'Queues added up in queue="".', added_up)


class _Lines:
    """The lines about queues and groups.

    Args:
        most: how many groups are shown by name; the others of each queue are added up.
    """

    def __init__(self, sheet: Sheet, most: int) -> None:
        self._events = sheet.gauge("bananaq_queue_events", "Events in the queue.")
        self._groups = sheet.gauge("bananaq_group_events", "Events for the group, by state.")
        self._consumers = sheet.gauge("bananaq_group_consumers", "Consumers in the group.")
        self._left = most
        self._rest = 0  # events of queues that are not shown
        self._several: dict[str, list[int]] = {}  # sums over groups that are not shown, by queue

    def add_queue(
        self, label: str, queue: Queue | None, consumers: dict[bytes, int]
    ) -> Iterator[None]:
        """Add the lines about ``queue``, None if it has no events.

        Args:
            label: its name; empty if it is not shown.
        """
        total = queue.log.count if queue is not None else 0
        if label:
            self._events.add(total, pairs({"queue": label}))
        else:
            self._rest += total
        groups = queue.groups if queue is not None else {}
        names = list(dict.fromkeys([*groups, *consumers]))
        for start in range(0, len(names), _GROUPS_A_STEP):
            # Compute this for each step, since events come and go.
            counts = queue.log.counts_from() if queue is not None else []
            for name in names[start : start + _GROUPS_A_STEP]:
                numbers = _numbers(queue, counts, groups.get(name), consumers.get(name, 0))
                if numbers is None:
                    continue
                if label and self._left > 0 and name:
                    self._left -= 1
                    self._add(label, label_value(name), numbers)
                else:
                    several = self._several.setdefault(label, [0, 0, 0, 0])
                    self._several[label] = [a + b for a, b in zip(several, numbers, strict=True)]
            yield
        yield

    def _add(self, queue: str, group: str, numbers: list[int]) -> None:
        *events, consumers = numbers
        labels = {"queue": queue, "group": group}
        for state, number in zip(STATES, events, strict=True):
            self._groups.add(number, pairs({**labels, "state": state}))
        self._consumers.add(consumers, pairs(labels))

    def end(self) -> None:
        """Add the lines about everything that is not shown by name."""
        if self._rest:
            self._events.add(self._rest, pairs({"queue": ""}))
        for queue, numbers in self._several.items():
            self._add(queue, "", numbers)


def _numbers(
    queue: Queue | None, counts: list[int], group: Group | None, consumers: int
) -> list[int] | None:
    """Return the events of ``group`` by state and its ``consumers``; None if it has neither.

    Args:
        counts: the result of ``counts_from`` for the queue's log.
    """
    if queue is None or group is None:
        return [queue.log.count if queue is not None else 0, 0, 0, consumers] if consumers else None
    first = queue.log.first()
    if not (group.entries or consumers or (first is not None and group.pointer >= first.t)):
        return None  # everything delivered to it is gone
    available = queue.log.count_after(group.pointer, counts) - group.ahead
    return [available, group.inprogress, group.redo, consumers]


class RedisFigures:
    """The metrics of the Redis that keeps the events of ``store``."""

    def __init__(self, store: "RedisStore") -> None:
        self._store = store

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write the metrics into ``sheet``."""
        info = self._store.info()
        health = self._store.health
        up = int(info["redis_link_status"] == "up")
        sheet.gauge(
            "bananaq_redis_up", "Whether all nodes of Redis execute commands (1 for yes).", up
        )
        states = sheet.gauge("bananaq_redis_nodes", "Nodes of Redis, by state.")
        for state, number in health.states().items():
            states.add(number, pairs({"state": state}))
        trip = float(info["redis_round_trip_us"]) / 1e6
        for name, text, value in (
            (
                "down_seconds",
                "How long at least one node of Redis has not been up.",
                info["redis_down_since_seconds"],
            ),
            (
                "round_trip_seconds",
                "Round trip of the last probe on the slowest node.",
                trip if trip >= 0 else float("nan"),
            ),
        ):
            sheet.gauge(f"bananaq_redis_{name}", text, float(value))
        sheet.histogram(
            "bananaq_redis_call_seconds", "Time from a call to Redis to its reply.", health.calls
        )
        for name, text, count in (
            ("errors", "Calls to Redis that failed.", info["redis_errors"]),
            ("reconnects", "Reconnections to Redis.", health.reconnects),
            ("restarts", "Restarts of Redis that were detected.", info["redis_restarts"]),
        ):
            sheet.counter(f"bananaq_redis_{name}_total", text, float(count))
        yield
