"""What is wrong with a queue."""

import pytest

from disque_trio.health.queues import (
    QueueSeen,
    QueueTimes,
    last_death,
    queue_facts,
    read_times,
    unserved_for,
)
from disque_trio.health.table import DEAD_WITHIN, NO_WORKER_AFTER, WAITS_TOO_LONG

LONG = QueueSeen("search.index", 1_839, 42 * 60, unserved=26 * 60)


def kinds(seen: QueueSeen) -> list[str]:
    return [fact.kind for fact in queue_facts(seen)]


def test_a_queue_without_a_worker_says_how_long() -> None:
    (fact,) = queue_facts(LONG)
    assert fact.kind == "no-worker"
    assert fact.about == "search.index"
    assert fact.cause == "1,839 jobs, oldest 42 min, no worker for 26 min"


@pytest.mark.parametrize(
    "seen",
    [
        LONG._replace(length=0),
        LONG._replace(paused=True),
        LONG._replace(letters=True),
        LONG._replace(unserved=NO_WORKER_AFTER - 1, oldest=WAITS_TOO_LONG - 1),
        LONG._replace(unserved=None, oldest=WAITS_TOO_LONG - 1),
        QueueSeen("q", 0, 0, died=DEAD_WITHIN, deaths=5),
    ],
)
def test_nothing_is_wrong_with_these(seen: QueueSeen) -> None:
    assert kinds(seen) == []


def test_jobs_that_wait_though_somebody_takes_them_are_told_of() -> None:
    assert kinds(LONG._replace(unserved=1)) == ["waits-long"]
    assert kinds(LONG._replace(waiters=1)) == ["waits-long"]  # a limit holds them back
    assert kinds(LONG._replace(unserved=None)) == ["waits-long"]


def test_new_dead_letters_are_told_of_for_a_while() -> None:
    seen = QueueSeen("q", 0, 0, died=DEAD_WITHIN - 1, deaths=2)
    (fact,) = queue_facts(seen)
    assert (fact.kind, fact.about) == ("dead-letters", "q")
    assert "2 jobs" in fact.cause


def times(
    filled: float | None = None, wanted: float | None = None, died: float | None = None
) -> QueueTimes:
    return QueueTimes(filled, wanted, died, died is not None)


def test_the_times_in_a_reply_are_read() -> None:
    told = {b"len": 2, b"filled-ago": 1_500, b"wanted-ago": -1, b"died-ago": 10, b"jobs-died": 3}
    assert read_times(told) == QueueTimes(1.5, None, 0.01, 3)
    assert read_times({**told, b"len": 0, b"died-ago": -1}) == QueueTimes(None, None, None, 3)
    assert read_times({b"len": 2, b"age": 7}) is None
    assert read_times({**told, b"wanted-ago": b"x"}) is None


@pytest.mark.parametrize(
    ("nodes", "seconds"),
    [
        ([], None),
        ([times(None, 5)], None),  # no job waits
        ([times(90)], 90),  # nobody has ever asked
        ([times(90, 400)], 90),  # it was empty when somebody did
        ([times(400, 90)], 90),
        ([times(90), times(400)], 400),
        ([times(400), times(None, 20)], 20),  # a client of another node took its jobs
        ([times(400, 300), times(60, None)], 300),
    ],
)
def test_jobs_are_unserved_since_they_wait_and_no_client_of_any_node_took_one(
    nodes: list[QueueTimes], seconds: float | None
) -> None:
    assert unserved_for(nodes) == seconds


def test_deaths_are_added_up_and_the_last_one_counts() -> None:
    assert last_death([times(), times(died=50), times(died=20)]) == (20, 2)
    assert last_death([times(1)]) == (None, 0)
