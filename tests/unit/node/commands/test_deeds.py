"""What the log tells of what clients do: all that changes queues or the cluster for everybody."""

import pytest

from disque_trio.health import deeds
from tests.support.node_bench import Bench

OTHER = "f" * 40


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ("QPURGE mail", (deeds.QUEUE_PURGED, b"mail", 0)),
        ("QMOVE mail post", (deeds.JOBS_MOVED, b"mail to post", 0)),
        ("QMOVE mail post COUNT 3", (deeds.JOBS_MOVED, b"mail to post", 0)),
        ("REDRIVE mail.dead", (deeds.LETTERS_REDRIVEN, b"mail.dead", 0)),
        ("PAUSE mail all", (deeds.PAUSED, b"mail", 0)),
        ("PAUSE mail in bcast", (deeds.PAUSED, b"mail", 0)),
        ("PAUSE mail none", (deeds.RESUMED, b"mail", 0)),
        ("QSET mail ATTEMPTS 3", (deeds.POLICY_SET, b"mail", 0)),
        ("CLUSTER MEET 10.0.0.2 7711", (deeds.MET, b"10.0.0.2:7711", 0)),
        ("CLUSTER LEAVING yes", (deeds.LEAVES, b"", 0)),
        ("CLUSTER LEAVING no", (deeds.STAYS, b"", 0)),
        ("CLUSTER RESET", (deeds.RESET, b"", 0)),
    ],
)
def test_it_tells(bench: Bench, request_: str, told: tuple[str, bytes, int]) -> None:
    bench.send(bench.me, *request_.split())
    assert bench.host.deeds == [told]


def test_it_tells_of_a_policy_that_was_there_and_is_deleted(bench: Bench) -> None:
    bench("QDEL", "mail")
    assert bench.host.deeds == []
    bench("QSET", "mail", "ATTEMPTS", 3)
    bench("QDEL", "mail")
    assert bench.host.deeds[1:] == [(deeds.POLICY_DELETED, b"mail", 0)]


def test_it_tells_of_many_jobs_that_are_cancelled_and_not_of_a_few(bench: Bench) -> None:
    ids = [bench.add() for _ in range(deeds.MANY_CANCELLED + 1)]
    bench("CANCEL", *ids[: deeds.MANY_CANCELLED - 1])
    assert bench.host.deeds == []
    bench("CANCEL", *ids, "TERMINATE")
    assert bench.host.deeds == [(deeds.JOBS_CANCELLED, b"", len(ids))]


@pytest.mark.parametrize(
    "request_",
    [
        "PAUSE mail state",
        "PAUSE mail often",
        "QMOVE mail mail",
        "QSET mail ATTEMPTS many",
        f"CLUSTER FORGET {OTHER}",
        "CLUSTER LEAVING perhaps",
        "CLUSTER MEET 10.0.0.2 0",
        "CLUSTER NODES",
        "CLUSTER LEAVING",
        "QLEN mail",
        "ADDJOB mail body 0",
    ],
)
def test_it_does_not_tell_of_what_is_refused_or_only_asked(bench: Bench, request_: str) -> None:
    bench.send(bench.me, *request_.split())
    assert bench.host.deeds == []
