"""The interface between bananaq's commands and what keeps the events.

Two keep it: ``embedded`` in the process, ``redis`` in a Redis that other daemons may use as well.
"""

from collections.abc import Callable
from typing import Protocol

from disque_trio.bananaq.core.ops import Op


class Store(Protocol):
    """Keeps events.

    Attributes:
        on_answer: called with each operation for which ``run`` returned False, when it is done.
        on_available: called with the name of a queue, and of a group or None for all groups, when
            an event of it may have become available to them for which somebody might wait: it was
            added, missed its deadline, was put back. Called also from within ``run`` and ``tick``.
    """

    on_answer: Callable[[Op], None]
    on_available: Callable[[bytes, bytes | None], None]

    def run(self, op: Op, now: int) -> bool:
        """Do ``op`` at ``now`` (ms since the epoch, the daemon's clock). False: later, when it is
        handed to ``on_answer``. Raises nothing: what goes wrong is in ``op.error``."""
        ...

    def watch(self, queue: bytes, group: bytes) -> None:
        """Somebody begins to wait for events of ``queue``: call ``on_available`` for them from now
        on, also for what other daemons do. Called once for each who waits."""
        ...

    def unwatch(self, queue: bytes, group: bytes) -> None:
        """One waits no more."""
        ...

    def enter(self, queue: bytes, group: bytes, consumer: int) -> None:
        """The connection with the number ``consumer`` is a consumer of ``group`` from now on; how
        many there are is a part of STATUS. Called once for each connection, queue and group."""
        ...

    def leave(self, queue: bytes, group: bytes, consumer: int) -> None:
        """It is not any more."""
        ...

    def tick(self, now: int) -> None:
        """Do what is due at ``now`` (ms): deadlines that were missed, events that end to exist."""
        ...

    def next_due(self) -> int:
        """When ``tick`` has to be called, ms; 0: not before something happens."""
        ...
