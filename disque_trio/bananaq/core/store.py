"""The interface between bananaq's commands and the stores of events.

Two keep it: ``embedded`` in the process, ``redis_store`` in a Redis that other daemons may use as
well.
"""

from disque_trio.bananaq.core.requests import Request
from disque_trio.bananaq.core.results import Result
from disque_trio.native import mypyc_attr
from disque_trio.respserver.machine import Machine
from disque_trio.respserver.memory import Memory

Sections = dict[str, dict[str, str | int | float]]
"""Of INFO."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Store:
    """Stores events. The methods defined here are the defaults, which suit a store outside of the
    process.

    Attributes:
        answers: requests for which ``run`` returned None, with their results. The broker takes
            them.
        available: names of queues, each with that of a group or None for all groups, of which an
            event may have become available for which somebody might wait: it was added, missed its
            deadline, was put back. The broker takes them.
        memory: the account of what it holds in this process.
    """

    def __init__(self) -> None:
        self.answers: list[tuple[Request, Result]] = []
        self.available: list[tuple[bytes, bytes | None]] = []
        self.memory = Memory(0)

    def attach(self, machine: Machine) -> None:
        """Record changes in the journal of ``machine`` from now on, as far as they belong in its
        append-only file."""

    def run(self, request: Request, now: int) -> Result | None:
        """Do what ``request`` asks for at ``now`` (ms since the epoch, the daemon's clock). None:
        later, when the result is in ``answers``. Raises nothing: what goes wrong is in
        ``Result.error``."""
        raise NotImplementedError

    def watch(self, queue: bytes, group: bytes) -> None:
        """Note in ``available`` events of ``queue`` from now on, also for those of other
        daemons. Called once for each client that begins to wait."""

    def unwatch(self, queue: bytes, group: bytes) -> None:
        """Called once for each client that no longer waits."""

    def enter(self, queue: bytes, group: bytes, consumer: int) -> None:
        """Register the connection with the number ``consumer`` as a consumer of ``group``; the
        number of consumers is a part of ``Status``. Called once for each connection, queue, group.
        """

    def leave(self, queue: bytes, group: bytes, consumer: int) -> None:
        """Undo ``enter``."""

    def tick(self, now: int) -> None:
        """Do the work due at ``now`` (ms): missed deadlines, expired events."""

    def next_due(self) -> int:
        """When ``tick`` has to be called, ms; 0: not before something happens."""
        return 0

    def held(self) -> int:
        """The number of events held in this process."""
        return 0

    def sections(self) -> Sections:
        """Sections of INFO about the events."""
        return {}

    def load_record(self, record: list[bytes], now: int) -> int:
        """Apply a record of the append-only file at ``now`` (µs). Returns 1 if an event was taken,
        else 0.

        Raises:
            ValueError: it is no record, or there is no such file.
        """
        raise ValueError("the events are not kept in this process")

    def start_dump(self) -> None:
        """Begin to dump everything; see ``EventDump``."""

    def dump_step(self, room: int) -> tuple[list[bytes], bool]:
        """The next records, of about ``room`` bytes, and whether these are the last."""
        return [], True
