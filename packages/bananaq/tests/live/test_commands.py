"""Every command of bananaq with all its arguments, from the view of a client on the wire."""

import time

import hiredis
import pytest

from packages.bananaq.tests.support.banana_daemons import (
    STATS,
    Daemon,
    Given,
    now_us,
    pipeline,
    stats_of,
)
from tests.support.harness import wait_until

pytestmark = pytest.mark.live

ODD_NAMES = [
    b"",
    b":",
    b"{}",
    b"%",
    b"%7B",
    b"{",
    b"}",
    b"a}b{c",
    b"{q=a}",
    b"a:b",
    b"a%3Ab",
    b"*",
    b"[a-z]?",
    b"\x00\xff\r\n",
    b" ",
    b"queue",
    b"group",
    b"available",
    b"x" * 3000,
]


@pytest.mark.pure
def test_ids_increase_and_contain_the_end_of_the_event(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    before = now_us()
    replies = pipeline(wire, [("QADD", queue, "1e2", n) for n in range(500)])
    wire("QADD", queue, f"@{before // 1_000_000 + 1000}", "last")
    events = [Given(wire("QGET", queue, "g")) for _ in range(501)]
    assert [event.id for event in events[:-1]] == replies
    times = [event.added for event in events]
    assert times == sorted(set(times))
    for event in events[:-1]:
        assert before - 2_000 <= event.added <= now_us() + 2_000
        assert abs(event.ends - event.added - 100_000_000) < 1_000_000
    assert events[-1].ends == (before // 1_000_000 + 1000) * 1_000_000
    assert [event.body for event in events[:-1]] == [b"%d" % n for n in range(500)]


def test_names_and_contents_may_be_any_bytes(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    bodies = {name: b"\x00\r\n$5\r\n" + name[:20] + queue.encode() for name in ODD_NAMES}
    for name in ODD_NAMES:
        assert wire("QFLUSH", name) == b"OK"  # the other runs use these names, too
        wire("QADD", name, 60, bodies[name])
    status = wire("QSTATUS", *ODD_NAMES, "GROUPS", *ODD_NAMES)
    assert isinstance(status, list)
    assert [row[0] for row in status] == ODD_NAMES
    for row in status:
        assert row[1][::2] == ODD_NAMES
        assert all(stats[1] == 1 for stats in row[1][1::2])
    for name in ODD_NAMES:
        for group in ODD_NAMES:
            event = Given(wire("QGET", name, group))
            assert event.body == bodies[name]
            assert wire("QGET", name, group) is None
            assert wire("QACK", name, group, event.id) == 1
    every = wire("QSTATUS")
    assert isinstance(every, list)
    names = [row[0] for row in every]
    assert names == sorted(names)
    assert set(ODD_NAMES) <= set(names)
    groups = next(row for row in every if row[0] == b"{}")[1][::2]
    assert groups == sorted(ODD_NAMES)
    for name in ODD_NAMES:
        wire("QFLUSH", name)
    every = wire("QSTATUS")
    assert isinstance(every, list)
    assert not set(ODD_NAMES) & {row[0] for row in every}


def test_a_large_event_is_delivered_unchanged(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    body = bytes(range(256)) * 32_768  # 8 MB
    for _ in range(2):
        wire("QADD", queue, 60, body)
    wire("QADD", queue, 60, b"")
    assert Given(wire("QGET", queue, "g")).body == body
    assert Given(wire("QGET", queue, "g", "EX", 0)).body == body
    assert Given(wire("QGET", queue, "g")).body == b""
    wire("QFLUSH", queue)


@pytest.mark.parametrize("expire", ["0", "-5", "-1e30", "@1", "@0", "@-1"])
def test_an_event_that_has_expired_on_arrival_is_never_delivered(
    bananaq: Daemon, queue: str, expire: str
) -> None:
    wire = bananaq.wire()
    id = wire("QADD", queue, expire, "over")
    assert isinstance(id, bytes)
    assert wire("QNOTIFY", "g", 0, queue) is None
    assert wire("QGET", queue, "g") is None
    assert bananaq.status(queue, "g")["total"] == 0
    after = wire("QADD", queue, 60, "after")
    assert isinstance(after, bytes)
    assert int(after.split(b"_")[0]) > int(id.split(b"_")[0])
    assert Given(wire("QGET", queue, "g")).body == b"after"


@pytest.mark.parametrize("expire", ["1e300", "9007199254", "99999999999999999999", "@9e15"])
def test_an_event_may_last_very_long(bananaq: Daemon, queue: str, expire: str) -> None:
    wire = bananaq.wire()
    id = wire("QADD", queue, expire, "old")
    event = Given(wire("QGET", queue, "g", "EX", expire))
    assert event.id == id
    assert event.ends > now_us()
    assert wire("QACK", queue, "g", id) == 1


@pytest.mark.parametrize(
    "options",
    [
        "",
        "EX 30",
        "ex 0.5e2",
        "DEADLINE 30",
        "Deadline +30",
        "BLOCK 0",
        "BLOCK 1",
        "EX 30 BLOCK 1",
        "BLOCK 1 EX 30",
        "block 0 deadline 30",
        "DEADLINE 30 BLOCK 0.5",
        "EX @{later}",
        "BLOCK 0.01 DEADLINE @{later}.5",
    ],
)
def test_all_forms_of_a_deadline(bananaq: Daemon, queue: str, options: str) -> None:
    wire = bananaq.wire()
    wire("QADD", queue, 60, "body")
    words = options.format(later=int(time.time()) + 30).split()
    event = Given(wire("QGET", queue, "g", *words))
    assert bananaq.status(queue, "g")["inprogress"] == 1
    assert wire("QACK", queue, "g", event.id) == 1
    assert bananaq.status(queue, "g")["done"] == 1


@pytest.mark.parametrize("block", [(), ("BLOCK", 1)])
@pytest.mark.parametrize("word", ["EX", "DEADLINE"])
def test_with_a_deadline_of_zero_the_event_is_acknowledged_at_once(
    bananaq: Daemon, queue: str, word: str, block: tuple[object, ...]
) -> None:
    wire = bananaq.wire()
    wire("QADD", queue, 60, "body")
    event = Given(wire("QGET", queue, "g", word, 0, *map(str, block)))
    assert bananaq.status(queue, "g") == dict(zip(STATS, (1, 0, 0, 1, 0, 0), strict=True))
    assert wire("QACK", queue, "g", event.id) == 0
    assert wire("QGET", queue, "g") is None
    assert Given(wire("QGET", queue, "other")).id == event.id


def test_a_missed_deadline_delivers_the_event_again(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    id = wire("QADD", queue, 60, "body")
    assert Given(wire("QGET", queue, "g", "EX", "@1")).id == id
    assert wire("QACK", queue, "g", id) == 0
    event = Given(wire("QGET", queue, "g"))
    assert (event.base, event.delivery) == (id, 2)


def test_a_previous_holder_cannot_acknowledge_an_event(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    wire("QADD", queue, 60, "body")
    first = Given(wire("QGET", queue, "g", "EX", "0.05"))
    wait_until(lambda: bananaq.status(queue, "g")["redo"] == 1)
    assert wire("QACK", queue, "g", first.id) == 0  # late, even while nobody has it
    second = Given(wire("QGET", queue, "g", "EX", 30))
    assert second.base == first.id
    assert wire("QWORKING", queue, "g", first.id, "EX", 60) == 0
    assert wire("QACK", queue, "g", first.id) == 0
    assert wire("QACK", queue, "g", first.id, "REDO") == 0
    assert wire("QACK", queue, "g", second.id) == 1
    assert wire("QACK", queue, "g", second.id) == 0
    assert bananaq.status(queue, "g")["done"] == 1


@pytest.mark.load  # a starved process does not renew it in time
def test_a_consumer_can_extend_its_deadline(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    wire("QADD", queue, 60, "body")
    event = Given(wire("QGET", queue, "g", "EX", 2))
    taken = time.monotonic()
    while time.monotonic() < taken + 2.5:
        assert wire("QWORKING", queue, "g", event.id, "EX", 2) == 1
        assert wire("QGET", queue, "g", "BLOCK", "0.05") is None
    assert wire("QWORKING", queue, "g", event.id) == 1
    assert wire("QACK", queue, "g", event.id) == 1
    assert wire("QWORKING", queue, "g", event.id, "DEADLINE", 1) == 0


def test_redo_delivers_an_event_to_the_next_consumer(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    for n in range(4):
        wire("QADD", queue, 60, n)
    first, second = Given(wire("QGET", queue, "g")), Given(wire("QGET", queue, "g"))
    assert wire("QACK", queue, "g", second.id, "REDO") == 1
    assert wire("QACK", queue, "g", first.id, "redo") == 1
    assert wire("QACK", queue, "g", first.id) == 0
    assert bananaq.status(queue, "g")["redo"] == 2
    bodies = [Given(wire("QGET", queue, "g", "EX", 0)).body for _ in range(4)]
    assert bodies == [b"0", b"1", b"2", b"3"]


def test_nothing_outlives_its_end(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    wire("QADD", queue, 60, "long")
    wire("QADD", queue, "1.5", "short")
    ends = Given([wire("QADD", queue, "1.5", "never taken"), b""]).ends
    held = [Given(wire("QGET", queue, "g", "EX", 30)) for _ in range(2)]
    wait_until(lambda: now_us() > ends + 50_000)
    assert wire("QWORKING", queue, "g", held[1].id) == 0
    assert wire("QACK", queue, "g", held[1].id) == 0
    assert wire("QGET", queue, "g") is None
    assert bananaq.status(queue, "g") == dict(zip(STATS, (1, 1, 0, 0, 0, 0), strict=True))
    assert wire("QACK", queue, "g", held[0].id) == 1
    # Events of the group are not delivered again, and the next one is.
    assert wire("QGET", queue, "g") is None
    wire("QADD", queue, 60, "next")
    assert Given(wire("QGET", queue, "g")).body == b"next"


def test_noblock_adds_the_event(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    assert pipeline(wire, [("QADD", queue, 60, n, "noblock") for n in range(100)]) == [b"OK"] * 100
    wait_until(lambda: bananaq.status(queue, "g")["total"] == 100)
    bodies = [Given(wire("QGET", queue, "g", "EX", 0)).body for _ in range(100)]
    assert bodies == [b"%d" % n for n in range(100)]


def test_status_keeps_the_requested_order_and_includes_zeros(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    b, a, none = queue + "b", queue + "a", queue + "none"
    wire("QADD", a, 60, "1")
    wire("QADD", b, 60, "1")
    wire("QADD", b, 60, "2")
    wire("QGET", b, "zeta", "EX", 0)
    wire("QGET", b, "alpha")
    status = wire("QSTATUS", b, none, a, b, "groups", "zeta", "new", "zeta")
    assert isinstance(status, list)
    assert [row[0].decode() for row in status] == [b, none, a]
    assert [row[1][::2] for row in status] == [[b"zeta", b"new"]] * 3
    assert stats_of(status, 0, 0) == dict(zip(STATS, (2, 0, 0, 1, 1, 0), strict=True))
    assert stats_of(status, 0, 1) == dict(zip(STATS, (2, 0, 0, 0, 2, 0), strict=True))
    assert stats_of(status, 1, 0) == dict.fromkeys(STATS, 0)
    status = wire("QSTATUS", b, a, "GROUPS")
    assert isinstance(status, list)
    assert [row[1][::2] for row in status] == [[b"alpha", b"zeta"], []]
    assert wire("QINFO", b, "GROUPS", "zeta", "a-long-name") == [
        b"%s  %s  total:2  inprogress:0  redo:0  done:%d  available:%d  consumers:0"
        % (b.encode(), group, done, 2 - done)
        for group, done in ((b"zeta       ", 1), (b"a-long-name", 0))
    ]


def test_flush_leaves_nothing_of_a_queue(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    last = 0
    for n in range(20):
        last = Given([wire("QADD", queue, 60, n), b""]).added
    held = [Given(wire("QGET", queue, "g", "EX", "0.1")) for _ in range(5)]
    ends = now_us() + 100_000
    assert wire("QFLUSH", queue) == b"OK"
    assert [wire("QACK", queue, "g", event.id) for event in held] == [0] * 5
    every = wire("QSTATUS")
    assert isinstance(every, list)
    assert queue.encode() not in [row[0] for row in every]
    wait_until(lambda: now_us() > ends + 100_000)
    assert wire("QGET", queue, "g") is None
    new = Given([wire("QADD", queue, 60, "new"), b""])
    assert new.added > last
    assert Given(wire("QGET", queue, "g")).body == b"new"
    assert wire("QFLUSH", queue + "-that-is-none") == b"OK"


def test_a_new_group_gets_all_existing_events(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    for n in range(10):
        wire("QADD", queue, 60, n)
    for group in ("a", "b", "c"):
        bodies = [Given(wire("QGET", queue, group, "EX", 0)).body for _ in range(10)]
        assert bodies == [b"%d" % n for n in range(10)]
        assert wire("QGET", queue, group) is None


@pytest.mark.pure
def test_pipelined_commands_are_answered_in_order(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    requests: list[tuple[str | int, ...]] = []
    for n in range(300):
        requests += [
            ("QADD", queue, 60, n),
            ("PING", n),
            ("QGET", queue, "g", "EX", 0),
            ("QGET", queue, "g", "EX", 1, "BLOCK", 0),
            ("QACK", queue, "g", "wrong"),
            ("QSTATUS", queue, "GROUPS", "g"),
            ("QGET", queue, "g", "BLOCK", "0.001") if n % 50 == 0 else ("ECHO", "x"),
        ]
    replies = pipeline(wire, requests)
    for n in range(300):
        id, ping, event, none, wrong, status, last = replies[7 * n : 7 * n + 7]
        assert ping == b"%d" % n
        assert (Given(event).id, Given(event).body) == (id, ping)
        assert none is None
        assert isinstance(wrong, hiredis.ReplyError)
        assert stats_of(status)["done"] == n + 1
        assert last is None if n % 50 == 0 else last == b"x"


def test_inline_commands_are_accepted(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    wire.raw(f"qadd {queue} 60 \"two words\\x00\"\r\nQGET {queue} 'a group'\r\n".encode())
    id = wire.read()
    event = Given(wire.read())
    assert (event.id, event.body) == (id, b"two words\x00")
    wire.raw(f'QACK {queue} "a group" {event.id.decode()}\n'.encode())
    assert wire.read() == 1
