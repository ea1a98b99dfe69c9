"""Tests of every event store, with ids chosen by producers and prioritized events."""

from disque_bananaq.core.requests import Next
from packages.bananaq.tests.support.store_semantics import (
    MS,
    Drive,
    ack,
    body,
    counts,
    get,
    peek,
    put_back,
    try_add,
)


async def test_an_own_id_is_refused_until_its_event_is_acknowledged(store: Drive) -> None:
    first = await try_add(store, b"q", b"1", own_id=b"x", group=b"okq")
    assert first.duplicate is None
    again = await try_add(store, b"q", b"2", own_id=b"x", group=b"okq")
    assert (again.duplicate, again.id) == (b"x", b"")
    assert (await try_add(store, b"q", b"3", own_id=b"", group=b"okq")).duplicate is None
    assert (await try_add(store, b"q", b"3", own_id=b"", group=b"okq")).duplicate is not None
    assert (await try_add(store, b"q2", b"1", own_id=b"x", group=b"okq")).duplicate is None
    event = await get(store, b"q", b"okq")
    assert (event.own_id, event.id) == (b"x", first.id)
    assert (await try_add(store, b"q", b"2", own_id=b"x", group=b"okq")).duplicate is not None
    assert await ack(store, b"q", b"okq", own_id=b"x") == 1
    assert await ack(store, b"q", b"okq", own_id=b"x") == 0
    assert (await try_add(store, b"q", b"2", own_id=b"x", group=b"okq")).duplicate is None


async def test_an_own_id_is_free_when_its_event_has_ended(store: Drive) -> None:
    await try_add(store, b"q", b"1", 100 * MS, own_id=b"x", group=b"okq")
    await store.advance(200)
    assert (await try_add(store, b"q", b"2", own_id=b"x", group=b"okq")).duplicate is None


async def test_a_late_acknowledgement_by_the_own_id_counts(store: Drive) -> None:
    await try_add(store, b"q", b"1", own_id=b"x", group=b"okq")
    assert await ack(store, b"q", b"okq", own_id=b"x") == 0  # nobody has it
    await get(store, b"q", b"okq", 50 * MS)
    await store.advance(120)
    assert await counts(store, b"q", b"okq") == (1, 0, 1, 0, 0)
    assert await ack(store, b"q", b"okq", own_id=b"x") == 1
    assert await counts(store, b"q", b"okq") == (1, 0, 0, 1, 0)
    assert await body(store, b"q", b"okq") is None


async def test_an_event_can_be_put_back_by_its_own_id(store: Drive) -> None:
    await try_add(store, b"q", b"1", own_id=b"x", group=b"okq")
    await try_add(store, b"q", b"2", own_id=b"y", group=b"okq")
    await get(store, b"q", b"okq")
    assert await put_back(store, b"q", b"okq", own_id=b"none") == 0
    assert await put_back(store, b"q", b"okq", own_id=b"x") == 1
    assert [await body(store, b"q", b"okq") for _ in range(3)] == [b"1", b"2", None]


async def test_an_event_pushed_in_front_is_next_for_its_group_only(store: Drive) -> None:
    await try_add(store, b"q", b"1", own_id=b"1", group=b"okq")
    await try_add(store, b"q", b"2", own_id=b"2", group=b"okq")
    await try_add(store, b"q", b"front", own_id=b"3", group=b"okq", front=True)
    assert await counts(store, b"q", b"okq") == (3, 0, 1, 0, 2)
    event = await peek(store, Next(b"q", b"okq"))
    assert event is not None
    assert event.body == b"front"
    assert await body(store, b"q", b"okq", 0) == b"front"
    assert await counts(store, b"q", b"okq") == (3, 0, 0, 1, 2)
    assert [await body(store, b"q", b"okq", 0) for _ in range(3)] == [b"1", b"2", None]
    assert await counts(store, b"q", b"okq") == (3, 0, 0, 3, 0)
    assert [await body(store, b"q", b"g", 0) for _ in range(4)] == [b"1", b"2", b"front", None]


async def test_an_event_pushed_in_front_is_not_given_twice_at_a_time(store: Drive) -> None:
    await try_add(store, b"q", b"1", own_id=b"1", group=b"okq")
    await try_add(store, b"q", b"front", own_id=b"2", group=b"okq", front=True)
    held = await get(store, b"q", b"okq", 100 * MS)
    assert [await body(store, b"q", b"okq") for _ in range(2)] == [b"1", None]
    await store.advance(200)
    again = await get(store, b"q", b"okq")
    assert (again.body, again.id) == (b"front", held.id + b"_2")
    assert await ack(store, b"q", b"okq", again.id) == 1
    assert await body(store, b"q", b"okq") is None
