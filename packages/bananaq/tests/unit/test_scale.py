"""Work stays constant however much is stored, measured in interpreter steps instead of time."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from disque_bananaq.core import embedded
from disque_bananaq.core.embedded import EmbeddedStore
from disque_bananaq.core.requests import (
    Ack,
    Add,
    DeliveryRequest,
    Get,
    Redo,
    Status,
    from_now,
)
from packages.bananaq.tests.support.banana_world import journaling

START = 1_700_000_000_000
HOUR = 3_600_000_000

pytestmark = pytest.mark.skipif(
    not embedded.__file__.endswith(".py"), reason="steps of compiled code cannot be counted"
)


def lines(work: Callable[[], None]) -> int:
    """Return how many lines of Python ``work`` executes."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def fill(store: EmbeddedStore, events: int, groups: int) -> None:
    for n in range(events):
        store.run(Add(b"q", b"", from_now(HOUR + n * 1000)), START)
    for n in range(groups):
        store.run(Get(b"q", b"group %d" % n, from_now(HOUR if n % 2 else 0)), START)


def costs(events: int, groups: int) -> dict[str, int]:
    """Return the lines for each kind of operation, repeated a hundred times."""
    store = EmbeddedStore()
    journaling(store)
    fill(store, events, groups)
    ids: list[bytes] = []

    def add() -> None:
        for _ in range(100):
            store.run(Add(b"q", b"", from_now(HOUR)), START + 1)

    def get() -> None:
        for _ in range(100):
            event = store.run(Get(b"q", b"g", from_now(HOUR)), START + 2).event
            assert event is not None
            ids.append(event.id)

    def about(kind: type[DeliveryRequest], which: list[bytes]) -> None:
        for id in which:
            assert store.run(kind(b"q", b"g", id), START + 3).count == 1

    found = {"add": lines(add), "get": lines(get)}
    found["redo"] = lines(lambda: about(Redo, ids[:50]))
    found["ack"] = lines(lambda: about(Ack, ids[50:]))
    found["again"] = lines(get)
    return found


def test_operations_cost_the_same_with_a_hundred_times_the_events() -> None:
    few = costs(1000, 0)
    many = costs(100_000, 0)
    assert all(many[kind] <= few[kind] * 1.1 for kind in few), (few, many)


def test_operations_cost_the_same_with_a_thousand_groups() -> None:
    few = costs(2000, 1)
    many = costs(2000, 1000)
    assert all(many[kind] <= few[kind] * 1.1 for kind in few), (few, many)


def test_ending_events_costs_the_same_with_a_thousand_groups() -> None:
    found = []
    for groups in (1, 1000):
        store = EmbeddedStore()
        fill(store, 20_000, groups)
        end = START + 3_600_000 + 10_000
        # The first ticks only move due entries to nearer buckets.
        store.index.deadlines.due(end, 10)
        found.append(
            lines(lambda store=store, end=end: [store.tick(end) for _ in range(3)])  # type: ignore[misc]
        )
        assert store.index.count < 20_000
    assert found[1] < found[0] * 2 + 20_000, found


def test_a_status_of_many_groups_does_not_count_all_events_for_each() -> None:
    store = EmbeddedStore()
    fill(store, 100_000, 200)
    count = lines(lambda: assert_true(bool(store.run(Status([], []), START).queues)))
    assert count < 200 * 60 + 100_000 // 512 * 20


def assert_true(value: bool) -> None:
    assert value
