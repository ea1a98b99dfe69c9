"""The embedded store: its own features, and what needs a clock that the test moves."""

from disque_bananaq.core.embedded import A_TICK, EmbeddedStore
from disque_bananaq.core.requests import Add, Flush, Get, Redo, Status, Working, from_now
from packages.bananaq.tests.support.banana_world import (
    START,
    World,
    acknowledge,
    add,
    check_index,
    take,
)
from packages.bananaq.tests.support.store_semantics import MINUTE, MS, EmbeddedDrive, get, try_add

SECOND = 1000 * MS


# --- time ---


def test_a_deadline_is_missed_in_its_millisecond() -> None:
    store = EmbeddedStore()
    add(store, START)
    id = take(store, START, hold=100 * MS)
    assert id is not None
    assert take(store, START + 99) is None
    assert store.next_due() <= START + 100
    store.tick(START + 100)
    assert take(store, START + 100) == id + b"_2"


def test_an_event_can_be_acknowledged_until_its_deadline() -> None:
    for late in (0, 1):
        store = EmbeddedStore()
        add(store, START)
        id = take(store, START, hold=100 * MS)
        assert id is not None
        assert acknowledge(store, START + 99 + late, id) == 1 - late


def test_nothing_outlives_its_end_even_without_ticks() -> None:
    for late in (0, 1):
        store = EmbeddedStore()
        add(store, START, 100 * MS)
        assert (take(store, START + 99 + late) is None) == bool(late)


def test_a_tick_reports_a_missed_deadline_to_a_waiting_client() -> None:
    store = EmbeddedStore()
    store.watch(b"q", b"g")
    told = store.available
    for _ in range(3):
        add(store, START)
        take(store, START, hold=100 * MS)
    told.clear()
    store.tick(START + 100)
    assert told == [(b"q", b"g")]


def test_a_notified_client_may_take_the_event_at_once() -> None:
    store = EmbeddedStore()
    store.watch(b"q", b"g")
    id = add(store, START)
    got = [take(store, START, hold=0) for _ in store.available]
    assert got == [id]
    check_index(store)


def test_nothing_is_noted_while_no_client_waits() -> None:
    store = EmbeddedStore()
    store.watch(b"q", b"g")
    store.unwatch(b"q", b"g")
    add(store, START)
    take(store, START, hold=100 * MS)
    store.tick(START + 100)
    assert store.available == []


def test_the_clock_can_go_back_without_a_repeated_id() -> None:
    store = EmbeddedStore()
    ids = [add(store, now) for now in (START, START - 5000, START - 5000, START + 1)]
    times = [int(id.split(b"_")[0]) for id in ids]
    assert times == sorted(set(times))


def test_a_tick_does_a_part_of_the_work_and_says_that_more_is_left() -> None:
    store = EmbeddedStore()
    for _ in range(30_000):
        add(store, START, SECOND)
    ticks = 0
    while 0 < store.next_due() <= START + 10_000:
        before = store.index.count
        store.tick(START + 10_000)
        assert before - store.index.count <= A_TICK
        ticks += 1
    assert store.index.count == 0
    assert 30_000 // A_TICK <= ticks <= 30_000 // A_TICK + 10
    assert (store.index.queues, store.memory.used) == ({}, 0)


def test_a_get_finds_a_due_event_after_many_others() -> None:
    store = EmbeddedStore()
    add(store, START)
    id = take(store, START, hold=100 * MS)
    assert id is not None
    for _ in range(5000):
        take(store, START, b"other", hold=50 * MS)
        add(store, START)
        take(store, START, b"other", hold=100 * MS)
    for _ in range(5000):
        take(store, START, hold=0)
    assert take(store, START + 100) == id + b"_2"


def test_the_status_is_exact_however_much_is_due() -> None:
    store = EmbeddedStore()
    for n in range(25_000):
        add(store, START, SECOND if n % 5 else MINUTE)
        take(store, START, hold=SECOND)
    [queue] = store.run(Status([], []), START + 1000).queues
    [group] = queue.groups
    assert (queue.total, group.inprogress, group.redo) == (5000, 0, 5000)


# --- memory ---


def test_all_memory_is_released() -> None:
    world = World()
    for n in range(500):
        for queue in (b"a", b"b"):
            body = b"x" * (n % 50)
            expire = from_now((n % 7 + 1) * SECOND)
            own_id = b"%d" % n if n % 3 == 0 else None
            world.run(Add(queue, body, expire, b"g", own_id, n % 5 == 0))
        if n % 2:
            world.run(Get(b"a", b"g", from_now(0)))
        world.run(Get(b"b", b"%d" % (n % 100), from_now(SECOND)))
    world.check()
    assert world.store.memory.used > 1000 * 100
    world.run(Flush(b"b"))
    assert world.store.index.queues.keys() == {b"a"}
    world.tick()
    world.check()
    world.advance(60_000)
    world.check()
    store = world.store
    assert (store.memory.used, store.index.count, store.index.queues) == (0, 0, {})
    assert store.next_due() == 0


def test_a_large_queue_is_flushed_at_once_and_its_memory_released_in_parts() -> None:
    store = EmbeddedStore()
    for _ in range(30_000):
        add(store, START)
        take(store, START)
    store.run(Flush(b"q"), START)
    assert (store.index.count, store.index.queues) == (0, {})
    assert take(store, START) is None
    id = add(store, START)
    held = store.memory.used
    assert held > 30_000 * 100
    assert 0 < store.next_due() <= START
    store.tick(START)
    assert held // 3 < store.memory.used < held
    store.tick(START + 70_000)  # after the end of all of them
    while 0 < store.next_due() <= START + 70_000:
        store.tick(START + 70_000)
    assert (store.memory.used, store.index.count, store.missed, store.expired) == (0, 0, 0, 1)
    assert id


def test_an_idle_group_keeps_nothing_of_ended_events() -> None:
    store = EmbeddedStore()
    add(store, START, 10 * MINUTE)
    for n in range(3000):
        add(store, START + n, SECOND)
        take(store, START + n, b"idle", hold=10 * MS)
        take(store, START + n, b"idle2", hold=10 * MINUTE)
    for now in range(START, START + 20_000, 100):
        while 0 < store.next_due() <= now:
            store.tick(now)
    [queue] = store.index.queues.values()
    for group in queue.groups.values():
        assert len(group.entries) == 1
        assert len(group.redo_order) <= 200
    check_index(store)


def test_unused_groups_are_forgotten() -> None:
    store = EmbeddedStore()
    for n in range(20_000):
        now = START + n
        add(store, now, 5000 * MS)
        take(store, now, b"%d" % n, hold=0)  # a group that is never seen again
    [queue] = store.index.queues.values()
    assert len(queue.groups) < 12_000
    check_index(store)


def test_acknowledged_events_pushed_in_front_are_passed_only_once() -> None:
    store = EmbeddedStore()
    for _ in range(1000):
        store.run(Add(b"q", b"", from_now(MINUTE), b"g", front=True), START)
        take(store, START, hold=0)
    group = store.index.queues[b"q"].groups[b"g"]
    assert take(store, START) is None
    assert (group.entries, group.ahead) == ({}, 0)
    check_index(store)


# --- totals ---


async def test_totals_count_what_happened() -> None:
    drive = EmbeddedDrive()
    store = drive.store
    for _ in range(3):
        await try_add(drive, b"q", b"", SECOND)
    event = await get(drive, b"q", b"g")
    acknowledge(store, drive.ms, event.id)
    await get(drive, b"q", b"g", 0)
    await get(drive, b"q", b"g", 10 * MS)
    await drive.advance(100)
    await drive.advance(1000)
    totals = (store.added, store.given, store.acked, store.missed, store.expired)
    assert totals == (3, 3, 2, 1, 3)


# --- when more is due than is done at once ---


def test_a_late_acknowledgement_does_not_count_however_much_is_due() -> None:
    store = EmbeddedStore()
    ids = []
    for _ in range(4000):
        add(store, START)
        id = take(store, START, hold=100 * MS)
        assert id is not None
        ids.append(id)
    assert [acknowledge(store, START + 100, id) for id in ids] == [0] * 4000


def test_an_own_id_is_free_when_its_event_ends_however_many_end() -> None:
    store = EmbeddedStore()
    for now in (START, START + 1000):
        for n in range(4000):
            add_own = Add(b"q", b"", from_now(SECOND), b"g", b"%d" % n)
            assert store.run(add_own, now).duplicate is None


# --- a group's figures ---


def test_a_waiting_client_is_not_told_the_deadline_of_an_acknowledged_event() -> None:
    store = EmbeddedStore()
    for _ in range(2):
        add(store, START)
    first = take(store, START, hold=10 * MS)
    assert first is not None
    take(store, START, hold=500 * MS)
    assert acknowledge(store, START, first) == 1
    result = store.run(Get(b"q", b"g", from_now(0)), START + 20)
    assert result.event is None
    assert result.due == (START + 500) * 1000


def test_repeated_requeues_and_deliveries_leave_nothing_behind() -> None:
    store = EmbeddedStore()
    for own_id in (b"x", b"y"):
        store.run(Add(b"q", b"", from_now(MINUTE), b"g", own_id), START)
    take(store, START)
    take(store, START)
    for n in range(1000):
        for own_id in (b"x", b"y"):
            assert store.run(Redo(b"q", b"g", own_id=own_id), START).count == 1
        for own_id in (b"y", b"x"):
            if (n, own_id) == (999, b"x"):
                break
            working = Working(b"q", b"g", from_now(MINUTE), own_id=own_id)
            assert store.run(working, START).count == 1
    assert len(store.index.queues[b"q"].groups[b"g"].redo_order) < 100
    check_index(store)
    assert take(store, START) is not None
    assert take(store, START) is None
