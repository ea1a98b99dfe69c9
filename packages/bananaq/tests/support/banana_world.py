"""The embedded store, its append-only file and its model, side by side."""

import io

from disque_bananaq.core.broker import Broker
from disque_bananaq.core.deadlines import Deadlines, Timed
from disque_bananaq.core.embedded import EmbeddedStore
from disque_bananaq.core.events import (
    AGAIN,
    DELIVERY_BYTES,
    DONE,
    GROUP_BYTES,
    IN_PROGRESS,
    QUEUE_BYTES,
)
from disque_bananaq.core.requests import (
    Ack,
    Add,
    Get,
    Last,
    Next,
    Request,
    Status,
    from_now,
)
from disque_bananaq.core.results import Result
from disque_trio.aof.format import RecordReader
from disque_trio.respserver.host import Host
from packages.bananaq.tests.support.banana_model import Model

START = 1_700_000_000_000  # ms


def items(deadlines: Deadlines) -> list[Timed]:
    """All items in ``deadlines``, each of which must know its position."""
    found = []
    for buckets in (deadlines._near, deadlines._far):
        for bucket in buckets.values():
            for slot, item in enumerate(bucket):
                assert item.bucket is bucket
                assert item.slot == slot
                found.append(item)
    return found


def journaling(store: EmbeddedStore) -> Broker:
    """A state machine with a journal for ``store``."""
    broker = Broker(store, {}, Host(), lambda: 0)
    broker.journaling = True
    return broker


def check_index(store: EmbeddedStore) -> None:
    """Check all counters of ``store`` by counting. Does not work with flushed queues."""
    index = store.index
    assert not index.flushed
    memory = 0
    count = 0
    in_progress = 0
    for name, queue in index.queues.items():
        memory += QUEUE_BYTES + len(name)
        log = queue.log
        times = [event.t for block in log.blocks for event in block.events]
        assert times == [t for block in log.blocks for t in block.times]
        assert times == sorted(set(times))
        assert all(block.events for block in log.blocks)
        assert len(log._firsts) == len(log.blocks)
        assert log.count == len(times)
        count += log.count
        of_events = 0
        for block in log.blocks:
            for event in block.events:
                assert event.queue is queue
                assert event.bucket is not None
                memory += event.size()
                entry = event.held
                before = None
                while entry is not None:
                    of_events += 1
                    assert entry.before is before
                    assert entry.group.entries[event.t] is entry
                    before, entry = entry, entry.behind
        for own_id, event in queue.own_ids.items():
            assert event.own_id == own_id
            assert log.find(event.t) is event
        of_groups = 0
        for group_name, group in queue.groups.items():
            memory += GROUP_BYTES + len(group_name)
            entries = list(group.entries.values())
            of_groups += len(entries)
            assert group.inprogress == sum(e.state == IN_PROGRESS for e in entries)
            assert group.redo == sum(e.state == AGAIN for e in entries)
            assert group.ahead == sum(e.event.t > group.pointer for e in entries)
            assert all(e.event.t > group.pointer for e in entries if e.state == DONE)
            assert all((e.bucket is not None) == (e.state == IN_PROGRESS) for e in entries)
            in_progress += group.inprogress
            assert all(log.find(t) is not None for t in group.entries)
        assert of_groups == of_events
        memory += of_groups * DELIVERY_BYTES
    assert index.count == count
    assert len(items(index.expiries)) == count
    assert len(items(index.deadlines)) == in_progress
    assert store.memory.used == memory


class World:
    """The store, file and model; every operation is checked against the model.

    Attributes:
        ms: the time. ids: (queue, group, id) of delivered events.
    """

    def __init__(self) -> None:
        self.ms = START
        self.model = Model()
        self.ids: list[tuple[bytes, bytes, bytes]] = []
        self.file: list[bytes] = []
        self.new_file: list[bytes] | None = None
        self.told: set[tuple[bytes, bytes | None]] = set()
        self.store = self._new_store()
        self._restarted = False

    def _new_store(self) -> EmbeddedStore:
        store = EmbeddedStore()
        store.watch(b"a", b"g")  # so that it tells what may have become available
        self.journal_of = journaling(store)
        return store

    def run(self, request: Request) -> Result:
        result = self.store.run(request, self.ms)
        self.model.check(request, result, self.ms * 1000)
        if result.event is not None:
            assert isinstance(request, (Get, Next, Last))
            group = b"" if isinstance(request, Last) else request.group
            self.ids.append((request.queue, group, result.event.id))
        self._write()
        self._compare_told()
        return result

    def _write(self) -> None:
        journal = self.journal_of.journal
        self.journal_of.journal = []
        self.file += journal
        if self.new_file is not None:
            self.new_file += journal

    def _compare_told(self) -> None:
        self.told.update(self.store.available)
        self.store.available.clear()
        assert self.model.told <= self.told
        if not self._restarted:
            assert self.model.told == self.told
        self.model.told.clear()
        self.told.clear()

    def advance(self, ms: int, tick: bool = True) -> None:
        self.ms += ms
        if tick:
            self.tick()

    def tick(self) -> None:
        while 0 < self.store.next_due() <= self.ms:
            self.store.tick(self.ms)
        self.model.pass_time(self.ms * 1000)
        self._write()
        self._compare_told()

    def step_dump(self, room: int) -> None:
        """Write part of a new file, starting one if necessary."""
        if self.new_file is None:
            self.new_file = []
            self.store.start_dump()
        records, last = self.store.dump_step(room)
        self.new_file += records
        if last:
            self.file = self.new_file
            self.new_file = None

    def restart(self) -> None:
        """Restart with only the file left."""
        self.new_file = None
        self.model.consumers.clear()  # their connections are gone
        last_t = self.store.index.last_t
        self.store = self._new_store()
        self._restarted = True
        taken = 0
        for args in RecordReader(io.BytesIO(b"".join(self.file))):
            taken += self.store.load_record(args, self.ms * 1000)
        assert self.store.index.last_t >= last_t
        assert taken >= self.store.index.count
        self.check()

    def enter(self, queue: bytes, group: bytes) -> None:
        self.store.enter(queue, group, 1)
        self.model.consumers.append((queue, group))

    def leave(self, number: int) -> None:
        queue, group = self.model.consumers.pop(number)
        self.store.leave(queue, group, 1)

    def check(self) -> None:
        """Check all statuses against the model, and all counters."""
        self.run(Status([], []))
        self.tick()
        check_index(self.store)


def add(store: EmbeddedStore, now: int, expire: int = 60_000_000, queue: bytes = b"q") -> bytes:
    return store.run(Add(queue, b"body", from_now(expire)), now).id


def take(
    store: EmbeddedStore, now: int, group: bytes = b"g", hold: int = 60_000_000
) -> bytes | None:
    event = store.run(Get(b"q", group, from_now(hold)), now).event
    return None if event is None else event.id


def acknowledge(store: EmbeddedStore, now: int, id: bytes, group: bytes = b"g") -> int:
    return store.run(Ack(b"q", group, id), now).count


def reload(records: list[bytes], now: int) -> EmbeddedStore:
    """A store loaded from a file with ``records``."""
    store = EmbeddedStore()
    for args in RecordReader(io.BytesIO(b"".join(records))):
        store.load_record(args, now * 1000)
    return store
