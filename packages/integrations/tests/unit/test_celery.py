"""The Celery integration without a node."""

import importlib
import json
import os
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import kombu
import pytest
from celery import Celery
from celery.exceptions import ImproperlyConfigured
from kombu.transport import resolve_transport

import disque_integrations.celery
from disque_integrations.celery import messages, options, revoking
from disque_integrations.celery.backend import Backend
from disque_integrations.celery.chords import Parts
from disque_integrations.celery.inbox import Inbox
from disque_integrations.celery.options import TransportOptions, cluster_of
from disque_integrations.celery.store import Entry, Store
from disque_integrations.celery.transport import Transport
from disque_trio.client import ConnectionLost, Job
from disque_trio.extras import how_to_install


def message(**properties: Any) -> messages.Message:
    return {
        "body": b"\x00\nbody",
        "content-type": "application/data",
        "content-encoding": "binary",
        "headers": {"id": "7"},
        "properties": {"delivery_info": {"exchange": "", "routing_key": "q"}, **properties},
    }


def test_importing_registers_the_url_scheme() -> None:
    assert disque_integrations.celery
    assert resolve_transport("disque") is Transport
    with Celery(broker="disque://a", backend="disque://", set_as_current=False) as app:
        assert isinstance(app.backend, Backend)


def test_gevent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disque_integrations.celery.transport.detect_environment", lambda: "gevent")
    with (
        kombu.Connection("disque://a") as connection,
        pytest.raises(ImproperlyConfigured, match="under gevent"),
    ):
        connection.connect()


def test_without_celery_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "celery.app.backends", None)
    with pytest.raises(ImportError, match=re.escape(how_to_install("celery"))):
        importlib.reload(disque_integrations.celery)


def test_a_message_is_received_as_it_was_sent() -> None:
    job = Job("D-1", "q", messages.encode(message()), nacks=1)
    came = messages.decode(job)
    assert came["properties"].pop("delivery_tag") == "D-1"
    assert came["properties"]["delivery_info"].pop("redelivered")
    assert came == message()


@pytest.mark.parametrize("body", [b"", b"hello", b"[]\n", b"{}\n", b"\xff\n"])
def test_an_invalid_message_is_reported(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever JSON says of it
        messages.decode(Job("D-1", "q", body))


def test_priorities_are_clamped() -> None:
    given = [None, 0, 1, 5, 7, 8, 9, 20, -1]
    mapped = [messages.priority(message(priority=number)) for number in given]
    assert mapped == [None, None, 1, 5, 7, 7, 7, 7, None]


def test_a_time_in_the_future_delays_a_task() -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    assert messages.due({"eta": at.isoformat()}) == at.timestamp()
    for eta in (None, "soon", "2020-01-01T00:00:00+00:00", at.replace(tzinfo=None).isoformat()):
        assert messages.due({"eta": eta}) is None


@pytest.mark.parametrize(
    ("said", "ids"),
    [
        ({"method": "revoke", "arguments": {"task_id": "a"}}, ["a"]),
        ({"method": "revoke", "arguments": {"task_id": ["a", "b"]}, "destination": []}, ["a", "b"]),
        ({"method": "revoke", "arguments": {"task_id": "a"}, "destination": ["w"]}, []),
        ({"method": "revoke", "arguments": {"task_id": "a"}, "pattern": "w*"}, []),
        ({"method": "revoke", "arguments": None}, []),
        ({"method": "ping", "arguments": {}}, []),
        (["revoke"], []),
    ],
)
def test_tasks_are_cancelled_that_all_workers_are_told_to_drop(said: Any, ids: list[str]) -> None:
    told: messages.Message = {
        "body": json.dumps(said),
        "content-type": "application/json",
        "content-encoding": "utf-8",
    }
    assert revoking.revoked("celery.pidbox", told) == ids
    assert revoking.revoked("celery.news", told) == []
    assert revoking.revoked("celery.pidbox", {**told, "body": "{"}) == []


def test_the_jobs_of_tasks_can_be_found_by_their_ids() -> None:
    task = {**message(), "headers": {"id": "7", "task": "add"}}
    assert messages.headers(task) == {messages.TASK_ID: "7"}
    assert messages.headers(message()) is None


def test_options_come_from_all_sources() -> None:
    given = TransportOptions.of({"retry": 7, "queue_prefix": "x.", "max_retries": 3})
    assert given == TransportOptions(retry=7, queue_prefix="x.")


def test_urls_without_a_host_mean_localhost() -> None:
    assert cluster_of(["disque://"]).nodes == ("localhost:7711",)
    assert cluster_of(["disque://:p@a//", "disque://b:1"]).nodes == ("a:7711", "b:1")


def test_the_backend_uses_the_nodes_of_the_broker_and_hides_the_password() -> None:
    with Celery(broker="disque://:p@a;disque://b:1", backend="disque://") as app:
        assert app.backend.as_uri() == "disque://a:7711;disque://b:1"
        assert app.backend.as_uri(include_password=True) == "disque://"


def test_attempts_to_find_a_node_are_brief_once_a_long_one_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    firsts: list[float | None] = []

    def connect_to(*_: object) -> None:
        firsts.append(cast(float | None, _[3]))
        raise ConnectionLost("there is none")

    monkeypatch.setattr(options, "connect_to", connect_to)
    clients = options.Clients()
    access = options.Access(cluster_of(["disque://a"]), 5.0, 5.0)
    other = options.Access(cluster_of(["disque://b"]), 5.0, 5.0)
    for one in (access, access, other):
        with pytest.raises(ConnectionLost):
            clients.take(one)
    first, second, third = firsts
    assert first is None
    assert second is not None
    assert second < 1
    assert third is None


def test_an_inbox_wakes_its_waiter_once() -> None:
    inbox = Inbox()
    inbox.wait(0)
    for _ in range(3):
        inbox.put(int)
    inbox.wait(None)
    assert [inbox.take() for _ in range(4)] == [int, int, int, None]
    with pytest.raises(BlockingIOError):
        os.read(inbox.fd, 1)
    inbox.put(int)
    inbox.wait(None)
    inbox.close()


class Marks:
    """The part of ``Store`` that chords need."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    def find(self, keys: Iterable[bytes], value: bytes = b"") -> list[Entry]:
        return [Entry("id", self.values.setdefault(key, value)) for key in keys]

    def forget(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self.values.pop(key, None)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("indices", ["own", "same", "none"])
def test_only_the_last_part_of_a_chord_is_the_last_one(size: int, indices: str) -> None:
    marks = Marks()
    parts = Parts(cast(Store, marks), b"chord", size)
    tasks: list[tuple[str, int | None]] = [
        (f"task-{n}", {"own": n, "same": 0, "none": None}[indices]) for n in range(size)
    ]
    *before, last = tasks
    for n, part in enumerate(before):
        assert not parts.is_last(*part)
        # The same when they are delivered again.
        for again in before[: n + 1]:
            assert not parts.is_last(*again)
    assert parts.is_last(*last)
    assert parts.is_last(*last)  # in case it was killed before it could say so
    assert not parts.is_last("one more", 0)
    parts.forget()
    assert marks.values == {}
