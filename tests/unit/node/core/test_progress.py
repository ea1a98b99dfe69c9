"""When a node writes down what becomes of its jobs."""

from io import BytesIO

import pytest

from disque_trio.protocol.progress import ProgressReader
from tests.support.node_bench import Bench
from tests.support.recovered import Files


class Turns:
    """A node that takes turns, as the engine lets it, and what it has written."""

    def __init__(self) -> None:
        self.bench = Bench(1, jitter=0)
        self.files = Files(self.bench)

    def turn(self, *commands: tuple[bytes, ...]) -> tuple[int, int]:
        """Take a turn; return how many blocks were written before, and after, its replies left."""
        node = self.bench.node
        for command in commands:
            node.command(self.bench.me, list(command), self.bench.now)
        blocks = self.files.progress
        first = len(blocks)
        node.commit()
        second = len(blocks)
        node.replied()
        return second - first, len(blocks) - second

    def wait(self, ms: int = 1) -> None:
        """Let time pass."""
        self.bench.now += ms
        self.bench.node.tick(self.bench.now)

    def read(self) -> ProgressReader:
        """What is in the file."""
        found = ProgressReader()
        found.read(BytesIO(b"".join(self.files.progress)))
        return found


@pytest.fixture
def turns() -> Turns:
    return Turns()


GET = (b"GETJOB", b"NOHANG", b"FROM", b"q")


def test_what_clients_get_is_written_once_in_a_ms_before_the_replies_leave(turns: Turns) -> None:
    ids = [turns.bench.add() for _ in range(6)]
    assert turns.turn(GET, GET) == (1, 0)
    assert turns.turn(GET) == (0, 0)
    assert turns.turn(GET) == (0, 0)
    assert turns.bench.node.next_wake() == turns.bench.now + 1
    assert list(turns.read().jobs) == ids[:2]
    turns.wait()
    assert turns.turn(GET) == (1, 0)
    assert list(turns.read().jobs) == ids[:5]
    assert not turns.bench.node.progress.due
    turns.wait()
    assert turns.turn(GET) == (1, 0)


def test_what_waited_is_written_when_nothing_else_happens(turns: Turns) -> None:
    ids = [turns.bench.add() for _ in range(2)]
    turns.turn(GET)
    turns.turn(GET)
    turns.wait()
    assert turns.turn() == (1, 0)
    assert list(turns.read().jobs) == ids
    turns.wait()
    assert turns.turn() == (0, 0)


def test_what_became_of_a_job_comes_after_its_delivery(turns: Turns) -> None:
    ids = [turns.bench.add() for _ in range(2)]
    assert turns.turn(GET) == (1, 0)
    assert turns.turn(GET, (b"NACK", ids[1])) == (0, 1)
    found = turns.read().jobs
    assert found[ids[0]].taken
    assert not found[ids[1]].taken
    assert not turns.bench.node.progress.due


def test_without_a_file_nothing_is_kept_for_it(turns: Turns) -> None:
    turns.bench.node.progress.recording = False
    id = turns.bench.add()
    assert turns.turn(GET, (b"NACK", id)) == (0, 0)
    assert not turns.bench.node.progress.taken
    assert not turns.bench.node.progress.due
