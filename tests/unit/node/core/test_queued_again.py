"""When jobs were queued again."""

from disque_trio.node.core.queues.queued_again import MOST, QueuedAgain


def test_the_latest_are_known_and_the_others_are_forgotten() -> None:
    again = QueuedAgain()
    ids = [b"D-%d" % number for number in range(3 * MOST)]
    for at, id in enumerate(ids, 1):
        again.note(id, at)
    assert [again.at(id) for id in ids[-MOST:]] == list(range(2 * MOST + 1, 3 * MOST + 1))
    assert sum(again.at(id) > 0 for id in ids) <= 2 * MOST


def test_the_last_time_counts_until_the_job_is_dropped() -> None:
    again = QueuedAgain()
    again.note(b"a", 1)
    for number in range(MOST):
        again.note(b"D-%d" % number, 2)
    assert again.at(b"a") == 1
    again.note(b"a", 3)
    assert again.at(b"a") == 3
    again.drop(b"a")
    assert again.at(b"a") == 0
