"""The benchmark of clusters: its words, its sums, its tables, and short runs on real nodes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.bench.cluster import Beside, growth_table, ways_table
from tools.bench.fleet import Usage, fleet
from tools.bench.load import Exchange
from tools.bench.replicated import ClusterBench, Copied, Result, Way, consume
from tools.bench.servers import ServerError

ROOT = Path(__file__).resolve().parents[3]
SIZE = 20
ID = b"D-12345678-" + b"a" * 24 + b"-05a1"
WAY = Way("cycle", 3, False, 16, 50)


def result(way: Way, cpu: float, nodes: int = 3, bus_bytes: int | None = 4_000) -> Result:
    """1000 jobs in 2 seconds."""
    return Result(way, nodes, 0, 0, 1_000, 2.0, 0.1, Usage(cpu, 5_000, bus_bytes))


def job(dialect: Copied, queue: bytes) -> bytes:
    """A reply to GETJOB."""
    head = b"*1\r\n*3\r\n$%d\r\n%b\r\n$40\r\n%b\r\n" % (len(queue), queue, ID)
    return head + b"$%d\r\n%b\r\n" % (SIZE, b"b" * SIZE)


def cells(table: str) -> list[list[str]]:
    """The rows of a table, without the titles."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_job_is_added_with_its_copies_and_never_queued_again_meanwhile(
    asynchronous: bool,
) -> None:
    words = Copied(SIZE, b"q", 3, asynchronous).add(b"body").split(b"\r\n")[2::2]
    options = [b"REPLICATE", b"3", b"RETRY", b"86400", b"TTL", b"604800"]
    assert words == [b"ADDJOB", b"q", b"body", b"20000", *options, *[b"ASYNC"] * asynchronous]


def test_a_consumer_takes_and_ends_what_others_added() -> None:
    dialect = Copied(SIZE, b"q-1", 3, False)
    script = consume(dialect, [2])
    first = next(script)
    assert first == Exchange(dialect.take(0) * 2, dialect.taken, 2)
    reply = job(dialect, b"q-1") * 2
    assert first.shape.complete(reply, 2)
    second = script.send(reply)
    assert second == Exchange(dialect.ack(0, ID) * 2, dialect.acked, 2)
    with pytest.raises(StopIteration):
        script.send(b":1\r\n:1\r\n")


def test_usage_is_what_came_on_top() -> None:
    assert Usage(3.0, 30, 300).since(Usage(1.0, 10, 100)) == Usage(2.0, 20, 200)
    assert Usage(3.0, 30, None).since(Usage(1.0, 10, 100)).bus_bytes is None


def test_each_way_has_a_row_with_its_ratio_to_redis() -> None:
    sync = [result(WAY, 0.2), result(WAY, 0.3), result(WAY, 0.4)]
    redis = [Beside("cycle", 16, round, 10.0, 1_000.0) for round in range(3)]
    redis += [Beside("add", 16, round, 1.0, 9_000.0) for round in range(3)]
    (row,) = cells(ways_table(sync, redis))
    assert row[:3] == ["cycle", "with all copies", "16"]
    assert row[3:] == ["**30.00**", "20.00-40.00", "3.0", "500", "0.50", "5.0", "4"]


def test_growth_is_relative_to_the_lowest_level() -> None:
    found = [result(WAY, 0.2, nodes=1, bus_bytes=None), result(WAY, 0.5, nodes=9)]
    one, nine = cells(growth_table(found, lambda r: r.nodes, "nodes"))
    assert one[:4] == ["cycle", "16", "1", "3"]
    assert [one[6], nine[6]] == ["1.00", "2.50"]
    assert one[9] == "not counted"


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, "-m", "tools.bench.cluster", "--quick", *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


@pytest.mark.live
@pytest.mark.parametrize(
    ("scenario", "rows"), [("ways", 3 * 2 * 2), ("nodes", 3 * 2 * 2), ("held", 3 * 2 * 2)]
)
def test_a_scenario_measures_real_nodes(scenario: str, rows: int) -> None:
    done = bench("--scenario", scenario)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n| ") == 2 + rows


@pytest.mark.live
def test_jobs_held_stay_and_measured_ones_go() -> None:
    with fleet(3) as nodes:
        bench = ClusterBench(nodes, 100)
        bench.fill(100, 3)
        assert nodes.held() == 300
        for step in ("add", "cycle", "cycle across"):
            found = bench.measure(Way(step, 3, False, 4, 6), 50)
            assert found.jobs == 50
            assert found.usage.cpu > 0
            assert found.usage.packets >= 50
            assert nodes.held() == 300


@pytest.mark.live
def test_a_node_that_dies_is_named() -> None:
    with fleet(2) as nodes:
        bench = ClusterBench(nodes, 100)
        nodes.servers[1].process.kill()
        nodes.servers[1].process.wait()
        with pytest.raises(ServerError, match=r"node-1: .*ended with status -9"):
            bench.measure(Way("cycle", 2, False, 1, 2), 50)
