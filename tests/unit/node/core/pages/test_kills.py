"""A node is killed at each step of what it does with its files, and loses nothing."""

from pathlib import Path
from random import Random

from disque_trio.node.core.pages.pages import DROP, READ, REBUILD, WRITE
from tests.support.paged import PagedBench
from tests.unit.node.core.pages.test_paging import loaded, take_all

JOBS = 70


class KilledError(Exception):
    """The process is dead."""


class Mortal(PagedBench):
    """A node that dies after so many ``steps``: before each order, in the middle of each file that
    it writes, and after the last one.

    Attributes:
        done: kinds of orders.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.done: set[int] = set()
        super().__init__(above=1, most=4)
        self.node.journaling = True

    def carry_out(self) -> None:
        self.step()
        order = self.orders[0]
        self.done.add(order.kind)
        if order.kind == WRITE:
            self.files[order.number] = order.data[: len(order.data) // 2]
            self.step()
        super().carry_out()

    def step(self) -> None:
        """Die if it is time."""
        self.steps -= 1
        if not self.steps:
            raise KilledError


class Life:
    """What clients know of a node: the jobs that it has confirmed, and those that it may have."""

    def __init__(self) -> None:
        self.added: list[bytes] = []
        self.asked: set[bytes] = set()  # to end
        self.ended: set[bytes] = set()

    def end(self, node: PagedBench, *ids: bytes) -> None:
        self.asked.update(ids)
        node("ACKJOB", *ids)
        self.ended.update(ids)

    def live(self, node: PagedBench) -> None:
        """Have jobs moved to disk, read alone, read with their segment, and their files removed."""
        added = self.added
        for number in range(JOBS):
            added.append(node.add("q", f"body{number}"))
        node.settle()
        node("SHOW", added[30])
        node("NACK", added[31], added[45])
        self.end(node, *added[20:29])  # all of a segment
        for _ in range(20):
            id = node.get()
            assert id is not None
            self.end(node, id)
        node("QPEEK", "q", 50)
        damaged = next(iter(node.files))
        node.files[damaged] = node.files[damaged][:100]
        added += [node.add("q", "late") for _ in range(10)]
        node.settle()
        for id in added[50:60]:
            self.end(node, id)
        for _ in range(20):
            node.get()
        node("CANCEL", added[61])
        self.asked.add(added[61])
        node.step()


def test_a_kill_at_any_step_loses_no_job_and_brings_none_back(tmp_path: Path) -> None:
    rng = Random(1)
    steps = 0
    while True:
        steps += 1
        node, life = Mortal(steps), Life()
        try:
            life.live(node)
        except KilledError:
            pass
        else:
            break
        left = {number: data for number, data in node.files.items() if rng.randrange(4)}
        again = loaded(node, tmp_path, left=left)
        taken = take_all(again)
        assert len(set(taken)) == len(taken), steps
        there = set(taken)
        assert there.isdisjoint(life.ended), steps
        assert there >= set(life.added) - life.asked, steps
        known = set(life.added)
        assert [id for id in taken if id in known] == [id for id in life.added if id in there]
        assert again.pages.lost == 0
    assert steps > 60
    assert node.done >= {WRITE, READ, DROP, REBUILD}
