"""What is wrong with a queue."""

import pytest

from disque_trio.health.queues import QueueSeen, queue_facts
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
