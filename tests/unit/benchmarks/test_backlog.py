"""The comparison of backlogs: its amounts, its versions and its table."""

from pathlib import Path

import pytest

from benchmarks.backlog import Backlog, Ours, Plan, backlog_table, disk_bytes
from tests.unit.benchmarks.test_cluster import cells
from tools.bench.dialects import encode


def backlog(subject: str, adding: float, taking: float, resident: int) -> Backlog:
    """Return 1,000 jobs with these CPU seconds and MB."""
    return Backlog(subject, 1_000, adding, taking, 40_000_000, resident * 1_000_000, 3_000_000, 0)


def test_each_server_has_a_row_with_the_ratio_of_ours_to_it() -> None:
    found = [backlog("disque", 0.010, 0.010, 50), backlog("disque", 0.012, 0.010, 52)]
    found += [backlog("nats", 0.020, 0.020, 20), backlog("nats", 0.022, 0.022, 30)]
    ours, nats = cells(backlog_table(found))
    assert ours[:5] == ["disque-trio", "11.0", "10.0-12.0", "10.0", "10.0-10.0"]
    assert ours[5:] == ["**1.00**", "1.00-1.00", "51", "50-52", "40", "3"]
    assert nats[:1] + nats[5:9] == ["NATS JetStream", "**0.50**", "0.50-0.50", "25", "20-30"]


def test_jobs_are_whole_batches_and_each_client_has_one() -> None:
    assert Plan(jobs=100, clients=2, pipeline=16).whole == 112
    assert Plan(jobs=1, clients=5, pipeline=4).whole == 20


def test_takers_of_ours_share_the_jobs_and_end_with_the_last() -> None:
    takers = Ours(Plan(size=12)).takers(2, 3, 2)
    waiting = [next(taker) for taker in takers]
    ids = [b"D-%038d" % number for number in range(3)]
    for taker, exchange, some in zip(takers, waiting, (ids[:2], ids[2:]), strict=True):
        one = b"*3\r\n$5\r\nbench\r\n$40\r\n%b\r\n$12\r\nxxxxxxxxxxxx\r\n"
        reply = b"*%d\r\n" % len(some) + b"".join([one % id for id in some])
        assert exchange.shape.complete(reply, exchange.commands)
        assert taker.send(reply).request == encode(b"ACKJOB", *some)
    assert next(takers[0]).request == waiting[0].request
    assert next(takers[1], None) is None
    with pytest.raises(StopIteration):
        takers[0].send(b"*0\r\n")


def test_the_disk_counts_what_files_take(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "file").write_bytes(b"x" * 10_000)
    assert 10_000 <= disk_bytes(tmp_path) < 20_000
