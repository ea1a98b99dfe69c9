"""Jobs as nodes tell of them: copies, bodies, filters and places."""

from typing import Any

import pytest

from disque_trio.console.model.job_scans import JobFilter, Place
from disque_trio.console.model.jobs import HEX_SHOWN, SHOWN, Body, merge, read_copy

ID = "D-aaaaaaaa-" + "0" * 24 + "-05a1"
NODES = {"here:1": "a" * 40, "there:2": "b" * 40}


def reply(state: str = "active", **more: Any) -> Any:
    fields: dict[str, Any] = {
        "id": ID.encode(), "queue": b"q", "state": state.encode(), "repl": 2, "ttl": 60,
        "ctime": 1_000_000_000_000, "delay": 0, "retry": 5, "nacks": 1,
        "additional-deliveries": 2, "nodes-delivered": [b"a" * 40, b"b" * 40],
        "nodes-confirmed": [], "next-requeue-within": 1500, "next-awake-within": None,
        "body": b"x",
    }  # fmt: skip
    fields |= {name.replace("_", "-"): value for name, value in more.items()}
    return [word for name, value in fields.items() for word in (name.encode(), value)]


def test_a_job_is_asked_for_where_it_is_queued_or_else_where_it_was_made() -> None:
    for here, there, holder in (
        ("queued", "active", "here:1"),
        ("active", "queued", "there:2"),
        ("active", "active", "here:1"),
        ("acked", "active", "there:2"),
    ):
        view = merge([("there:2", reply(there)), ("here:1", reply(here))], NODES)
        assert view is not None
        assert view.holder == holder
        assert view.differing == ()


def test_nodes_that_have_not_heard_of_a_change_are_seen() -> None:
    view = merge([("here:1", reply()), ("there:2", reply(queue=b"r", body=b"y"))], NODES)
    assert view is not None
    assert view.differing == ("queue", "body")


def test_a_job_that_no_node_has_is_none() -> None:
    assert merge([("here:1", None), ("there:2", ValueError())], NODES) is None  # type: ignore[list-item]


def test_all_fields_of_a_letter_are_read() -> None:
    copy = read_copy(
        reply(
            priority=7, headers=[b"a", b"\xff", b"b", b""], group=b"g", unique_key=b"u",
            added_to=b"old", attempts=3, last_reason=b"why", dead_from=b"from",
            dead_why=b"attempts", dead_attempts=4, dead_reason=b"because", first_id=b"D-x",
        )
    )  # fmt: skip
    assert copy is not None
    assert (copy.created, copy.requeued_in, copy.awake_in) == (1000.0, 1.5, None)
    assert copy.headers == (("a", "\udcff"), ("b", ""))
    assert (copy.priority, copy.group, copy.unique_key, copy.added_to) == (7, "g", "u", "old")
    assert (copy.attempts, copy.last_reason) == (3, "why")
    assert copy.letter is not None
    assert (copy.letter.queue, copy.letter.why, copy.letter.attempts) == ("from", "attempts", 4)
    assert (copy.letter.reason, copy.letter.first_id) == ("because", "D-x")


def test_a_job_with_a_delay_is_delayed_until_that_is_over() -> None:
    copy = read_copy(reply(delay=10))
    assert copy is not None
    assert (copy.word(1009.0), copy.word(1010.0)) == ("delayed", "active")


def test_json_is_indented_and_otherwise_as_it_was_written() -> None:
    body = Body(b'{"a":[1.50,12345678901234567890123,{}],"a":"\\u00e9,{","b":[ ]}')
    assert body.json == (
        '{\n  "a": [\n    1.50,\n    12345678901234567890123,\n    {}\n  ],\n'
        '  "a": "\\u00e9,{",\n  "b": []\n}'
    )


@pytest.mark.parametrize(
    "data", [b"", b"12", b"{", b"[1,]", b"\xff", b"[" * 100_000, b"[" * 5_000 + b"]" * 5_000]
)
def test_what_is_no_json_or_too_deep_is_not_shown_as_such(data: bytes) -> None:
    assert Body(data).json is None


def test_a_body_is_shown_in_part_if_it_is_long() -> None:
    long = Body(b"x" * (SHOWN - 1) + "ü".encode() + b"y" * SHOWN)
    assert long.cut
    assert long.text == "x" * (SHOWN - 1)
    assert not long.editable
    assert len(long.hex.splitlines()) == HEX_SHOWN // 16
    assert Body(b"\xff" * SHOWN * 2).text is None


def test_bytes_are_shown_in_hexadecimal() -> None:
    first, second = Body(b"abc\x00\xff" + b"z" * 12).hex.splitlines()
    assert first.startswith("00000000  61 62 63 00 ff 7a")
    assert first.endswith("  abc..zzzzzzzzzzz")
    assert second == "00000010  7a" + " " * 45 + "  z"


@pytest.mark.parametrize(
    ("data", "editable"),
    [
        (b"", True), (b"a\nb", True), (b"a\r\nb\r\n", True), (b"a\r\nb\n", False),
        (b"a\rb", False), (b"\x00", False), (b"\xff", False), (b"\tx", True),
    ],
)  # fmt: skip
def test_only_what_a_field_gives_back_as_it_was_can_be_edited(data: bytes, editable: bool) -> None:
    assert Body(data).editable is editable


def test_a_filter_becomes_options_of_jscan() -> None:
    query = {"queue": "q\udcff", "state": "queued", "youngest": "5", "header": "h", "value": " v "}
    wanted = JobFilter.read(lambda name: query.get(name, ""))
    assert wanted.problem == ""
    assert wanted.words == [
        "QUEUE", b"q\xff", "STATE", "queued", "MINAGE", "5", "HEADER", b"h", b" v ",
    ]  # fmt: skip
    assert JobFilter.read(lambda name: "").words == []


@pytest.mark.parametrize(
    "query", [{"state": "BUSYLOOP"}, {"oldest": "-1"}, {"youngest": "1 BUSYLOOP"}, {"returns": "x"}]
)
def test_a_filter_that_makes_no_sense_says_so(query: dict[str, str]) -> None:
    assert JobFilter.read(lambda name: query.get(name, "")).problem


def test_a_place_survives_an_address_and_a_forged_one_is_the_beginning() -> None:
    place = Place("a" * 40, "123")
    assert Place.read(str(place)) == place
    for text in ("", "x", "a" * 40 + "-1 BUSYLOOP", "A" * 40 + "-1"):
        assert Place.read(text) == Place()
