"""The interface between bananaq's commands and the stores of events.

There are two stores: ``embedded`` in this process, and ``redis_store`` in a Redis, which other
daemons may also use.
"""

from disque_bananaq.core.requests import Request, Status
from disque_bananaq.core.results import Result
from disque_trio.native import mypyc_attr
from disque_trio.respserver.machine import Machine
from disque_trio.respserver.memory import Memory

Sections = dict[str, dict[str, str | int | float]]
"""Sections of INFO, by name."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Store:
    """Stores events. The default methods suit a store outside of the process.

    Attributes:
        answers: requests for which ``run`` returned None, with their results. The broker takes
            them out.
        available: a queue, and a group or None for all its groups, for each event that may have
            become available to waiting clients: it was added, missed its deadline or was put back.
            The broker takes them out.
        memory: counts the bytes that the store holds in this process.
    """

    def __init__(self) -> None:
        self.answers: list[tuple[Request, Result]] = []
        self.available: list[tuple[bytes, bytes | None]] = []
        self.memory = Memory(0)

    def attach(self, machine: Machine) -> None:
        """Record changes in the journal of ``machine`` from now on, if they belong in its
        append-only file."""

    def run(self, request: Request, now: int) -> Result | None:
        """Do what ``request`` asks for at ``now`` (ms since the epoch, by the daemon's clock). If
        None, the result will be in ``answers`` later. Raises nothing; errors are in
        ``Result.error``."""
        raise NotImplementedError

    def queues_of(self, status: Status) -> list[bytes] | None:
        """The queues that ``status`` is about, if the store can be asked about each by itself, and
        answers at once; otherwise None."""
        return None

    def watch(self, queue: bytes, group: bytes) -> None:
        """Note events of ``queue`` in ``available`` from now on, also those from other daemons.
        Called once for each client that begins to wait."""

    def unwatch(self, queue: bytes, group: bytes) -> None:
        """Undo ``watch``. Called once for each client that no longer waits."""

    def enter(self, queue: bytes, group: bytes, consumer: int) -> None:
        """Register connection number ``consumer`` as a consumer of ``group``; ``Status`` includes
        the number of consumers. Called once for each combination of connection, queue and group.
        """

    def leave(self, queue: bytes, group: bytes, consumer: int) -> None:
        """Undo ``enter``."""

    def tick(self, now: int) -> None:
        """Do the work due at ``now`` (ms): missed deadlines and expired events."""

    def next_due(self) -> int:
        """Return when to call ``tick``, in ms; 0: not before something happens."""
        return 0

    def held(self) -> int:
        """Return the number of events held in this process."""
        return 0

    def sections(self) -> Sections:
        """Return the sections of INFO about the events."""
        return {}

    def load_record(self, record: list[bytes], now: int) -> int:
        """Apply a record of the append-only file at ``now`` (µs). Returns 1 if it added an event,
        else 0.

        Raises:
            ValueError: this is not a valid record, or the store has no such file.
        """
        raise ValueError("the events are not kept in this process")

    def start_dump(self) -> None:
        """Begin to dump everything; see ``EventDump``."""

    def dump_step(self, room: int) -> tuple[list[bytes], bool]:
        """Return the next records, about ``room`` bytes, and whether these are the last."""
        return [], True
