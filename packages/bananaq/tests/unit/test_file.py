"""The append-only file of the embedded store: writing, loading, and concurrent rewrites."""

import pytest

from disque_bananaq.core.embedded import EmbeddedStore
from disque_bananaq.core.requests import (
    Ack,
    Add,
    Flush,
    Get,
    Next,
    Redo,
    Status,
    from_now,
)
from packages.bananaq.tests.support.banana_world import (
    START,
    World,
    acknowledge,
    add,
    check_index,
    journaling,
    reload,
    take,
)
from packages.bananaq.tests.support.store_semantics import (
    MINUTE,
    MS,
    EmbeddedDrive,
    body,
    flush,
    get,
    try_add,
)

SECOND = 1000 * MS


def test_nothing_is_written_for_the_passage_of_time_or_without_a_change() -> None:
    world = World()
    world.run(Add(b"q", b"", from_now(SECOND)))
    world.run(Get(b"q", b"g", from_now(10 * MS)))
    size = len(world.file)
    for request in (
        Next(b"q", b"g"),
        Status([], []),
        Ack(b"q", b"none"),
        Redo(b"q", b"g"),
        Get(b"q", b"g", from_now(0)),
    ):
        world.run(request)
        if isinstance(request, Get):
            continue
        world.advance(1)
    world.file = world.file[:size]
    world.advance(100)
    world.run(Status([], []))
    world.advance(2000)
    assert len(world.file) == size


def test_a_journal_is_written_only_on_request() -> None:
    store = EmbeddedStore()
    machine = journaling(store)
    machine.journaling = False
    add(store, START)
    assert machine.journal == []
    machine.journaling = True
    add(store, START)
    assert len(machine.journal) == 1


@pytest.mark.parametrize(
    "args",
    [
        [b"LOADJOB", b"x"],
        [b"QEVENT", b"q", b"1"],
        [b"QEVENT", b"q", b"x", b"2", b"body"],
        [b"QEVENT", b"q", b"1", b"-2", b"body"],
        [b"QEVENT", b"q", b"1", b"2", b"body", b"own", b"more"],
        [b"QGET", b"q", b"g", b"", b"1"],
        [b"QGIVE", b"q", b"g", b"1", b"1", b"9" * 30],
        [b"QREDO", b"q", b"g", b"1", b"x", b"1"],
        [b"QDONE", b"q", b"g"],
        [b"QDROP"],
        [b""],
    ],
)
def test_an_invalid_record_is_refused(args: list[bytes]) -> None:
    store = EmbeddedStore()
    with pytest.raises(ValueError, match=r"record|command"):
        store.load_record(args, START * 1000)
    assert store.index.queues == {}


def test_records_about_unknown_events_only_move_the_pointer() -> None:
    store = EmbeddedStore()
    t = START * 1000
    for args in (
        [b"QGET", b"q", b"g", b"%d" % t, b"%d" % (t + MINUTE)],
        [b"QGIVE", b"q", b"g", b"%d" % t, b"2", b"%d" % (t + MINUTE)],
        [b"QREDO", b"q", b"g", b"%d" % t, b"2", b"0"],
        [b"QDONE", b"none", b"g", b"%d" % t],
        [b"QDROP", b"none"],
    ):
        assert store.load_record(args, t) == 0
    assert store.load_record([b"QEVENT", b"q", b"%d" % t, b"%d" % (t + MINUTE), b"x"], t) == 1
    assert store.load_record([b"QEVENT", b"q", b"%d" % t, b"%d" % (t + MINUTE), b"x"], t) == 0
    assert take(store, START) is None
    assert take(store, START, b"other") is not None
    check_index(store)


def test_pointers_without_events_are_forgotten_after_loading() -> None:
    store = EmbeddedStore()
    store.load_record([b"QPOINTER", b"q", b"g", b"5"], START * 1000)
    store.tick(START)
    assert (store.index.queues, store.memory.used) == ({}, 0)


def test_ended_events_are_not_loaded_but_their_ids_stay_used() -> None:
    store = EmbeddedStore()
    t = (START + 10_000) * 1000
    assert store.load_record([b"QEVENT", b"q", b"%d" % t, b"5", b"x"], START * 1000) == 0
    assert (store.index.count, store.memory.used) == (0, 0)
    assert int(add(store, START).split(b"_")[0]) == t + 1


def test_a_rewritten_file_keeps_the_last_id_of_a_store_without_events() -> None:
    world = World()
    world.run(Add(b"q", b"", from_now(SECOND)))
    world.run(Flush(b"q"))
    world.step_dump(1000)
    assert len(world.file) == 1
    world.ms -= 5000  # the clock is set back meanwhile
    world.restart()
    world.run(Add(b"q", b"", from_now(SECOND)))


def test_a_restart_does_not_deliver_an_event_again_but_delivers_a_late_one() -> None:
    store = EmbeddedStore()
    machine = journaling(store)
    add(store, START)
    add(store, START)
    first = take(store, START, hold=100 * MS)
    second = take(store, START, hold=MINUTE)
    assert first is not None
    assert second is not None
    loaded = reload(machine.journal, START + 200)
    assert acknowledge(loaded, START + 200, first) == 0
    assert acknowledge(loaded, START + 200, second) == 1
    assert take(loaded, START + 200) == first + b"_2"


async def test_steps_of_a_dump_have_about_the_requested_size() -> None:
    drive = EmbeddedDrive()
    for n in range(500):
        await try_add(drive, b"%d" % (n % 7), b"x" * 100, group=b"g", front=n % 9 == 0)
        await body(drive, b"0", b"group %d" % n, 0)
    drive.store.start_dump()
    sizes = []
    last = False
    while not last:
        records, last = drive.store.dump_step(2000)
        sizes.append(sum(len(record) for record in records))
    assert max(sizes) < 2600
    assert min(sizes[:-1]) >= 2000
    assert drive.store.dump_step(2000) == ([], True)


async def test_a_queue_that_is_flushed_and_recreated_during_a_dump_is_the_new_one() -> None:
    for after_steps in range(8):
        world = World()
        drive = EmbeddedDrive()
        drive.store = world.store
        drive.ms = world.ms
        file: list[bytes] = []
        for n in range(4):
            await try_add(drive, b"q", b"old %d" % n)
            await get(drive, b"q", b"g")
        machine = world.journal_of
        machine.journal.clear()
        drive.store.start_dump()
        last = False
        for step in range(30):
            if step == after_steps:
                await flush(drive, b"q")
                await try_add(drive, b"q", b"new 1")
                await try_add(drive, b"q", b"new 2")
                await get(drive, b"q", b"g")
                file += machine.journal
            if not last:
                records, last = drive.store.dump_step(1)
                file += records
        assert last
        drive.store = reload(file, drive.ms)
        assert [await body(drive, b"q", b"g") for _ in range(2)] == [b"new 2", None]
        assert [await body(drive, b"q", b"h") for _ in range(3)] == [b"new 1", b"new 2", None]


def test_a_dump_omits_events_that_are_added_meanwhile() -> None:
    store = EmbeddedStore()
    add(store, START)
    add(store, START)
    store.start_dump()
    records: list[bytes] = []
    last = False
    while not last:
        more, last = store.dump_step(1)
        records += more
        add(store, START)
        assert store.index.count < 10
    assert len([record for record in records if b"QEVENT" in record]) == 2


def test_an_event_that_is_to_be_redelivered_keeps_its_number_in_a_dump() -> None:
    store = EmbeddedStore()
    id = add(store, START)
    take(store, START, hold=10 * MS)
    store.tick(START + 10)
    take(store, START + 10, hold=10 * MS)
    store.tick(START + 20)
    store.start_dump()
    records, last = store.dump_step(10_000)
    assert last
    assert take(reload(records, START + 20), START + 20) == id + b"_3"


def test_an_own_id_means_the_newer_of_two_events_whatever_the_order_of_loading() -> None:
    t = START * 1000
    end = b"%d" % (t + MINUTE)
    old = [b"QEVENT", b"q", b"%d" % (t - 5), end, b"old", b"x"]
    new = [b"QEVENT", b"q", b"%d" % (t - 4), end, b"new", b"x"]
    for records in ([old, new], [new, old]):
        store = EmbeddedStore()
        for record in records:
            store.load_record(record, t)
        pointer = [b"QPOINTER", b"q", b"g", b"%d" % (t - 5)]
        store.load_record(pointer, t)
        take(store, START)
        assert store.run(Ack(b"q", b"g", own_id=b"x"), START).count == 1
