"""The checks bite where queues lie on disk: what memory, the index and the files say of jobs is
broken on purpose. Whole clusters notice it, or the node that is compared with one without files."""

from collections.abc import Callable

import pytest

from disque_trio.node.core import node as core_node
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.pages.pages import Pages
from disque_trio.node.core.pages.segment import Segment, SegmentLines
from disque_trio.node.core.queues.paging import Paging
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.start_index import StartIndex
from tests.simulator import index, pages
from tests.simulator.events import SECOND
from tests.simulator.machine import BEFORE_REPLIES, Machine
from tests.simulator.plan import EXTENDED, SAFETY
from tests.simulator.spoiled import MadeOf, Spoil, found
from tests.simulator.world import World
from tests.unit.node.core.pages.test_same_replies import STEPS, Pair

if not core_node.__file__.endswith(".py"):
    pytest.skip("a compiled node cannot be made worse", allow_module_level=True)


def on_disk(world: World) -> None:
    """Let the queues of all nodes lie on disk."""
    world.plan.paging = True


def differs() -> bool:
    """Whether a node whose queues lie on disk answers unlike one that has them in memory."""
    for seed in range(20):
        try:
            pair = Pair(seed)
            for step in range(STEPS):
                pair.step()
                if step % 20 == 0:
                    pair.check()
        except (AssertionError, KeyError, IndexError):
            return True
    return False


def test_clusters_whose_queues_lie_on_disk_pass() -> None:
    assert not found(on_disk, SAFETY, "", seeds=5)


# ---- memory ------------------------------------------------------------------------------------


class BitDropped(Pages):
    """Does not know of the first job of a segment."""

    def add(self, segment: Segment, ids: list[bytes], checksums: list[int], data: bytes) -> None:
        super().add(segment, ids, checksums, data)
        segment.bits[0] &= 254


class BitKept(Segment):
    """Still has a job that has left."""

    __slots__ = ()

    def take(self, place: int) -> int:
        size = super().take(place)
        self.bits[place >> 3] |= 1 << (place & 7)
        return size


class Swapped(SegmentLines):
    """Has two segments in the wrong order."""

    def add(self, segment: Segment) -> None:
        super().add(segment)
        line = self.by_urgency[segment.urgency]
        line[-2:] = line[:-3:-1]


class IndexOfYesterday(Pages):
    """Gives the place of a segment away while the index still leads there."""

    def drop(self, segment: Segment, lines: SegmentLines) -> None:
        super().drop(segment, lines)
        if self._free:
            self._free[-1] = (-1, segment.slot)


@pytest.mark.parametrize(
    ("kind", "text"), [(BitDropped, "copies on"), (BitKept, "RETRY 0 was delivered again")]
)
def test_a_wrong_bit_is_found(kind: type, text: str, made_of: MadeOf) -> None:
    made_of(kind)
    assert found(on_disk, SAFETY, text)


@pytest.mark.parametrize("kind", [BitDropped, BitKept, Swapped, IndexOfYesterday])
def test_what_a_node_gets_wrong_shows_in_its_replies(kind: type, made_of: MadeOf) -> None:
    made_of(kind)
    assert differs()


# ---- groups ------------------------------------------------------------------------------------


def groups_on_disk(world: World) -> None:
    """The same, where each group has one job in hand at a time."""
    on_disk(world)
    world.plan.groups = "fifo"


class OtherGroup(Paging):
    """Takes the first job that comes back with its group for one of another group."""

    def _put_in(self, segment: Segment, jobs: list[Job]) -> None:
        queue = self._store.queues.by_name[segment.queue]
        if segment.group is not None and queue.groups is not None and jobs:
            others = [lane for lane in queue.groups.queues() if lane.name != segment.group]
            if others and not others[0].dry:
                mine, other = queue.lane(segment.group), others[0]
                other.put_in(segment.urgency, jobs[:1])
                other.length += 1
                mine.length -= 1
                del jobs[:1]
        super()._put_in(segment, jobs)


class HeadSkipped(Queue):
    """Goes on with what a group has in memory although its next job lies on disk."""

    __slots__ = ()

    def look(self) -> None:
        super().look()
        if self.dry and self.groups is None and self._chunks:
            self.dry = False


@pytest.mark.parametrize("kind", [OtherGroup, HeadSkipped])
def test_a_group_that_is_out_of_order_is_found(kind: type, made_of: MadeOf) -> None:
    made_of(kind)
    assert found(groups_on_disk, EXTENDED, "left its queue before", seeds=20)


def test_groups_on_disk_pass() -> None:
    assert not found(groups_on_disk, EXTENDED, "", seeds=7)


# ---- files -------------------------------------------------------------------------------------


class Trusting(Segment):
    """Believes whatever its file says, as far as there is any."""

    __slots__ = ()

    def check(self, found: list[int], written: list[int]) -> bool:
        return True


def test_swapped_files_that_are_believed_are_found(
    made_of: MadeOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_of(Trusting)
    monkeypatch.setattr(pages, "SWAPPED_OF", 2)
    assert found(on_disk, SAFETY, "to which nobody moved it")


class Cut(Paging):
    """Does not miss the end of a file."""

    def page_in(self, segment: Segment, data: bytes) -> bool:
        for place in segment.places():
            if segment.offsets[place + 1] > len(data):
                self.pages.take(segment, self._lines_of(segment), place)
        return segment.number not in self.pages.segments or super().page_in(segment, data)


def test_a_lost_end_of_a_file_that_nobody_misses_is_found(
    made_of: MadeOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_of(Cut)
    monkeypatch.setattr(pages, "CUT_OF", 2)
    assert found(on_disk, SAFETY, "")


class SameSeed(Pages):
    """Takes the files of an earlier process for its own."""

    def begin(self, queue: bytes, urgency: int, overhead: int) -> Segment:
        self.seed = 0
        return super().begin(queue, urgency, overhead)


def test_files_of_yesterday_that_are_believed_are_found(
    made_of: MadeOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_of(SameSeed)
    monkeypatch.setattr(pages, "LOST_OF", 2)

    def kill(world: World, machine: Machine) -> None:
        machine.kill(BEFORE_REPLIES, machine=False)

    assert found(again_and_again(kill), SAFETY, "to which nobody moved it")


def again_and_again(end: Callable[[World, Machine], None]) -> Spoil:
    """Let processes whose queues lie on disk ``end`` and start again, instead of all other
    faults."""

    def spoil(world: World) -> None:
        on_disk(world)
        world.plan.faults = 20
        faults = world.faults

        def end_one() -> None:
            machine = faults.rng.choice(world.machines)
            if machine.up and not (machine.dying or machine.stopping):
                end(world, machine)
                world.loop.after(SECOND // 10, lambda: world.revive(machine))

        for kind in ("partition", "crash", "stop", "pause", "clock", "break_links"):
            setattr(faults, kind, end_one)

    return spoil


# ---- the index of a process that has stopped ---------------------------------------------------


def stop(world: World, machine: Machine) -> None:
    machine.stop(handover=False)


def test_clusters_that_start_with_an_index_pass() -> None:
    used: list[Machine] = []

    def spoil(world: World) -> None:
        again_and_again(stop)(world)
        used.extend(world.machines)

    assert not found(spoil, SAFETY, "", seeds=4, first=2)
    assert sum(machine.index_file.used for machine in used) > 5


def test_an_index_of_yesterday_that_is_believed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FOUND", ("yesterday",))
    monkeypatch.setattr(StartIndex, "_check_head", lambda *args: None)
    assert found(again_and_again(stop), SAFETY, "lost a job that its file should have", first=2)
