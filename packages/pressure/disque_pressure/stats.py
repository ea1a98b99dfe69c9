"""Decodes the statistics of a queue."""

from dataclasses import dataclass
from typing import Any

from disque_pressure.keys import text


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of a queue, all from the same moment.

    Attributes:
        length: the number of elements in the queue.
        bound: the most elements it may hold; None without a bound.
        closed: whether the queue is closed.
        producer, consumer: the id of the client that has or last had the role; None if none had.
        producer_free, consumer_free: whether the role is free.
        produced_messages, produced_bytes, consumed_messages, consumed_bytes: counted since the
            queue was created, without what other clients did not count.
        producer_lease, consumer_lease: seconds until the lease of a holder of our kind expires;
            None if there is none.
        not_full: whether there is a permit to put.
    """

    length: int
    bound: int | None
    closed: bool
    producer: str | None
    consumer: str | None
    producer_free: bool
    consumer_free: bool
    produced_messages: int
    produced_bytes: int
    consumed_messages: int
    consumed_bytes: int
    producer_lease: float | None
    consumer_lease: float | None
    not_full: bool

    @classmethod
    def of(cls, reply: list[Any]) -> "Stats":
        """Decode a successful reply of ``scripts.stats``."""
        length, bound, closed, producer, consumer, producer_free, consumer_free = reply[1:8]
        produced, produced_bytes, consumed, consumed_bytes = map(int, reply[8:12])
        producer_lease, consumer_lease = (ms / 1000 if ms >= 0 else None for ms in reply[12:14])
        return cls(
            length=length,
            bound=int(bound) or None,
            closed=closed > 0,
            producer=None if producer is None else text(producer),
            consumer=None if consumer is None else text(consumer),
            producer_free=producer_free > 0,
            consumer_free=consumer_free > 0,
            produced_messages=produced,
            produced_bytes=produced_bytes,
            consumed_messages=consumed,
            consumed_bytes=consumed_bytes,
            producer_lease=producer_lease,
            consumer_lease=consumer_lease,
            not_full=reply[14] > 0,
        )
