"""The lines of the event log, letter by letter."""

import json

import pytest

from disque_trio.eventlog.lines import Event, LineWriter

NODE = "0123456789abcdef0123456789abcdef01234567"
PEER = b"f" * 40
ID = b"D-01234567-AbCdEf0123456789AbCdEf01-05a1"
NONE = (-1,) * 9


def event(
    name: str,
    queue: bytes = b"orders",
    reason: str = "",
    client: str = "",
    peer: bytes = b"",
    numbers: tuple[int, ...] = NONE,
) -> Event:
    return (1_795_290_000_123, name, ID, queue, reason, client, peer, *numbers)


def line(entry: Event) -> str:
    text = LineWriter(NODE).lines([entry]).decode("ascii")
    assert text.endswith("}\n")
    return text


BEGIN = '{"time":1795290000123,"node":"' + NODE + '","event":'
JOB = f'"id":"{ID.decode()}","queue":"orders"'

GOLDEN = [
    (
        event(
            "added",
            client="web-1",
            numbers=(-1, -1, 2000, 3, -1, 300, 86400, 0, 1795290000123000001),
        ),
        f'"added",{JOB},"client":"web-1","size":2000,"repl":3,"retry":300,"ttl":86400,"delay":0,'
        '"ctime":1795290000123000001',
    ),
    (
        event("replicated", numbers=(-1, -1, -1, -1, 3, -1, -1, -1, -1)),
        f'"replicated",{JOB},"copies":3',
    ),
    (
        event("copied", peer=PEER, numbers=(-1, -1, 0, -1, -1, 0, 60, -1, 5)),
        f'"copied",{JOB},"peer":"{"f" * 40}","size":0,"retry":0,"ttl":60,"ctime":5',
    ),
    (event("queued", reason="nack"), f'"queued",{JOB},"reason":"nack"'),
    (
        event("delivered", client="10.0.0.7:50123", numbers=(0, 2, -1, -1, -1, -1, -1, -1, -1)),
        f'"delivered",{JOB},"client":"10.0.0.7:50123","nacks":0,"deliveries":2',
    ),
    (
        event("acked", reason="peer", peer=PEER),
        f'"acked",{JOB},"reason":"peer","peer":"{"f" * 40}"',
    ),
    (event("expired"), f'"expired",{JOB}'),
]


@pytest.mark.parametrize(("entry", "expected"), GOLDEN, ids=lambda value: value[1])
def test_a_line_has_the_fields_that_apply_in_their_order(entry: Event, expected: str) -> None:
    assert line(entry) == BEGIN + expected + "}\n"


def test_a_job_that_is_queued_as_it_is_added_has_two_lines() -> None:
    facts = (0, 0, 7, 1, 1, 300, 600, 0, 5)
    entry = event("added", reason="add", client="web-1", numbers=facts)
    counters = '"client":"web-1","nacks":0,"deliveries":0'
    assert line(entry) == (
        f'{BEGIN}"added",{JOB},{counters},"size":7,"repl":1,"copies":1,"retry":300,"ttl":600,'
        f'"delay":0,"ctime":5}}\n{BEGIN}"queued",{JOB},"reason":"add",{counters}}}\n'
    )


@pytest.mark.parametrize(("entry", "expected"), GOLDEN, ids=lambda value: value[1])
def test_fields_that_do_not_apply_may_be_left_out_at_the_end(entry: Event, expected: str) -> None:
    short = list(entry)
    while short[-1] in ("", b"", -1):
        short.pop()
    assert line(tuple(short)) == BEGIN + expected + "}\n"


def test_a_queue_name_that_is_no_utf_8_has_its_odd_bytes_escaped() -> None:
    assert json.loads(line(event("queued", b"caf\xc3\xa9-\xff\xfe")))["queue"] == "café-\\xff\\xfe"


@pytest.mark.parametrize(
    "name", ['say "hi"', "back\\slash", "two\nlines\r", "\0", "\u2028", "日本", "\x7f\x85"]
)
def test_names_of_any_kind_stay_in_their_line_and_come_back_as_they_were(name: str) -> None:
    text = line(event("delivered", name.encode(), client=name))
    assert len(text.splitlines()) == 1
    assert json.loads(text)["queue"] == name
    assert json.loads(text)["client"] == name


def test_a_client_name_with_stray_bytes_is_written_as_well() -> None:
    stray = b"\xff".decode("utf-8", "surrogateescape")
    assert json.loads(line(event("acked", client=stray)))["client"] == stray


def test_a_line_about_lost_events_has_their_count() -> None:
    assert line((1_795_290_000_123, "dropped", 17)) == BEGIN + '"dropped","count":17}\n'


def test_more_names_than_are_remembered_come_out_right() -> None:
    writer = LineWriter(NODE)
    events = [event("queued", b"q%d" % (n % 12_000)) for n in range(30_000)]
    queues = [json.loads(text)["queue"] for text in writer.lines(events).splitlines()]
    assert queues == [f"q{n % 12_000}" for n in range(30_000)]
