"""A cluster with jobs and the cells of a lease queue, in memory, for tests that stop anywhere.

The processes of a test are coroutines that never wait: each call of ``Model.step`` may raise
``Killed``, and each call of a cell may raise ``WireError`` although it took effect.
"""

from collections.abc import Iterable, Sequence
from random import Random

from disque_spark.client import WireError
from disque_spark.leases.journal import Cell
from disque_spark.leases.queue import QueueStore
from disque_spark.leases.queue_batch import QueueBatch


class Killed(BaseException):
    """The process was killed at this point."""


class Nodes:
    """The nodes' state: cells, pages, and queued, delivered and acknowledged jobs.

    Args:
        random: decides what fails.
        kill, lose: the probabilities that a process is killed at a call, and that an answer is
            lost.
    """

    def __init__(self, random: Random, kill: float = 0.0, lose: float = 0.0) -> None:
        self.cells: dict[str, Cell] = {}
        self.pages: dict[str, bytes] = {}
        self.queued: list[str] = []
        self.delivered: set[str] = set()
        self.acknowledged: set[str] = set()
        self.fails = True
        self._random = random
        self._kill = kill
        self._lose = lose
        self._added = 0

    def get(self, count: int) -> list[str]:
        """GETJOB."""
        self.step()
        jobs, self.queued = self.queued[:count], self.queued[count:]
        self.delivered.update(jobs)
        return jobs

    def ack(self, ids: Iterable[str]) -> None:
        """ACKJOB."""
        self.step()
        self.acknowledged.update(ids)
        self.delivered.difference_update(ids)
        self.queued = [id for id in self.queued if id not in self.acknowledged]

    def retry(self, held: set[str]) -> None:
        """Requeue all delivered jobs that are not in ``held``."""
        again = self.delivered - held
        self.delivered -= again
        self.queued += sorted(again)

    def step(self) -> None:
        """A point at which a process may be killed."""
        if self.fails and self._random.random() < self._kill:
            raise Killed

    def answer(self) -> None:
        """The request has been carried out; the answer may be lost."""
        self.step()
        if self.fails and self._random.random() < self._lose:
            raise WireError("lost")

    def undecided(self) -> bool:
        """Whether it is undecidable now if a key is free."""
        return self.fails and self._random.random() < self._lose

    def next_id(self) -> str:
        """The next job id."""
        self._added += 1
        return f"D-{self._added}"


class ModelCells:
    """The cells of a queue of ``Nodes``, see ``journal.Cells``."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes

    def put(self, key: str, body: bytes, seconds: int = 0) -> Cell:
        self.nodes.step()
        cell = self.nodes.cells.setdefault(key, Cell(self.nodes.next_id(), key, body))
        self.nodes.answer()
        return cell

    def find(self, key: str, otherwise: bytes = b"") -> Cell | None:
        if otherwise and self.nodes.undecided():
            return self.put(key, otherwise)
        self.nodes.answer()
        return self.nodes.cells.get(key)

    def add(self, body: bytes) -> str:
        self.nodes.step()
        id = self.nodes.next_id()
        self.nodes.pages[id] = body
        self.nodes.answer()
        return id

    def read(self, ids: Sequence[str]) -> list[bytes]:
        self.nodes.answer()
        return [self.nodes.pages[id] for id in ids]

    def bodies(self, ids: Sequence[str]) -> list[bytes | None]:
        self.nodes.answer()
        return [body_of(id) for id in ids]

    def lives(self, id: str) -> bool:
        self.nodes.answer()
        return any(cell.id == id for cell in self.nodes.cells.values())

    def scan(self) -> list[Cell]:
        self.nodes.answer()
        pages = [Cell(id, "", body) for id, body in self.nodes.pages.items()]
        return [*self.nodes.cells.values(), *pages]

    def drop(self, ids: Iterable[str]) -> None:
        dropped = set(ids)
        for id in sorted(dropped):  # it may be killed between any two
            self.nodes.step()
            self.nodes.pages.pop(id, None)
            for key in [key for key, cell in self.nodes.cells.items() if cell.id == id]:
                del self.nodes.cells[key]
        self.nodes.answer()

    def close(self) -> None:
        pass


class ModelPlace:
    """A place for leases in memory, see ``queue.QueuePlace``.

    Attributes:
        log: the store that was opened last.
    """

    log: QueueStore

    def __init__(self) -> None:
        self._nodes = Nodes(Random(1))

    def open(self) -> QueueStore:
        self.log = QueueStore(ModelCells(self._nodes), "model", 0)
        return self.log

    def batch(self, number: int, owner: str, address: str) -> QueueBatch:
        return QueueBatch(ModelCells(self._nodes), "model", number, owner)

    def pages(self) -> int:
        """How many pages there are."""
        return len(self._nodes.pages)


def body_of(id: str) -> bytes:
    """The body of a job; some are large."""
    number = int(id.rpartition("-")[2])
    return f"body of {id} ".encode() * (1000 if number % 7 == 0 else 1)
