"""The lines of the event log, byte by byte."""

import json

import pytest

from disque_trio.eventlog.lines import LineWriter, count
from disque_trio.eventlog.schema import KEYS, Event

NODE = "0123456789abcdef0123456789abcdef01234567"
PEER = b"f" * 40
ID = b"D-01234567-AbCdEf0123456789AbCdEf01-05a1"
NONE = (-1,) * 9

What = tuple[int | str | bytes, ...]


def event(
    name: str,
    queue: bytes = b"orders",
    reason: str = "",
    peer: bytes = b"",
    numbers: tuple[int, ...] = NONE,
) -> What:
    return (1_795_290_000_123, name, queue, reason, peer, *numbers)


def line(*events: Event) -> str:
    text = LineWriter(NODE).lines(events).decode("ascii")
    assert text.endswith("}\n")
    return text


BEGIN = '{"time":1795290000123,"node":"' + NODE + '","event":'
JOB = f'"id":"{ID.decode()}","queue":"orders"'

GOLDEN = [
    (
        "web-1",
        event("added", numbers=(-1, -1, 2000, 3, -1, 300, 86400, 0, 1795290000123000001)),
        f'"added",{JOB},"client":"web-1","size":2000,"repl":3,"retry":300,"ttl":86400,"delay":0,'
        '"ctime":1795290000123000001',
    ),
    (
        "",
        event("replicated", numbers=(-1, -1, -1, -1, 3, -1, -1, -1, -1)),
        f'"replicated",{JOB},"copies":3',
    ),
    (
        "",
        event("copied", peer=PEER, numbers=(-1, -1, 0, -1, -1, 0, 60, -1, 5)),
        f'"copied",{JOB},"peer":"{"f" * 40}","size":0,"retry":0,"ttl":60,"ctime":5',
    ),
    ("", event("queued", reason="nack"), f'"queued",{JOB},"reason":"nack"'),
    (
        "10.0.0.7:50123",
        event("delivered", numbers=(0, 2, -1, -1, -1, -1, -1, -1, -1)),
        f'"delivered",{JOB},"client":"10.0.0.7:50123","nacks":0,"deliveries":2',
    ),
    (
        "",
        event("acked", reason="peer", peer=PEER),
        f'"acked",{JOB},"reason":"peer","peer":"{"f" * 40}"',
    ),
    ("", event("expired"), f'"expired",{JOB}'),
]


@pytest.mark.parametrize(("client", "entry", "expected"), GOLDEN)
def test_a_line_has_the_fields_that_apply_in_their_order(
    client: str, entry: What, expected: str
) -> None:
    assert line(client, entry, ID) == BEGIN + expected + "}\n"


@pytest.mark.parametrize(("client", "entry", "expected"), GOLDEN)
def test_fields_after_the_reason_may_be_omitted_if_they_do_not_apply(
    client: str, entry: What, expected: str
) -> None:
    short = list(entry)
    while len(short) > 4 and short[-1] in (b"", -1):
        short.pop()
    assert line(client, tuple(short), ID) == BEGIN + expected + "}\n"


def test_a_new_job_has_its_priority_or_group_before_its_ctime() -> None:
    both = (*event("added", reason="add", numbers=(0, 0, 7, 1, 1, 300, 600, 0, 5)), 7, b"b\xff")
    text = LineWriter(NODE).lines([both, *OTHERS[:2], (*both[:-2], 0, b"a"), ID])
    found = [json.loads(line) for line in text.splitlines()]
    told = [(line["event"], line.get("priority"), line.get("group")) for line in found]
    queued = ("queued", None, None)
    twice = [("added", 7, "b\\xff"), queued] * 2
    assert told == [*twice, ("added", None, "a"), queued]
    assert list(found[0]) == [key for key in KEYS if key in found[0]]
    assert [found[0]["ctime"], found[2]["ctime"]] == [5, 6]


def test_a_job_that_is_queued_when_it_is_added_has_two_lines() -> None:
    entry = event("added", reason="add", numbers=(0, 0, 7, 1, 1, 300, 600, 0, 5))
    counters = '"client":"web-1","nacks":0,"deliveries":0'
    assert line("web-1", entry, ID) == (
        f'{BEGIN}"added",{JOB},{counters},"size":7,"repl":1,"copies":1,"retry":300,"ttl":600,'
        f'"delay":0,"ctime":5}}\n{BEGIN}"queued",{JOB},"reason":"add",{counters}}}\n'
    )


OTHERS = [b"D-01234567-%024d-05a1" % n for n in range(3)]


def test_an_event_of_many_jobs_has_a_line_for_each_of_them() -> None:
    taken = event("delivered", numbers=(1, 2))
    acked = event("acked", reason="client")
    assert line("web-1", taken, *OTHERS, acked, ID) == (
        "".join(line("web-1", taken, id) for id in OTHERS) + line("web-1", acked, ID)
    )


def test_the_same_event_may_be_caused_by_one_client_and_the_next() -> None:
    taken = event("delivered", numbers=(0, 0))
    added = event("added", reason="add", numbers=(0, 0, 7, 1, 1, 300, 600, 0, 8))
    after = event("added", reason="add", numbers=(0, 0, 7, 1, 1, 300, 600, 0, 9))
    one, two, three = OTHERS
    events = [taken, one, "web-1", two, "web-2", three, added, one, "web-1", two, "", taken, three]
    assert line(*events) == (
        line(taken, one)
        + line("web-1", taken, two)
        + line("web-2", taken, three)
        + line("web-2", added, one)
        + line("web-1", after, two)
        + line(taken, three)
    )


def test_the_ctimes_of_new_jobs_rise_by_one() -> None:
    copied = event("copied", numbers=(0, 0, 7, 1, 1, 300, 600, 0, 41))
    added = event("added", reason="add", numbers=(0, 0, 7, 1, 1, 300, 600, 0, 87))
    text = LineWriter(NODE).lines([copied, *OTHERS, added, *OTHERS[:2]])
    found = [json.loads(line) for line in text.splitlines()]
    assert [(line["event"], line["id"].encode(), line.get("ctime")) for line in found] == [
        ("copied", OTHERS[0], 41),
        ("copied", OTHERS[1], 42),
        ("copied", OTHERS[2], 43),
        ("added", OTHERS[0], 87),
        ("queued", OTHERS[0], None),
        ("added", OTHERS[1], 88),
        ("queued", OTHERS[1], None),
    ]


def test_the_number_of_job_lines_equals_that_of_the_events() -> None:
    both = event("added", reason="add", numbers=(0, 0, 7, 1, 1, 300, 600, 0, 87))
    later = event("added", numbers=(0, 0, 7, 1, 1, 300, 600, 9, 87))
    missing = (1_795_290_000_123, "dropped", 17)
    events = [missing, both, *OTHERS[:1], "web-1", *OTHERS[1:], later, *OTHERS, "", both[:4], ID]
    assert count(events) == 11
    assert len(LineWriter(NODE).lines(events).splitlines()) == 1 + 11


def test_invalid_utf_8_in_a_queue_name_is_escaped() -> None:
    assert (
        json.loads(line(event("queued", b"caf\xc3\xa9-\xff\xfe"), ID))["queue"] == "café-\\xff\\xfe"
    )


@pytest.mark.parametrize(
    "name", ['say "hi"', "back\\slash", "two\nlines\r", "\0", "\u2028", "日本", "\x7f\x85"]
)
def test_names_of_any_kind_stay_in_their_line_and_can_be_read_back(name: str) -> None:
    text = line(name, event("delivered", name.encode()), ID)
    assert len(text.splitlines()) == 1
    assert json.loads(text)["queue"] == name
    assert json.loads(text)["client"] == name


@pytest.mark.parametrize("strange", [b'","event":"acked', b"\\", b"\n{}", b"\0\x1f", b"\xff\xc3"])
def test_an_id_of_any_bytes_is_one_field_of_one_line(strange: bytes) -> None:
    id = b"D-00000000-" + strange.ljust(24, b"a") + b"-05a1"
    text = line(event("delivered"), id)
    assert len(text.splitlines()) == 1
    found = json.loads(text)
    assert found["event"] == "delivered"
    assert found["id"] == id.decode("ascii", "backslashreplace")


def test_a_client_name_with_invalid_bytes_is_written_too() -> None:
    stray = b"\xff".decode("utf-8", "surrogateescape")
    assert json.loads(line(stray, event("acked"), ID))["client"] == stray


def test_a_line_about_lost_events_has_their_count() -> None:
    assert line((1_795_290_000_123, "dropped", 17)) == BEGIN + '"dropped","count":17}\n'


def test_more_names_than_the_cache_holds_are_written_correctly() -> None:
    events: list[Event] = []
    for n in range(30_000):
        events += event("queued", b"q%d" % (n % 12_000)), ID
    text = LineWriter(NODE).lines(events)
    queues = [json.loads(line)["queue"] for line in text.splitlines()]
    assert queues == [f"q{n % 12_000}" for n in range(30_000)]


FACTS = {"run": "ab12", "up": 5, "since": 7, "nodes": [NODE, PEER.decode()]}


def test_the_first_line_says_what_is_known_about_the_node() -> None:
    writer = LineWriter(NODE)
    assert set(json.loads(writer.head(9, "two", "", -1))) == {"time", "node", "event", "name"}
    writer.facts = dict(FACTS)
    head = json.loads(writer.head(9, "two", "one", 3))
    assert head == {
        "time": 9,
        "node": NODE,
        "event": "segment",
        "name": "two",
        "after": "one",
        "events": 3,
        **FACTS,
    }


def test_lines_that_change_what_is_known_about_the_node_count_for_the_next_first_line() -> None:
    writer = LineWriter(NODE)
    writer.facts = dict(FACTS)
    text = writer.lines([(20, "stopped", "switched-off"), (30, "started"), (40, "segment", "a b")])
    stopped, started, cluster = map(json.loads, text.splitlines())
    assert stopped["reason"] == "switched-off"
    assert set(started) == {"time", "node", "event"}
    assert cluster == {"time": 40, "node": NODE, "event": "segment", "nodes": ["a", "b"]}
    head = json.loads(writer.head(50, "two", "", -1))
    assert (head["since"], head["up"], head["nodes"]) == (30, 5, ["a", "b"])


def test_a_policy_and_a_move_have_lines_with_all_that_was_said() -> None:
    moved = (*event("updated", reason="client", numbers=(0, 0, 7, 1, 1, 300, 600, 0, 5)), 0, b"")
    events: list[Event] = [
        ("shop"),
        (1, "policy", b"q\xff", b"QSET DEAD d", "admin"),
        (*moved, -1, b"from"),
        ID,
        (*moved, 9, b"from"),
        ID,
    ]
    lines = [json.loads(text) for text in LineWriter(NODE).lines(events).splitlines()]
    assert lines[0] == {
        "time": 1,
        "node": NODE,
        "event": "policy",
        "queue": "q\\xff",
        "client": "admin",
        "what": "QSET DEAD d",
    }
    assert [(one["origin"], one.get("until"), one["client"]) for one in lines[1:]] == [
        ("from", None, "shop"),
        ("from", 9, "shop"),
    ]
    for one in lines:
        assert list(one) == [key for key in KEYS if key in one]
