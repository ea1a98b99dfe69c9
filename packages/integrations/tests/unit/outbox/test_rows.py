"""The arguments of ``add`` survive the way through a row."""

import json
import time
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_integrations.outbox.rows import Row, columns, row_of
from disque_integrations.outbox.tasks import job_of
from disque_trio.job_options import encode
from disque_trio.tasks import Bound, Disque


def row(**options: object) -> Row:
    values = columns("q", "body", **options)  # type: ignore[arg-type]
    return row_of(values["key"], values["queue"], values["body"], values["options"], 0)


def test_a_row_becomes_the_job_that_was_added() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    options = {"retry": 5, "ttl": 60, "maxlen": 9, "priority": 7, "replicate": 2}
    added = row(at=at, group="customer", headers={"a": "b"}, **options)
    job = added.job()
    assert (job.queue, job.body, job.unique) == ("q", b"body", str(added.key))
    assert job.headers == [(b"a", b"b")]
    assert job.options == {**options, "at": at.timestamp(), "group": "customer"}


@given(
    st.binary(),
    st.binary(min_size=1),
    st.lists(st.tuples(st.binary(min_size=1), st.text() | st.binary()), max_size=3),
)
def test_any_bytes_and_texts_survive(
    body: bytes, group: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    try:
        values = columns("q", body, group=group, headers=headers)
        sent = [
            (name, value if isinstance(value, bytes) else value.encode()) for name, value in headers
        ]
    except UnicodeEncodeError:
        return
    values["options"].encode("ascii")
    job = row_of(values["key"], "q", memoryview(body), values["options"], 0).job()
    assert (job.body, job.headers or []) == (body, sent)
    assert encode(job.options) == ["GROUP", group]


def test_a_delay_counts_from_when_the_row_is_written() -> None:
    before = time.time()
    at = row(delay=3600).job().options.get("at")
    assert isinstance(at, float)
    assert before + 3600 - 0.01 <= at <= time.time() + 3600.01


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 1, "at": 5},
        {"at": datetime(2030, 1, 1)},
        {"priority": 8},
        {"priority": -1},
        {"retry": -1},
        {"ttl": 0},
        {"maxlen": 0},
        {"group": ""},
        {"group": "é" * 513},
        {"at": -1},
        {"at": datetime(2107, 1, 1, tzinfo=UTC)},
        {"delay": 2**40},
        {"delay": float("inf")},
        {"at": float("nan")},
        {"retry": 30.0},
        {"ttl": True},
        {"replicate": 0},
        {"group": 5},
    ],
)
def test_options_that_no_node_accepts_are_refused_in_the_transaction(
    options: dict[str, object],
) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        row(**options)


def test_an_option_that_does_not_exist_is_an_error_that_says_what_was_meant() -> None:
    with pytest.raises(
        TypeError, match="unknown option of a job: prioritty; did you mean priority"
    ):
        row(prioritty=7)


@pytest.mark.parametrize("queue", ["", "a\0b", b"\xff", "\ud800"])
def test_a_queue_needs_a_name_that_a_database_can_store(queue: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        columns(queue, "body")


def test_a_body_that_no_node_accepts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disque_integrations.outbox.rows.MAX_BULK", 3)
    columns("q", "abc")
    with pytest.raises(ValueError, match="at most 3 bytes"):
        columns("q", "abcd")


@pytest.mark.parametrize(
    "options",
    [
        "",
        "[]",
        "{",
        "[" * 5000 + "]" * 5000,
        '{"colour": "red"}',
        '{"headers": [1]}',
        '{"at_ms": "x"}',
        '{"at_ms": NaN}',
        '{"at_ms": 1e999}',
        '{"group": 5}',
        '{"retry": 1.5}',
        '{"ttl": {}}',
        '{"priority": [1]}',
        '{"maxlen": true}',
        '{"at_ms": 1' + "0" * 400 + "}",
    ],
)
def test_invalid_options_of_another_program_are_an_error(options: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Row(uuid4(), "q", b"", options, 0).job()


def test_the_options_of_a_plain_job_are_empty() -> None:
    assert json.loads(columns("q", "")["options"]) == {}


def test_the_key_of_a_unique_task_goes_with_its_row() -> None:
    app = Disque("disque://nowhere.invalid")

    @app.task(queue="mail", unique=lambda to, **_: to, group_by=lambda to, **_: to)
    def send(to: str, *, text: str = "") -> None: ...

    def row_of_task(bound: Bound[None]) -> Row:
        values = columns(**job_of(bound))
        return row_of(values["key"], values["queue"], values["body"], values["options"], 0)

    plain = row_of_task(send.options(unique=False).bind("ann"))
    assert (plain.job().unique, plain.job().own) == (str(plain.key), False)
    job = row_of_task(send.bind("ann", text="x")).job()
    assert (job.unique, job.own, job.unique_for) == (f"{send.name} ann", True, None)
    assert job.options.get("group") == "ann"
    later = row_of_task(send.options(unique_for=60, delay=5).bind("bob")).job()
    assert (later.unique, later.own, later.unique_for) == (f"{send.name} bob", True, 60.0)
    debounced = row_of_task(send.options(debounce=5).bind("bob")).job()
    assert (debounced.unique, debounced.unique_for) == (f"{send.name} bob", None)
    assert debounced.options.get("replace") is True
    assert debounced.options.get("at", 0) > debounced.options.get("delay", 0)
    started = row_of_task(send.options(unique_until="start").bind("bob")).job()
    assert started.options.get("unique_until") == "start"
    with pytest.raises(TypeError, match="missing a required argument"):
        job_of(send.bind())


@pytest.mark.parametrize(
    "options", [{"replace": True}, {"unique": "k", "unique_for": 5, "replace": True}]
)
def test_options_of_a_key_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="unique"):
        columns("q", "body", **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unique"):
        Row(uuid4(), "q", b"", json.dumps(options), 0).job()


def test_a_task_comes_again_as_soon_as_if_it_was_added_without_an_outbox() -> None:
    app = Disque("disque://127.0.0.1:7711")

    @app.task
    def send(to: str) -> None: ...

    assert job_of(send.bind("ann"))["retry"] == 30
    assert job_of(send.options(redeliver_after=7).bind("ann"))["retry"] == 7
    assert job_of(send.options(ttl=20).bind("ann"))["retry"] == 2
