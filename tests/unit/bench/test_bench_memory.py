"""The benchmark of memory: its words, its sums, its tables, and a short run on real servers."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.bench.load import LoadError
from tools.bench.memory import growth_text, held_table, steps_table
from tools.bench.memory_load import Counted, Filler, Stream, StreamReply, Timed, ends, ids_in
from tools.bench.memory_runs import Growth, Held, Step
from tools.bench.servers import DISQUE_COMMAND, disque_server
from tools.bench.stops import Stops, pinger, watches
from tools.bench.workloads import encode

ROOT = Path(__file__).resolve().parents[3]
IDS = [b"D-12345678-%024d-05a1" % number for number in range(5)]


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_a_job_takes_what_the_process_grew_by() -> None:
    held = Held("node alone", 1_000, 10_000, 410_000, 90_000)
    assert held.per_job == 400
    assert held.kept == 0.2
    assert Held("node alone", 1_000, 10_000, 410_000).kept is None


def test_each_process_has_a_row() -> None:
    alone = Held("node alone", 1_000_000, 40_000_000, 440_000_000, 80_000_000)
    large = Held("node alone", 10_000_000, 40_000_000, 4_040_000_000)
    first, second = cells(held_table([alone, large]))
    assert first == ["node alone", "1,000,000", "**400**", "40", "440", "80", "10%"]
    assert second == ["node alone", "10,000,000", "**400**", "40", "4,040", "", ""]


def test_each_step_has_a_row_with_what_was_seen() -> None:
    inside = Step("ADDJOB", 10, Stops(0.0, 2.25, 1.0, 0.0, 0, 0))
    both = Step("the collector runs", 10, Stops(3.0, 2.0, 1.0, 0.75, 1, 42))
    first, second = cells(steps_table([inside, both]))
    assert first == ["ADDJOB", "10", "", "2.2", "**1.0**", "0", "", ""]
    assert second == ["the collector runs", "10", "3.0", "2.0", "**1.0**", "1", "0.8", "42"]


def test_growth_is_told_by_the_round() -> None:
    grown = Growth(1_000, 10, (50_000_000, 50_100_000, 50_300_000))
    assert grown.per_round == 150_000
    assert growth_text(grown).endswith("has 50.0, 50.1, 50.3 MB: +150 kB a round.")


def test_ids_are_read_from_the_replies_of_batches() -> None:
    replies = [b"+%b\r\n+%b\r\n" % (IDS[0], IDS[1]), b"+%b\r\n" % IDS[2]]
    assert ids_in(replies) == IDS[:3]


def test_jobs_are_ended_many_at_once_and_every_one_must_be_known() -> None:
    first, second = ends(b"ACKJOB", IDS, 2, 2)
    assert first.commands == 2
    assert second.commands == 1
    assert first.request == encode(b"ACKJOB", *IDS[:2]) + encode(b"ACKJOB", *IDS[2:4])
    assert second.request == encode(b"ACKJOB", IDS[4])
    assert first.shape.complete(b":2\r\n:2\r\n", 2)
    assert not first.shape.complete(b":2\r\n", 2)
    assert second.shape.complete(b":1\r\n", 1)
    with pytest.raises(LoadError):
        first.shape.complete(b":2\r\n:1\r\n", 2)


def test_replies_are_numbers_in_their_order() -> None:
    assert Counted([3, 1]).complete(b":3\r\n:1\r\n", 2)


def test_the_replies_of_a_stream_are_counted() -> None:
    reply = b"$15\r\n1526919030474-0\r\n"
    assert StreamReply().complete(reply * 2, 2)
    assert not StreamReply().complete(reply, 2)
    with pytest.raises(LoadError, match="OOM"):
        StreamReply().complete(b"-OOM\r\n", 1)
    assert Stream(20).add(b"body").split(b"\r\n")[2::2] == [b"XADD", b"stream", b"*", b"b", b"body"]


def test_timed_jobs_are_delivered_once_at_most() -> None:
    words = Timed(20, (b"TTL", b"15")).add(b"body").split(b"\r\n")[2::2]
    assert words == [b"ADDJOB", b"bench", b"body", b"0", b"RETRY", b"0", b"TTL", b"15"]


def test_a_watch_says_what_was_written_until_it_is_reset() -> None:
    with watches(2) as (watch, other):
        assert watch.command(("server", "x"))[-2:] == ("server", "x")
        watch._figures[0] = 3_000_000
        watch._figures[3] = 2
        assert watch.read(4.0) == Stops(4.0, 3.0, 0.0, 0.0, 2, 0)
        assert other.read() == Stops(0.0, 0.0, 0.0, 0.0, 0, 0)
        watch.reset()
        assert watch.read() == Stops(0.0, 0.0, 0.0, 0.0, 0, 0)


@pytest.mark.live
def test_a_node_that_stops_is_seen_from_outside_and_from_inside() -> None:
    with watches(1) as (watch,), disque_server(command=watch.command(DISQUE_COMMAND)) as server:
        filler = Filler(server, 20)
        with pinger(server.port) as pings:
            watch.reset()
            filler.command(b"DEBUG", b"SLEEP", b"0.3")
            filler.command(b"PING")  # the reply leaves before the turn has ended
            stops = watch.read(pings.longest())
    assert stops.wall >= 300
    assert stops.cpu < stops.wall
    assert stops.gap >= 200


@pytest.mark.live
def test_everything_is_measured_with_few_jobs() -> None:
    command = (sys.executable, "-m", "tools.bench.memory", "--quick", "--parts", "held,growth")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    for who in ("node alone", "the replica", "Redis list", "Redis stream"):
        assert f"\n| {who} |" in done.stdout
    assert "kB a round" in done.stdout
