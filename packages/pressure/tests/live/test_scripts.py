"""Each operation, and its result in each key of the protocol."""

import pytest
import trio

from disque_pressure import (
    InvalidNameError,
    PressureQueue,
    QueueAlreadyExistsError,
    QueueBusyError,
    QueueClosedError,
    QueueDoesNotExistError,
    QueueEmptyError,
    QueueFullError,
    QueueInUseError,
    ServerRefusedError,
    WrongTypeError,
)
from disque_pressure.keys import RESERVED, tagged_prefix
from packages.pressure.tests.support.pressure_helpers import Spot
from tests.support.redis_server import until

NEW = {"bound": b"0", "producer_free": 1, "consumer_free": 1, "not_full": 1}


def counters(produced: int = 0, consumed: int = 0, size: int = 1) -> dict[str, object]:
    """Return the statistics after this many elements of ``size`` bytes."""
    found: dict[str, object] = {}
    for name, count in (("produced", produced), ("consumed", consumed)):
        if count:
            found[f"stats:{name}_messages"] = b"%d" % count
            found[f"stats:{name}_bytes"] = b"%d" % (count * size)
    return found


@pytest.mark.parametrize("bound", [None, 0, 3])
async def test_create_sets_the_bound_and_one_token_in_three_lists(
    spot: Spot, bound: int | None
) -> None:
    async with spot.queue() as q:
        assert not await q.exists()
        await q.create(bound)
        assert await q.exists()
        assert spot.values() == {**NEW, "bound": b"%d" % (bound or 0)}
        with pytest.raises(QueueAlreadyExistsError) as caught:
            await q.create(5)
        assert caught.value.queue == "q"
        assert spot.values() == {**NEW, "bound": b"%d" % (bound or 0)}


async def test_a_negative_bound_is_refused(spot: Spot) -> None:
    async with spot.queue() as q:
        with pytest.raises(ValueError, match="-1"):
            await q.create(-1)
    assert spot.keys() == set()


async def test_put_pushes_left_counts_and_releases_the_role(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create(2)
        await q.put(b"one")
        mine = {**NEW, "bound": b"2", "producer": q.uid.encode()}
        assert spot.values() == {**mine, "data": [b"one"], **counters(1, size=3)}
        await q.put(b"two")
        full = {**mine, "data": [b"one", b"two"], **counters(2, size=3)}
        del full["not_full"]
        assert spot.values() == full
        with pytest.raises(QueueFullError):
            await q.put_nowait(b"three")
        assert spot.values() == full
        with pytest.raises(QueueFullError):
            await q.put(b"three", timeout=0.05)
        assert spot.values() == full
        assert spot.keys() == set(full) - {"data"} | {""}  # none of the additional keys either


async def test_get_pops_right_counts_makes_room_and_releases_the_role(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create(2)
        assert await q.put_many([b"a", b"b"]) == 2
        assert await q.get() == b"a"
        uid = q.uid.encode()
        base = {**NEW, "bound": b"2", "producer": uid, "consumer": uid}
        assert spot.values() == {**base, "data": [b"b"], **counters(2, 1)}
        assert await q.get_nowait() == b"b"
        empty = {**base, **counters(2, 2)}
        assert spot.values() == empty
        with pytest.raises(QueueEmptyError):
            await q.get_nowait()
        with pytest.raises(QueueEmptyError):
            await q.get(timeout=0.05)
        assert spot.values() == empty
        assert spot.keys() == set(empty)


async def test_an_unbounded_queue_always_has_its_permit(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        for n in range(20):
            await q.put(b"%d" % n)
        assert spot.tokens() == (1, 1, 1, 0)
        assert await q.get_many(100) == [b"%d" % n for n in range(20)]
        assert spot.tokens() == (1, 1, 1, 0)


async def test_close_pushes_two_tokens_and_the_elements_can_still_be_got(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        await q.put_many([b"a", b"b"])
        assert not await q.closed()
        await q.close()
        assert await q.closed()
        assert spot.tokens() == (1, 1, 1, 2)
        with pytest.raises(QueueClosedError):
            await q.close()
        with pytest.raises(QueueClosedError):
            await q.put(b"c")
        assert spot.tokens() == (1, 1, 1, 2)
        assert [data async for data in q] == [b"a", b"b"]
        with pytest.raises(QueueClosedError):
            await q.get_nowait()
        assert spot.tokens() == (1, 1, 1, 2)
        assert await q.length() == 0


async def test_delete_leaves_no_key(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create(2)
        await q.put_many([b"a", b"b"])
        await q.get()
        await q.close()
        await q.delete()
        assert spot.keys() == set()
        await q.create()  # and the name is free again
        assert spot.values() == NEW


async def test_without_a_queue_every_operation_fails_and_leaves_nothing(spot: Spot) -> None:
    async with spot.queue() as q:
        for call in (
            lambda: q.put(b"x"),
            lambda: q.put_nowait(b"x"),
            lambda: q.put_many([b"x"]),
            q.get,
            q.get_nowait,
            lambda: q.get_many(2),
            q.close,
            q.delete,
            q.length,
            q.qsize,
            q.closed,
            q.stats,
            lambda: q.repair("producer"),
        ):
            with pytest.raises(QueueDoesNotExistError) as caught:
                await call()
            assert caught.value.queue == "q"
            assert "q" in str(caught.value)
        with pytest.raises(QueueDoesNotExistError):
            async with q.consumer():
                pass
        assert spot.keys() == set()


@pytest.mark.parametrize("role", ["producer", "consumer"])
async def test_a_role_in_use_is_named_with_its_user(spot: Spot, role: str) -> None:
    async with spot.queue() as q:
        await q.create()
        await q.put(b"x")
        spot.raw.lpop(spot.key(f"{role}_free"))
        spot.raw.set(spot.key(role), "somebody")
        before = spot.values()
        for timeout in (0, 0.05):
            with pytest.raises(QueueInUseError) as caught:
                await (q.put(b"y", timeout) if role == "producer" else q.get(timeout))
            assert (caught.value.user, caught.value.role) == ("somebody", role)
        assert spot.values() == before
        with pytest.raises(QueueInUseError) as caught:
            await q.delete(timeout=0.05)
        assert (caught.value.user, caught.value.role) == ("somebody", role)
        assert spot.values() == before


LISTS = ("", "closed", "not_full", "producer_free", "consumer_free")
STRINGS = ("bound", "producer", "consumer", "stats:produced_messages", "stats:produced_bytes")
CONSUMED = ("stats:consumed_messages", "stats:consumed_bytes")


def dumps(spot: Spot) -> dict[str, object]:
    """Return all keys with their DUMP."""
    there = spot.keys()
    return {suffix: spot.raw.dump(spot.key(suffix)) for suffix in there}


@pytest.mark.parametrize("suffix", LISTS + STRINGS + CONSUMED)
async def test_a_key_of_another_type_is_reported_and_nothing_changes(
    spot: Spot, suffix: str
) -> None:
    async with spot.queue() as q:
        await q.create(3)
        await q.put(b"x")
        spot.raw.delete(spot.key(suffix))
        spot.raw.hset(spot.key(suffix), "field", "value")
        before = dumps(spot)
        consumers = suffix.startswith(("consumer", "stats:consumed"))
        for call in (q.get if consumers else lambda: q.put(b"y"), q.delete):
            with pytest.raises(WrongTypeError) as caught:
                await call()
            assert caught.value.key == spot.key(suffix)
            assert caught.value.found == "a hash"
            assert dumps(spot) == before
        with pytest.raises((WrongTypeError, QueueAlreadyExistsError)):
            await q.create()
        assert spot.raw.hget(spot.key(suffix), "field") == b"value"


@pytest.mark.parametrize("role", ["producer", "consumer"])
@pytest.mark.parametrize("side", ["lease", "held"])
async def test_values_of_others_under_the_additional_keys_are_left_alone(
    spot: Spot, side: str, role: str
) -> None:
    async def hold(q: PressureQueue) -> None:
        async with q.producer() if role == "producer" else q.consumer():
            pass

    async with spot.queue() as q:
        await q.create(3)
        await q.put(b"x")
        spot.raw.rpush(spot.key(f"{side}:{role}"), "value")
        before = dumps(spot)
        calls = [lambda: hold(q), lambda: q.repair(role), q.delete]
        if role == "producer":
            calls += [lambda: q.put(b"y"), lambda: q.put_nowait(b"y"), q.close]
        else:
            calls += [q.get, q.get_nowait]
        for call in calls:
            with pytest.raises(WrongTypeError) as caught:
                await call()
            assert caught.value.key == spot.key(f"{side}:{role}")
            assert dumps(spot) == before


async def test_a_huge_bound_is_reported(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        spot.raw.set(spot.key("bound"), "9" * 5000)
        for call in (q.stats, q.get, lambda: q.put(b"x")):
            with pytest.raises(WrongTypeError):
                await call()


async def test_a_queue_is_not_created_over_a_key_of_another_type(spot: Spot) -> None:
    spot.raw.hset(spot.data, "field", "value")
    async with spot.queue() as q:
        with pytest.raises(WrongTypeError):
            await q.create(force=True)
    assert spot.keys() == {""}


@pytest.mark.parametrize("suffix", ["bound", "stats:produced_messages", "stats:produced_bytes"])
@pytest.mark.parametrize("value", ["many", "-", "1.5", ""])
async def test_an_invalid_number_is_reported_and_nothing_changes(
    spot: Spot, suffix: str, value: str
) -> None:
    async with spot.queue() as q:
        await q.create()
        spot.raw.set(spot.key(suffix), value)
        before = spot.values()
        for call in (lambda: q.put(b"x"), q.stats):
            with pytest.raises(WrongTypeError) as caught:
                await call()
            assert caught.value.key == spot.key(suffix)
            assert repr(value) in str(caught.value)
        assert spot.values() == before


async def test_a_put_without_memory_in_redis_takes_nothing(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create(3)
        async with q.producer() as producer:  # loads both scripts
            await producer.put(b"x")
        before = spot.values()
        spot.raw.config_set("maxmemory", 1)
        try:
            with pytest.raises(ServerRefusedError, match="OOM"):
                await q.put(b"y")
            with pytest.raises(ServerRefusedError):
                async with q.producer():
                    pass
        finally:
            spot.raw.config_set("maxmemory", 0)
        assert spot.values() == before
        assert spot.keys() == set(before) - {"data"} | {""}


@pytest.mark.parametrize("suffix", RESERVED)
def test_a_name_that_is_a_key_of_another_queue_is_refused(suffix: str) -> None:
    with pytest.raises(InvalidNameError, match=suffix):
        PressureQueue("other" + suffix)


def test_a_queue_needs_a_name() -> None:
    with pytest.raises(InvalidNameError):
        PressureQueue("")


def test_a_prefix_can_keep_all_keys_in_one_slot() -> None:
    assert tagged_prefix("p") == "{p}"
    assert tagged_prefix("{p}x") == "{p}x"


async def test_unusual_names_and_elements_pass_unchanged(spot: Spot) -> None:
    spot.name = "a b:c\n%☃"
    spot.data = f"{spot.prefix}:{spot.name}"
    every = [bytes([n]) for n in range(256)] + [b"", b"\r\n", bytes(1 << 20)]
    async with spot.queue() as q:
        await q.create()
        assert await q.put_many(every) == len(every)
        assert await q.get_many(1000) == every
        assert spot.raw.get(spot.key("stats:consumed_bytes")) == b"%d" % sum(map(len, every))


async def test_remains_of_a_queue_stop_create_unless_it_is_forced(spot: Spot) -> None:
    spot.raw.lpush(spot.data, "old")
    spot.raw.lpush(spot.key("closed"), "0")
    async with spot.queue() as q:
        with pytest.raises(QueueBusyError) as caught:
            await q.create(patience=0.05)
        assert sorted(caught.value.keys) == [spot.data, spot.key("closed")]
        assert spot.keys() == {"", "closed"}
        await q.create(2, force=True)
        assert spot.values() == {**NEW, "bound": b"2"}


def attempts(spot: Spot) -> int:
    """Return how often a script was called."""
    stats = spot.raw.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("fcall", "evalsha"))


async def test_create_waits_for_a_running_delete(spot: Spot) -> None:
    spot.raw.lpush(spot.key("closed"), "0")
    async with spot.queue() as q, trio.open_nursery() as nursery:
        before = attempts(spot)
        nursery.start_soon(q.create)
        await until(lambda: attempts(spot) >= before + 2)
        assert spot.keys() == {"closed"}
        spot.raw.delete(spot.key("closed"))
    assert spot.values() == NEW
