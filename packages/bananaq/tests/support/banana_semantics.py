"""Tests of the behaviour of every event store."""

import pytest

from disque_bananaq.core.requests import MAX_TIME, Last, Next
from packages.bananaq.tests.support.store_semantics import (
    MINUTE,
    MS,
    Drive,
    ack,
    add,
    body,
    counts,
    flush,
    get,
    peek,
    put_back,
    status,
    try_add,
    try_get,
    working,
)

NAMES = [b"", b"q", b":", b"{", b"}", b"{}", b"a:b{c}%7D", b"\x00\xff\r\n*?[", b"%", b" "]


async def test_events_come_in_the_order_in_which_they_were_added(store: Drive) -> None:
    for n in range(5):
        await add(store, b"q", b"%d" % n)
    assert [await body(store, b"q", b"g") for _ in range(6)] == [b"0", b"1", b"2", b"3", b"4", None]


async def test_ids_rise_and_say_when_the_event_ends(store: Drive) -> None:
    before = await store.now()
    ids = [await add(store, b"q", b"", 50_000 * MS) for _ in range(20)]
    after = await store.now()
    times = [int(id.split(b"_")[0]) for id in ids]
    ends = [int(id.split(b"_")[1]) for id in ids]
    assert times == sorted(set(times))
    assert times[0] >= before
    assert all(before + 50_000 * MS <= end <= after + 50_000 * MS for end in ends)


async def test_the_consumer_gets_the_id_that_the_producer_got(store: Drive) -> None:
    id = await add(store, b"q", b"\x00\r\nbody")
    event = await get(store, b"q", b"g")
    assert (event.id, event.body, event.own_id) == (id, b"\x00\r\nbody", b"")


async def test_every_group_sees_every_event_also_a_group_that_comes_late(store: Drive) -> None:
    await add(store, b"q", b"1")
    assert await body(store, b"q", b"g") == b"1"
    await add(store, b"q", b"2")
    assert [await body(store, b"q", b"late") for _ in range(3)] == [b"1", b"2", None]
    assert [await body(store, b"q", b"g") for _ in range(2)] == [b"2", None]


async def test_queues_have_nothing_to_do_with_each_other(store: Drive) -> None:
    await add(store, b"a", b"1")
    assert await body(store, b"b", b"g") is None
    assert await body(store, b"a", b"g") == b"1"


@pytest.mark.parametrize("name", NAMES)
async def test_any_bytes_are_a_name(store: Drive, name: bytes) -> None:
    for other in NAMES:
        await add(store, other, b"of " + other)
    event = await get(store, name, name)
    assert event.body == b"of " + name
    assert await ack(store, name, b"other", event.id) == 0
    assert await ack(store, name, name, event.id) == 1
    assert sorted(found.queue for found in await status(store, [])) == sorted(NAMES)
    [one] = await status(store, [name])
    assert [group.group for group in one.groups] == [name]
    await flush(store, name)
    assert await body(store, name, b"new") is None


async def test_an_acknowledged_event_is_not_given_again(store: Drive) -> None:
    await add(store, b"q", b"1")
    event = await get(store, b"q", b"g", 100 * MS)
    assert await ack(store, b"q", b"g", event.id) == 1
    assert await ack(store, b"q", b"g", event.id) == 0
    await store.advance(200)
    assert await body(store, b"q", b"g") is None


async def test_an_event_that_is_not_acknowledged_in_time_is_given_again(store: Drive) -> None:
    id = await add(store, b"q", b"1")
    await add(store, b"q", b"2")
    await get(store, b"q", b"g", 100 * MS)
    await store.advance(200)
    event = await get(store, b"q", b"g")  # before the new one
    assert (event.body, event.id) == (b"1", id + b"_2")
    assert await body(store, b"q", b"g") == b"2"


async def test_what_is_given_again_comes_oldest_first(store: Drive) -> None:
    for n in range(4):
        await add(store, b"q", b"%d" % n)
    for hold in (120, 60, 90):
        await get(store, b"q", b"g", hold * MS)
    await store.advance(250)
    found = [await body(store, b"q", b"g") for _ in range(5)]
    assert found == [b"0", b"1", b"2", b"3", None]


async def test_a_stale_acknowledgement_counts_nothing(store: Drive) -> None:
    await add(store, b"q", b"1")
    first = await get(store, b"q", b"g", 60 * MS)
    await store.advance(150)
    assert await ack(store, b"q", b"g", first.id) == 0  # though nobody else has it
    second = await get(store, b"q", b"g")
    assert await ack(store, b"q", b"g", first.id) == 0
    assert await working(store, b"q", b"g", first.id) == 0
    assert await put_back(store, b"q", b"g", first.id) == 0
    assert await ack(store, b"q", b"g", second.id) == 1


@pytest.mark.parametrize(
    "id",
    [
        b"",
        b"_",
        b"1",
        b"1_2",
        b"x_y",
        b"9" * 5000,
        b"9" * 16 + b"_1_0",
        b"1_2_3_4",
        b"-1_5",
        b"\xff",
    ],
)
async def test_an_id_that_nobody_has_is_not_acknowledged(store: Drive, id: bytes) -> None:
    await add(store, b"q", b"1")
    await get(store, b"q", b"g")
    assert await ack(store, b"q", b"g", id) == 0
    assert await counts(store, b"q", b"g") == (1, 1, 0, 0, 0)


async def test_an_event_that_was_not_given_cannot_be_acknowledged(store: Drive) -> None:
    id = await add(store, b"q", b"1")
    assert await ack(store, b"q", b"g", id) == 0
    assert await body(store, b"q", b"g") == b"1"


async def test_a_hold_of_zero_acknowledges_at_once(store: Drive) -> None:
    await add(store, b"q", b"1")
    event = await get(store, b"q", b"g", 0)
    assert await counts(store, b"q", b"g") == (1, 0, 0, 1, 0)
    assert await ack(store, b"q", b"g", event.id) == 0
    assert await body(store, b"q", b"g") is None


async def test_a_hold_of_zero_acknowledges_what_is_given_again(store: Drive) -> None:
    await add(store, b"q", b"1")
    await get(store, b"q", b"g", 50 * MS)
    await store.advance(120)
    assert await body(store, b"q", b"g", 0) == b"1"
    assert await counts(store, b"q", b"g") == (1, 0, 0, 1, 0)


async def test_a_hold_can_end_at_a_given_time(store: Drive) -> None:
    await add(store, b"q", b"1")
    until = await store.now() + 80 * MS
    op = await try_get(store, b"q", b"g", 0, until)
    assert op.event is not None
    waiting = await try_get(store, b"q", b"g")
    assert (waiting.event, waiting.due) == (None, until)
    await store.advance(160)
    assert await body(store, b"q", b"g") == b"1"


async def test_nothing_is_due_when_nothing_is_in_progress(store: Drive) -> None:
    assert (await try_get(store, b"q", b"g")).due == 0
    await add(store, b"q", b"1")
    event = await get(store, b"q", b"g")
    assert (await try_get(store, b"q", b"g")).due > await store.now()
    assert (await try_get(store, b"q", b"other", 0)).event is not None
    assert (await try_get(store, b"q", b"other")).due == 0
    await ack(store, b"q", b"g", event.id)
    assert (await try_get(store, b"q", b"g")).due == 0


async def test_an_event_that_has_ended_is_not_due(store: Drive) -> None:
    await add(store, b"q", b"1", 500 * MS)
    await get(store, b"q", b"g")
    await store.advance(600)
    assert (await try_get(store, b"q", b"g")).due == 0


async def test_work_can_take_longer_when_the_consumer_says_so(store: Drive) -> None:
    await add(store, b"q", b"1")
    event = await get(store, b"q", b"g", 100 * MS)
    assert await working(store, b"q", b"g", event.id, MINUTE) == 1
    await store.advance(200)
    assert await body(store, b"q", b"g") is None
    assert await ack(store, b"q", b"g", event.id) == 1
    assert await working(store, b"q", b"g", event.id) == 0


async def test_work_can_be_cut_short(store: Drive) -> None:
    await add(store, b"q", b"1")
    event = await get(store, b"q", b"g")
    assert await working(store, b"q", b"g", event.id, 50 * MS) == 1
    await store.advance(120)
    assert await ack(store, b"q", b"g", event.id) == 0
    assert await body(store, b"q", b"g") == b"1"


async def test_what_is_put_back_is_given_next(store: Drive) -> None:
    for n in range(3):
        await add(store, b"q", b"%d" % n)
    event = await get(store, b"q", b"g")
    assert await body(store, b"q", b"g") == b"1"
    assert await put_back(store, b"q", b"g", event.id) == 1
    assert await put_back(store, b"q", b"g", event.id) == 0
    assert await ack(store, b"q", b"g", event.id) == 0
    again = await get(store, b"q", b"g")
    assert again.id == event.id + b"_2"
    assert await ack(store, b"q", b"g", again.id) == 1


async def test_an_event_ends_for_all_at_its_time(store: Drive) -> None:
    await add(store, b"q", b"given", 150 * MS)
    await add(store, b"q", b"waiting", 150 * MS)
    event = await get(store, b"q", b"g")
    assert await body(store, b"q", b"again", 40 * MS) == b"given"
    await store.advance(250)
    assert await ack(store, b"q", b"g", event.id) == 0
    assert await working(store, b"q", b"g", event.id) == 0
    assert await body(store, b"q", b"g") is None
    assert await body(store, b"q", b"again") is None
    assert await body(store, b"q", b"new") is None
    assert await peek(store, Last(b"q")) is None
    assert await status(store, []) == []


@pytest.mark.parametrize("expire", [0, -1, -MINUTE, -(1 << 60)])
async def test_an_event_that_is_over_when_it_comes_gets_an_id_and_is_never_seen(
    store: Drive, expire: int
) -> None:
    id = await add(store, b"q", b"1", expire)
    assert id.count(b"_") == 1
    assert await body(store, b"q", b"g") is None
    assert await status(store, []) == []
    assert store.available == []


async def test_a_time_that_no_store_can_hold_is_cut(store: Drive) -> None:
    id = await add(store, b"q", b"1", 1 << 62)
    assert id.endswith(b"_%d" % MAX_TIME)
    op = await try_get(store, b"q", b"g", 1 << 62)
    assert op.event is not None
    assert (await try_get(store, b"q", b"g")).due == MAX_TIME


async def test_an_event_can_end_at_a_given_time(store: Drive) -> None:
    end = await store.now() + 100 * MS
    op = await try_add(store, b"q", b"1", end, absolute=True)
    assert op.id.endswith(b"_%d" % end)
    await store.advance(200)
    assert await body(store, b"q", b"g") is None


async def test_a_group_goes_on_where_it_was_when_the_event_there_has_ended(store: Drive) -> None:
    await add(store, b"q", b"long")
    await add(store, b"q", b"short", 100 * MS)
    assert await body(store, b"q", b"g", 0) == b"long"
    assert await body(store, b"q", b"g", 0) == b"short"
    await store.advance(200)
    assert await body(store, b"q", b"g", 0) is None
    await add(store, b"q", b"new")
    assert await body(store, b"q", b"g", 0) == b"new"


async def test_peeking_changes_nothing(store: Drive) -> None:
    assert await peek(store, Next(b"q", b"g")) is None
    assert await peek(store, Last(b"q")) is None
    first = await add(store, b"q", b"1")
    last = await add(store, b"q", b"2")
    for _ in range(2):
        event = await peek(store, Next(b"q", b"g"))
        assert event is not None
        assert (event.id, event.body) == (first, b"1")
        event = await peek(store, Last(b"q"))
        assert event is not None
        assert (event.id, event.body) == (last, b"2")
    [one] = await status(store, [b"q"])
    assert one.groups == []
    assert await body(store, b"q", b"g") == b"1"


async def test_a_flushed_queue_is_as_if_it_had_never_been(store: Drive) -> None:
    await add(store, b"q", b"1")
    await add(store, b"q", b"2")
    await add(store, b"other", b"3")
    event = await get(store, b"q", b"g", 100 * MS)
    await flush(store, b"q")
    await flush(store, b"q")
    assert await ack(store, b"q", b"g", event.id) == 0
    await store.advance(200)
    assert await body(store, b"q", b"g") is None
    assert [found.queue for found in await status(store, [])] == [b"other"]
    id = await add(store, b"q", b"new")
    assert int(id.split(b"_")[0]) > int(event.id.split(b"_")[0])
    assert await body(store, b"q", b"g") == b"new"


async def test_the_status_counts_what_each_group_did(store: Drive) -> None:
    for n in range(5):
        await add(store, b"q", b"%d" % n)
    for _ in range(2):
        await get(store, b"q", b"g", 60 * MS)
    await store.advance(150)
    await get(store, b"q", b"g")
    await get(store, b"q", b"other", 0)
    assert await counts(store, b"q", b"g") == (5, 1, 1, 0, 3)
    assert await counts(store, b"q", b"other") == (5, 0, 0, 1, 4)
    assert await counts(store, b"q", b"unknown") == (5, 0, 0, 0, 5)
    assert await counts(store, b"none", b"g") == (0, 0, 0, 0, 0)


async def test_the_status_is_in_the_order_asked_for_or_by_name(store: Drive) -> None:
    for queue in (b"b", b"c", b"a"):
        await add(store, queue, b"1")
    for group in (b"y", b"x"):
        await get(store, b"b", group)
    assert [found.queue for found in await status(store, [])] == [b"a", b"b", b"c"]
    found = await status(store, [b"c", b"none", b"b"])
    assert [one.queue for one in found] == [b"c", b"none", b"b"]
    assert [[group.group for group in one.groups] for one in found] == [[], [], [b"x", b"y"]]
    [one] = await status(store, [b"b"], [b"y", b"none", b"x"])
    assert [group.group for group in one.groups] == [b"y", b"none", b"x"]


async def test_who_waits_is_told_what_may_have_come(store: Drive) -> None:
    await store.watch(b"q", b"g")
    await store.watch(b"other", b"g")
    store.available.clear()
    await add(store, b"q", b"1")
    assert await store.told(b"q", b"g")
    event = await get(store, b"q", b"g")
    store.available.clear()
    assert await put_back(store, b"q", b"g", event.id) == 1
    assert await store.told(b"q", b"g")
    store.available.clear()
    await try_add(store, b"other", b"2", own_id=b"x", group=b"g", front=True)
    assert await store.told(b"other", b"g")


async def test_whoever_waits_is_told_or_knows_when_a_deadline_is_missed(store: Drive) -> None:
    await store.watch(b"q", b"g")
    await add(store, b"q", b"1")
    await get(store, b"q", b"g", 100 * MS)
    store.available.clear()
    due = (await try_get(store, b"q", b"g")).due
    assert due <= await store.now() + 100 * MS
    await store.advance(200)
    assert await body(store, b"q", b"g") == b"1"
