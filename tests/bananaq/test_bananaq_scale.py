"""Work stays the same however much is held: counted in steps of the interpreter, not in time."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from disque_trio.bananaq.core import embedded
from disque_trio.bananaq.core.embedded import EmbeddedStore
from disque_trio.bananaq.core.ops import ACK, ADD, GET, REDO, STATUS, Op

START = 1_700_000_000_000
HOUR = 3_600_000_000

pytestmark = pytest.mark.skipif(
    not embedded.__file__.endswith(".py"), reason="steps of compiled code cannot be counted"
)


def lines(work: Callable[[], None]) -> int:
    """How many lines of Python ``work`` takes."""
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
        op = Op(ADD, b"q")
        op.expire = HOUR + n * 1000
        store.run(op, START)
    for n in range(groups):
        op = Op(GET, b"q", b"group %d" % n)
        op.hold = HOUR if n % 2 else 0
        store.run(op, START)


def costs(events: int, groups: int) -> dict[str, int]:
    """Lines for each kind of operation, done a hundred times."""
    store = EmbeddedStore()
    store.journaling = True
    fill(store, events, groups)
    ids: list[bytes] = []

    def add() -> None:
        for _ in range(100):
            op = Op(ADD, b"q")
            op.expire = HOUR
            store.run(op, START + 1)

    def get() -> None:
        for _ in range(100):
            op = Op(GET, b"q", b"g")
            op.hold = HOUR
            store.run(op, START + 2)
            assert op.event is not None
            ids.append(op.event.id)

    def about(kind: int, which: list[bytes]) -> None:
        for id in which:
            op = Op(kind, b"q", b"g")
            op.id = id
            store.run(op, START + 3)
            assert op.count == 1

    found = {"add": lines(add), "get": lines(get)}
    found["redo"] = lines(lambda: about(REDO, ids[:50]))
    found["ack"] = lines(lambda: about(ACK, ids[50:]))
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
        # The first ticks only bring nearer what is due.
        store.deadlines.due(end, 10)
        found.append(
            lines(lambda store=store, end=end: [store.tick(end) for _ in range(3)])  # type: ignore[misc]
        )
        assert store.count < 20_000
    assert found[1] < found[0] * 2 + 20_000, found


def test_a_status_of_many_groups_does_not_count_all_events_for_each() -> None:
    store = EmbeddedStore()
    fill(store, 100_000, 200)
    count = lines(lambda: assert_true(store.run(Op(STATUS, b""), START)))
    assert count < 200 * 60 + 100_000 // 512 * 20


def assert_true(value: bool) -> None:
    assert value
