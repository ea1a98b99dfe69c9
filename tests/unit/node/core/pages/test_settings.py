"""The settings and the disk change while the node is full: it is never stuck, and loses nothing."""

import random

from disque_trio.node.core.queues.page_out import LEAST_RUN
from tests.support.paged import PagedBench

LIMITS = (0, 100_000, 200_000, 600_000)  # bytes of maxmemory


class Changing:
    """A node whose settings and disk change at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.most = self.rng.choice((4, 16))
        self.node = PagedBench(seed, late=seed)
        self.node.node.journaling = True
        self.limit = 200_000
        self.on = True
        self.ids: list[bytes] = []
        self.done: set[bytes] = set()
        self.set()

    def set(self) -> None:
        """Make the settings take effect, as the process does."""
        self.node.node.memory.set_limit(self.limit)
        above = self.limit // 2 if self.on and self.limit else None
        self.node.node.paging.set_above(above)
        self.node.pages.most = self.most

    def step(self) -> None:
        rng = self.rng
        what = rng.randrange(10)
        if what < 5:
            for _ in range(rng.choice((1, 50, 200))):
                id = self.node(
                    "ADDJOB", rng.choice(("q0", "q0", "q1", "q2")), "x" * rng.choice((3, 300)), 0
                )
                if isinstance(id, bytes):
                    self.ids.append(id)
        elif what < 6:
            self.take(rng.choice((1, 30)))
        elif what < 7:
            self.limit = rng.choice(LIMITS)
            self.set()
        elif what < 8:
            self.on = not self.on
            self.set()
        elif what < 9:
            self.node.full = not self.node.full
            self.node.advance(rng.choice((0, 2)))
        else:
            for id in rng.sample(self.ids, min(len(self.ids), 5)):
                if self.node("ACKJOB", id):
                    self.done.add(id)
        self.node.settle()

    def take(self, most: int) -> bool:
        """Take and acknowledge up to ``most`` jobs; return whether there were any."""
        found = self.node("GETJOB", "NOHANG", "COUNT", most, "FROM", "q0", "q1", "q2")
        if not found:
            return False
        assert isinstance(found, list)
        ids = [job[1] for job in found]
        assert self.done.isdisjoint(ids)
        assert self.node("ACKJOB", *ids) == len(ids)
        self.done.update(ids)
        return True


def test_whatever_changes_all_jobs_can_be_taken_and_then_new_ones_added() -> None:
    on_disk = 0
    for seed in range(10):
        changing = Changing(seed)
        node = changing.node
        for _ in range(60):
            changing.step()
            on_disk = max(on_disk, node.pages.jobs)
        while changing.take(50):
            node.settle()
        assert changing.done == set(changing.ids), seed
        assert (node.pages.jobs, node.pages.taken, node.files) == (0, 0, {})
        assert node.node.memory.used == node.counted_memory()
        assert isinstance(node("ADDJOB", "q0", "x", 0), bytes)
    assert on_disk > 100


def test_a_refusal_says_why_no_jobs_go_to_disk() -> None:
    node = PagedBench(maxmemory=20_000)
    node.node.paging.set_above(None, "appendonly is no")
    while isinstance(reply := node("ADDJOB", "q", "x" * 100, 0), bytes):
        pass
    assert ", and no jobs go to disk (appendonly is no). " in str(reply)


def test_while_the_disk_is_full_adding_is_refused_and_taking_goes_on() -> None:
    node = PagedBench(maxmemory=200_000)
    node.node.paging.set_above(100_000)
    node.pages.most = 8
    node.full = True
    ids: list[bytes] = []
    while isinstance(reply := node("ADDJOB", "q", "x" * 100, 0), bytes):
        ids.append(reply)
        node.advance(0.1)
    text = str(reply)
    assert text.startswith("NOREPL Memory is short: ")
    assert ", and jobs cannot go to disk (No space left on device). " in text
    assert node.info("jobs")["paging_problem"] == "No space left on device"
    for id in ids[:10]:
        assert node.get() == id
        assert node("ACKJOB", id) == 1
    while node.node.memory.used <= 150_000:
        ids.append(node.add("q", "x" * 100))
    node.full = False
    # It is tried again by itself.
    node.advance(3)
    assert node.pages.jobs > 20
    assert node.info("jobs")["paging_problem"] == ""
    assert isinstance(node("ADDJOB", "q", "x", 0), bytes)


def filled(queues: int, *options: str | int) -> PagedBench:
    """A node whose backlog is in so many queues; ``options`` of the jobs."""
    node = PagedBench(maxmemory=4 << 20)
    node.node.paging.set_above(2 << 20)
    for number in range(10_000):
        assert isinstance(node("ADDJOB", f"q{number % queues}", "x" * 100, 0, *options), bytes)
        if number % 100 == 0:
            node.advance(0.1)
            node.settle()
    return node


def test_a_backlog_in_many_queues_may_be_longer_than_memory_too() -> None:
    for queues in (3, 100):
        node = filled(queues)
        assert node.pages.jobs > 6_000
        for queue in range(queues):
            while reply := node("GETJOB", "NOHANG", "COUNT", 100, "FROM", f"q{queue}"):
                assert isinstance(reply, list)
                assert node("ACKJOB", *[job[1] for job in reply]) == len(reply)
        assert node.node.store.jobs.count == node.pages.jobs == 0


def test_segments_are_only_shorter_where_there_is_no_other_way() -> None:
    node = filled(1)
    assert {segment.count for segment in node.pages.segments.values()} == {node.pages.most}
    counts = {segment.count for segment in filled(100).pages.segments.values()}
    assert LEAST_RUN <= min(counts) <= max(counts) < node.pages.most


def test_jobs_in_many_queues_expire_though_they_lie_on_disk() -> None:
    node = filled(100, "TTL", 60)
    for _ in range(30):
        node.advance(3)
        node.settle()
    assert node.node.store.jobs.count == node.pages.jobs == 0


def test_a_problem_is_over_once_there_is_nothing_to_write() -> None:
    node = PagedBench(above=1)
    node.full = True
    for _ in range(50):
        node.add("q")
    node.settle()
    assert node.pages.problem
    for _ in range(48):
        id = node.get()
        assert id is not None
        assert node("ACKJOB", id) == 1
    assert node.pages.problem
    node.advance(3)
    assert node.pages.problem == ""
