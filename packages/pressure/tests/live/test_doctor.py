"""What the doctor finds in a queue, and how it repairs it on request."""

import dataclasses
import socket
from collections.abc import Iterator

import pytest

from disque_pressure import QueueDoesNotExistError, Stats
from disque_pressure.doctor import Finding, Inspection, examine, judge
from packages.pressure.tests.support.pressure_helpers import Foreign, Spot
from packages.pressure.tests.support.pressure_processes import Redis, create, pressure
from tests.support.harness import Wire

HEALTHY = Stats(
    length=1,
    bound=2,
    closed=False,
    producer="maker",
    consumer=None,
    producer_free=True,
    consumer_free=True,
    produced_messages=1,
    produced_bytes=1,
    consumed_messages=0,
    consumed_bytes=0,
    producer_lease=None,
    consumer_lease=None,
    not_full=True,
)
TOKENS: Inspection = {
    "p:q:producer_free": ("list", "1", None),
    "p:q:consumer_free": ("list", "1", None),
}


@pytest.fixture
def server(spot: Spot) -> Iterator[Redis]:
    wire = Wire(socket.create_connection(("127.0.0.1", spot.port)))
    yield Redis(spot.port, spot.prefix, wire)
    wire.close()


def findings(keys: Inspection | None = None, **changes: object) -> list[Finding]:
    stats = dataclasses.replace(HEALTHY, **changes)  # type: ignore[arg-type]
    return judge(stats, {**TOKENS, **(keys or {})}, "p:q").findings


def test_a_healthy_queue_has_no_findings() -> None:
    diagnosis = judge(HEALTHY, TOKENS, "p:q")
    assert diagnosis.findings == []
    assert diagnosis.lines[0] == "open, 1 elements, bound 2"
    assert "producer: free, last maker" in diagnosis.lines


def test_a_holder_with_a_lease_is_active() -> None:
    assert findings(producer_free=False, producer_lease=20.0) == []


def test_a_holder_without_a_lease_may_be_dead_and_is_named() -> None:
    (finding,) = findings(producer_free=False)
    assert finding.repair == "producer"
    assert "maker" in finding.text
    assert "--free producer" in finding.text


def test_a_holder_of_this_library_without_a_lease_is_dead() -> None:
    held: Inspection = {"p:q:held:producer": ("string", "maker#1234", 1000.0)}
    (finding,) = findings(held, producer_free=False)
    assert "is dead" in finding.text
    assert finding.repair == "producer"
    # Another client of this library had it before the named one, which may be alive.
    held = {"p:q:held:producer": ("string", "maker2#1234", 1000.0)}
    (finding,) = findings(held, producer_free=False)
    assert "nobody can know" in finding.text


def test_two_tokens_for_a_role_are_found() -> None:
    (finding,) = findings({"p:q:consumer_free": ("list", "2", None)})
    assert "2 tokens for one consumer" in finding.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"not_full": False}, "no permit"),
        ({"length": 2}, "may overfill"),
        ({"length": 3, "not_full": False}, "overfilled by 1"),
    ],
)
def test_permits_that_do_not_match_the_length_are_found(
    changes: dict[str, object], words: str
) -> None:
    (finding,) = findings(**changes)
    assert words in finding.text


def test_a_permit_held_by_a_producer_is_no_finding() -> None:
    assert findings(producer_free=False, producer_lease=9.0, not_full=False) == []
    assert findings(length=2, producer_free=False, producer_lease=9.0) == []


def test_a_closed_queue_that_could_reopen_is_found() -> None:
    (finding,) = findings({"p:q:closed": ("list", "1", None)}, closed=True)
    assert "only one closed mark" in finding.text
    assert findings({"p:q:closed": ("list", "2", None)}, closed=True) == []


async def test_an_empty_database_has_no_queue(spot: Spot) -> None:
    async with spot.queue() as queue:
        with pytest.raises(QueueDoesNotExistError):
            await examine(queue)


async def test_remains_of_a_queue_are_listed(spot: Spot, foreign: Foreign) -> None:
    foreign.create(0)
    steps = foreign.delete_steps()
    while next(steps) != "popped consumer_free":
        pass
    async with spot.queue() as queue:
        diagnosis = await examine(queue)
    steps.close()  # type: ignore[attr-defined]
    assert any(spot.key("not_full") in line for line in diagnosis.lines)
    assert "--force" in diagnosis.findings[0].text


def test_the_role_of_a_dead_foreign_client_is_freed_only_on_request(server: Redis) -> None:
    create(server, "q")
    assert pressure(server, "doctor", "q")[1].endswith(b"in order\n")
    server.take_as_foreigner("q", "producer", "them")
    seen = pressure(server, "doctor", "q")[1].decode()
    assert "producer: held by them" in seen
    assert not server.free("q", "producer")
    status, output, error = pressure(server, "doctor", "q", "--free", "producer", "--held-by", "x")
    assert (status, output) == (1, b"")
    assert "'them' is using queue 'q'" in error
    assert not server.free("q", "producer")
    status, output, _ = pressure(server, "doctor", "q", "--free", "producer", "--held-by", "them")
    assert status == 0
    assert b"it was held by them\n" in output
    assert output.endswith(b"in order\n")
    assert server.free("q", "producer")
    assert b"was already free" in pressure(server, "doctor", "q", "--free", "producer")[1]
