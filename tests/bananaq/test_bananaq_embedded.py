"""The embedded store: what is its own, and what only a clock moved by hand can show."""

from banana_world import START, World, acknowledge, add, check_books, take
from store_semantics import MINUTE, MS, EmbeddedDrive, get, try_add

from disque_trio.bananaq.core.embedded import EmbeddedStore
from disque_trio.bananaq.core.ops import ADD, FLUSH, GET, REDO, STATUS, WORKING, Op

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


def test_nothing_outlives_its_end_though_nobody_ticks() -> None:
    for late in (0, 1):
        store = EmbeddedStore()
        add(store, START, 100 * MS)
        assert (take(store, START + 99 + late) is None) == bool(late)


def test_who_waits_is_told_of_a_missed_deadline_by_a_tick() -> None:
    store = EmbeddedStore()
    told: list[tuple[bytes, bytes | None]] = []
    store.on_available = lambda queue, group: told.append((queue, group))
    for _ in range(3):
        add(store, START)
        take(store, START, hold=100 * MS)
    told.clear()
    store.tick(START + 100)
    assert told == [(b"q", b"g")]


def test_who_is_told_may_take_the_event_at_once() -> None:
    store = EmbeddedStore()
    got: list[bytes | None] = []
    store.on_available = lambda queue, group: got.append(take(store, START, hold=0))
    id = add(store, START)
    assert got == [id]
    check_books(store)


def test_the_clock_can_go_back_without_an_id_coming_twice() -> None:
    store = EmbeddedStore()
    ids = [add(store, now) for now in (START, START - 5000, START - 5000, START + 1)]
    times = [int(id.split(b"_")[0]) for id in ids]
    assert times == sorted(set(times))


def test_a_tick_does_not_do_everything_at_once_and_says_that_it_has_more_to_do() -> None:
    store = EmbeddedStore()
    for _ in range(30_000):
        add(store, START, SECOND)
    ticks = 0
    while 0 < store.next_due() <= START + 10_000:
        before = store.count
        store.tick(START + 10_000)
        assert before - store.count <= 10_000
        ticks += 1
    assert store.count == 0
    assert 3 <= ticks <= 20
    assert (store.queues, store.memory_used) == ({}, 0)


def test_a_get_finds_what_is_due_behind_much_else_that_is() -> None:
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
    op = Op(STATUS, b"")
    store.run(op, START + 1000)
    [queue] = op.status
    [group] = queue.groups
    assert (queue.total, group.inprogress, group.redo) == (5000, 0, 5000)


# --- memory ---


def test_all_memory_is_given_back() -> None:
    world = World()
    for n in range(2000):
        for queue in (b"a", b"b"):
            op = Op(ADD, queue, b"g")
            op.body = b"x" * (n % 50)
            op.expire = (n % 7 + 1) * SECOND
            op.own_id = b"%d" % n if n % 3 == 0 else b""
            op.front = n % 5 == 0
            world.run(op)
        if n % 2:
            world.run(Op(GET, b"a", b"g"))
        op = Op(GET, b"b", b"%d" % (n % 100))
        op.hold = SECOND
        world.run(op)
    world.check()
    assert world.store.memory_used > 4000 * 100
    world.run(Op(FLUSH, b"b"))
    assert world.store.queues.keys() == {b"a"}
    world.tick()
    world.check()
    world.advance(60_000)
    world.check()
    store = world.store
    assert (store.memory_used, store.count, store.queues) == (0, 0, {})
    assert store.next_due() == 0


def test_a_large_queue_is_flushed_at_once_and_its_memory_given_back_in_parts() -> None:
    store = EmbeddedStore()
    for _ in range(30_000):
        add(store, START)
        take(store, START)
    store.run(Op(FLUSH, b"q"), START)
    assert (store.count, store.queues) == (0, {})
    assert take(store, START) is None
    id = add(store, START)
    held = store.memory_used
    assert held > 30_000 * 100
    assert 0 < store.next_due() <= START
    store.tick(START)
    assert held // 3 < store.memory_used < held
    store.tick(START + 70_000)  # all of them would have ended
    while 0 < store.next_due() <= START + 70_000:
        store.tick(START + 70_000)
    assert (store.memory_used, store.count, store.missed, store.expired) == (0, 0, 0, 1)
    assert id


def test_a_group_that_does_nothing_more_keeps_nothing_of_events_that_ended() -> None:
    store = EmbeddedStore()
    add(store, START, 10 * MINUTE)
    for n in range(3000):
        add(store, START + n, SECOND)
        take(store, START + n, b"idle", hold=10 * MS)
        take(store, START + n, b"idle2", hold=10 * MINUTE)
    for now in range(START, START + 20_000, 100):
        while 0 < store.next_due() <= now:
            store.tick(now)
    [queue] = store.queues.values()
    for group in queue.groups.values():
        assert len(group.entries) == 1
        assert len(group.redo_order) <= 200
    check_books(store)


def test_groups_that_are_as_if_they_had_never_been_are_forgotten() -> None:
    store = EmbeddedStore()
    for n in range(20_000):
        now = START + n
        add(store, now, 5000 * MS)
        take(store, now, b"%d" % n, hold=0)  # one that is never seen again
    [queue] = store.queues.values()
    assert len(queue.groups) < 12_000
    check_books(store)


def test_acknowledged_events_pushed_in_front_are_passed_only_once() -> None:
    store = EmbeddedStore()
    for _ in range(1000):
        op = Op(ADD, b"q", b"g")
        op.expire = MINUTE
        op.front = True
        store.run(op, START)
        take(store, START, hold=0)
    group = store.queues[b"q"].groups[b"g"]
    assert take(store, START) is None
    assert (group.entries, group.ahead) == ({}, 0)
    check_books(store)


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


def test_a_late_acknowledgement_counts_nothing_however_much_is_due() -> None:
    store = EmbeddedStore()
    ids = []
    for _ in range(4000):
        add(store, START)
        id = take(store, START, hold=100 * MS)
        assert id is not None
        ids.append(id)
    assert [acknowledge(store, START + 100, id) for id in ids] == [0] * 4000


def test_an_own_id_is_free_at_the_end_of_its_event_however_much_ends() -> None:
    store = EmbeddedStore()
    for now in (START, START + 1000):
        for n in range(4000):
            op = Op(ADD, b"q", b"g")
            op.own_id = b"%d" % n
            op.expire = SECOND
            store.run(op, now)
            assert not op.conflict


# --- a group's figures ---


def test_an_acknowledged_deadline_is_not_what_a_waiter_is_told_later() -> None:
    store = EmbeddedStore()
    for _ in range(2):
        add(store, START)
    first = take(store, START, hold=10 * MS)
    assert first is not None
    take(store, START, hold=500 * MS)
    assert acknowledge(store, START, first) == 1
    op = Op(GET, b"q", b"g")
    store.run(op, START + 20)
    assert op.event is None
    assert op.due == (START + 500) * 1000


def test_what_is_put_back_and_taken_again_for_ever_leaves_nothing_behind() -> None:
    store = EmbeddedStore()
    for own_id in (b"x", b"y"):
        op = Op(ADD, b"q", b"g")
        op.own_id = own_id
        op.expire = MINUTE
        store.run(op, START)
    take(store, START)
    take(store, START)
    for n in range(1000):
        for kind, own_id in ((REDO, b"x"), (REDO, b"y"), (WORKING, b"y"), (WORKING, b"x")):
            if (n, kind, own_id) == (999, WORKING, b"x"):
                break
            op = Op(kind, b"q", b"g")
            op.own_id = own_id
            op.hold = MINUTE
            store.run(op, START)
            assert op.count == 1
    assert len(store.queues[b"q"].groups[b"g"].redo_order) < 100
    check_books(store)
    assert take(store, START) is not None
    assert take(store, START) is None
