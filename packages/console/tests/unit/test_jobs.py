"""Jobs as nodes report them: copies, bodies, filters and places."""

from typing import Any

import pytest

from disque_console.model.job_scans import JobFilter, Place
from disque_console.model.jobs import HEX_SHOWN, SHOWN, Body, merge, read_copy

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


def whole(data: bytes) -> Body:
    return Body(data, len(data))


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


def test_a_job_that_a_worker_has_is_asked_for_where_it_was_delivered() -> None:
    for here, there, holder in (
        (reply(), reply(client=7), "there:2"),
        (reply(client=7), reply(), "here:1"),
        (reply("queued"), reply(client=7), "here:1"),
        (reply("acked"), reply(client=7), "there:2"),
    ):
        view = merge([("here:1", here), ("there:2", there)], NODES)
        assert view is not None
        assert view.holder == holder


def test_a_job_that_was_queued_before_its_delay_was_over_is_with_its_worker() -> None:
    view = merge([("here:1", reply(delay=10)), ("there:2", reply(delay=10, client=7))], NODES)
    assert view is not None
    assert view.best.word(1009.0) == "with a worker"
    assert view.copies["here:1"].word(1009.0) == "delayed"


def test_a_job_that_is_delivered_at_most_once_may_have_left_its_worker() -> None:
    copy = read_copy(reply(delay=10, retry=0, client=7))
    assert copy is not None
    assert copy.word(1009.0) == "delivered"


def test_nodes_that_missed_a_change_are_noticed() -> None:
    view = merge([("here:1", reply()), ("there:2", reply(queue=b"r", body=b"y"))], NODES)
    assert view is not None
    assert view.differing == ("queue", "body")


def test_a_job_that_no_node_has_is_none() -> None:
    assert merge([("here:1", None), ("there:2", ValueError())], NODES) is None  # type: ignore[list-item]


def test_all_fields_of_a_letter_are_read() -> None:
    copy = read_copy(
        reply(
            priority=7, headers=[b"a", b"\xff", b"b", b""], group=b"g", note=b"n",
            unique_key=b"u",
            added_to=b"old", attempts=3, last_reason=b"why", dead_from=b"from",
            dead_why=b"attempts", dead_attempts=4, dead_reason=b"because", first_id=b"D-x",
        )
    )  # fmt: skip
    assert copy is not None
    assert (copy.created, copy.requeued_in, copy.awake_in) == (1000.0, 1.5, None)
    assert copy.header_pairs == (("a", "\udcff"), ("b", ""))
    assert (copy.priority, copy.group, copy.unique_key, copy.added_to) == (7, "g", "u", "old")
    assert (copy.attempts, copy.last_reason, copy.note) == (3, "why", "n")
    assert copy.letter is not None
    assert (copy.letter.queue, copy.letter.why, copy.letter.attempts) == ("from", "attempts", 4)
    assert (copy.letter.reason, copy.letter.first_id) == ("because", "D-x")


def test_a_job_with_a_delay_is_delayed_until_that_is_over() -> None:
    copy = read_copy(reply(delay=10))
    assert copy is not None
    assert (copy.word(1009.0), copy.word(1010.0)) == ("delayed", "active")


def test_json_is_indented_and_otherwise_unchanged() -> None:
    body = whole(b'{"a":[1.50,12345678901234567890123,{}],"a":"\\u00e9,{","b":[ ]}')
    assert body.json == (
        '{\n  "a": [\n    1.50,\n    12345678901234567890123,\n    {}\n  ],\n'
        '  "a": "\\u00e9,{",\n  "b": []\n}'
    )


@pytest.mark.parametrize(
    "data", [b"", b"12", b"{", b"[1,]", b"\xff", b"[" * 100_000, b"[" * 5_000 + b"]" * 5_000]
)
def test_invalid_or_too_deep_json_is_not_shown_as_json(data: bytes) -> None:
    assert whole(data).json is None


def test_a_body_is_shown_in_part_if_it_is_long() -> None:
    data = b"x" * (SHOWN - 1) + "ü".encode() + b"y" * SHOWN
    long = whole(data)
    assert long.cut
    assert long.text == "x" * (SHOWN - 1)
    assert not long.editable
    assert len(long.hex.splitlines()) == HEX_SHOWN // 16
    assert whole(b"\xff" * SHOWN * 2).text is None


def test_bytes_are_shown_in_hexadecimal() -> None:
    first, second = whole(b"abc\x00\xff" + b"z" * 12).hex.splitlines()
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
def test_only_bodies_that_survive_a_form_field_can_be_edited(data: bytes, editable: bool) -> None:
    assert whole(data).editable is editable


def read(**query: str | list[str]) -> JobFilter:
    """The filter in a query."""
    values = {name: value if isinstance(value, list) else [value] for name, value in query.items()}
    return JobFilter.read(lambda name: values.get(name, []))


def test_a_filter_becomes_options_of_jscan() -> None:
    wanted = read(
        queue="q\udcff", state="queued", youngest="5", group=" g",
        header=["h", "", "k"], value=[" v ", "", ""],
    )  # fmt: skip
    assert wanted.problem == ""
    assert wanted.words == [
        "STATE", b"queued", "QUEUE", b"q\xff", "MINAGE", b"5", "GROUP", b" g",
        "HEADER", b"h", b" v ", "HEADER", b"k", b"",
    ]  # fmt: skip
    assert read().words == []


def test_jobs_with_a_worker_are_those_that_a_node_has_delivered() -> None:
    wanted = read(queue="q", state="with a worker")
    assert wanted.words == ["TAKEN", "QUEUE", b"q"]
    assert read(**wanted.query) == wanted
    assert wanted.described == {"queue": "q", "state": "with a worker"}


def test_the_start_of_an_id_is_checked_here_because_nodes_have_no_option_for_it() -> None:
    wanted = read(id=" D-aaaaaaaa-00 ")
    assert wanted.words == []
    assert wanted.takes("D-aaaaaaaa-" + "0" * 24 + "-05a1")
    assert not wanted.takes("D-bbbbbbbb-" + "0" * 24 + "-05a1")


def test_a_filter_comes_back_from_the_address_it_makes() -> None:
    wanted = read(queue=" q", id="D-aa", oldest="9", header=["a", "b"], value=["", "x"])
    again = read(**wanted.query)
    assert again == wanted
    assert again.described == {
        "queue": " q", "oldest": "9", "id": "D-aa", "headers": {"a": "", "b": "x"},
    }  # fmt: skip


@pytest.mark.parametrize(
    "query",
    [
        {"state": "BUSYLOOP"}, {"oldest": "-1"}, {"youngest": "1 BUSYLOOP"}, {"returns": "x"},
        {"id": "x"}, {"id": "D- BUSYLOOP"},
    ],
)  # fmt: skip
def test_an_invalid_filter_has_a_problem(query: dict[str, str]) -> None:
    assert read(**query).problem


def test_the_number_of_headers_is_limited() -> None:
    assert read(header=["h"] * 21, value=["v"] * 21).problem


def test_a_place_survives_an_address_and_a_forged_one_is_the_beginning() -> None:
    place = Place("a" * 40, "123")
    assert Place.read(str(place)) == place
    for text in ("", "x", "a" * 40 + "-1 BUSYLOOP", "A" * 40 + "-1"):
        assert Place.read(text) == Place()
