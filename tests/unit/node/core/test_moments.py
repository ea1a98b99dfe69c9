"""When something happened to the latest jobs."""

import pytest

from disque_trio.node.core.jobs.moments import Moments


@pytest.mark.parametrize("most", [2, 10, 1_000])
def test_the_latest_are_known_and_the_others_are_forgotten(most: int) -> None:
    moments = Moments(most)
    ids = [b"D-%d" % number for number in range(3 * most)]
    for at, id in enumerate(ids, 1):
        moments.note(id, at)
    half = most // 2
    assert [moments.at(id) for id in ids[-half:]] == list(range(3 * most - half + 1, 3 * most + 1))
    assert half <= sum(moments.at(id) > 0 for id in ids) <= most


def test_the_last_time_counts_until_it_is_taken_out() -> None:
    moments = Moments(10)
    moments.note(b"a", 1)
    for number in range(5):
        moments.note(b"D-%d" % number, 2)
    assert moments.at(b"a") == 1
    moments.note(b"a", 3)
    assert moments.at(b"a") == 3
    assert moments.pop(b"a") == 3
    assert moments.at(b"a") == moments.pop(b"a") == 0
