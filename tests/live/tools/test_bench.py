"""Every benchmark on real servers, in runs of a second or two."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import run_command
from tools.bench import beside_c
from tools.bench.callgrind import Counted
from tools.bench.dialects import encode
from tools.bench.filler import Filler
from tools.bench.latency import sync_times
from tools.bench.latency_load import Order, generate
from tools.bench.load import LoadError, ask_once
from tools.bench.measure import Bench, Setting
from tools.bench.nodes import ClusterBench, Way, cluster
from tools.bench.servers import (
    DISQUE_COMMAND,
    HOST,
    WITH_DEBUG,
    Recipe,
    ServerError,
    disque_server,
    redis_server,
    running,
)
from tools.bench.stops import pinger, watches
from tools.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.live


def bench(*arguments: str, path: str | None = None) -> "subprocess.CompletedProcess[str]":
    environment = dict(os.environ) if path is None else {**os.environ, "PATH": path}
    return run_command("tools.bench.__main__", *arguments, cwd=ROOT, text=True, env=environment)


@pytest.mark.parametrize("subject", ["redis", "disque"])
def test_every_command_is_measured_on_both_servers(subject: str, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    done = bench(*f"throughput --quick --work 0.005 --subject {subject} --json {output}".split())
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())["results"]
    # 4 steps, with pipelines of 1 and 16, with 1 and 50 clients, on 2 servers.
    assert len(results) == 4 * 2 * 2 * 2
    assert len({(r["server"], r["step"], str(r["setting"])) for r in results}) == len(results)
    for result in results:
        assert result["commands"] > 0
        assert result["cpu"] > 0
        assert 0 < result["p50"] <= result["p99"] <= result["p999"] <= result["worst"]
    assert done.stdout.count("\n| ") == 2 + 4 * 2 * 2


@pytest.mark.parametrize("scenario", ["held", "idle"])
def test_the_other_scenarios_report_on_both_servers(scenario: str) -> None:
    levels = "--held 100,1000 --idle 100 --work 0.005"
    done = bench(*f"throughput --quick --scenario {scenario} {levels}".split())
    assert done.returncode == 0, done.stderr
    assert "\n| disque" in done.stdout
    assert "\n| redis" in done.stdout


def test_memory_is_measured_with_few_jobs() -> None:
    done = bench("memory", "--quick", "--parts", "held,growth")
    assert done.returncode == 0, done.stderr
    for who in ("node alone", "the replica", "Redis list", "Redis stream"):
        assert f"\n| {who} |" in done.stdout
    assert "kB a round" in done.stdout


def test_queues_on_disk_are_measured_beside_queues_in_memory() -> None:
    done = bench("paging", "--quick")
    assert done.returncode == 0, done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| ")]
    steps = {row[1].strip(): row for row in rows}
    for step in ("ADDJOB", "ACKJOB in random order", "GETJOB and ACKJOB"):
        assert int(steps[step][6].replace(",", "")) > 10_000  # on disk


def test_the_steps_of_a_command_are_printed() -> None:
    done = bench("steps", "--quick")
    assert done.returncode == 0, done.stderr
    assert "\n| ADDJOB | 16 |" in done.stdout


def test_what_nodes_spend_on_knowing_each_other_is_measured() -> None:
    done = bench("gossip", "--quick")
    assert done.returncode == 0, done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [row[1].strip() for row in rows[2:]] == ["3", "10"]
    assert all(float(cell) > 0 for row in rows[2:] for cell in row[2:-1])


# ---- compared with another program that accepts Disque's options ------------------------------


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A program in place of C Disque: our node, under another name."""
    program = tmp_path / "disque-server"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(DISQUE_COMMAND)} "$@"\n')
    program.chmod(0o755)
    return program


@pytest.mark.nightly
def test_all_rows_are_measured_of_both_programs(stand_in: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    done = bench("beside-c", "--c", str(stand_in), "--quick", "--json", str(output))
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())["results"]
    assert {(result["row"], result["server"]) for result in results} == {
        (row, server) for row in beside_c.ROWS for server in beside_c.NAMES
    }
    # CPU time below the resolution of the clock may be 0.
    assert all(result["value"] >= 0 for result in results)
    assert sum(result["value"] > 0 for result in results) > len(results) / 2
    assert done.stdout.count("\n| ") == 2 + len(beside_c.ROWS)


def test_a_missing_c_disque_is_reported_in_one_line(tmp_path: Path) -> None:
    for arguments in ([], ["--c", str(tmp_path / "nothing")]):
        done = bench("beside-c", *arguments)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith("bench: ")
        assert "git clone" in line


def test_instructions_are_those_of_the_commands_that_were_sent(tmp_path: Path) -> None:
    redis = shutil.which("redis-server")
    assert redis is not None
    options = ["--save", "", "--bind", HOST, "--dir", str(tmp_path), "--port"]
    port = free_port()
    counted = Counted([redis, *options, str(port)], tmp_path)
    recipe = Recipe(counted.command, port)
    with running("redis", "redis", lambda _: recipe, lambda port: check(port)) as server:
        counted.begin(server.process.pid)
        subject = Bench(server, 100, lambda server: counted.total(server.process.pid))
        many, few = (subject.pings(Setting(0, 16, 2), count) for count in (9_600, 3_200))
    # No ratio of the two: what Redis does every tenth of a second counts, too.
    assert few.cpu > 3_200 * 100
    assert many.cpu - few.cpu > 6_400 * 100


def check(port: int) -> None:
    assert ask_once(port, b"PING\r\n") == b"+PONG"


# ---- what can go wrong -----------------------------------------------------------------------


def test_a_missing_redis_server_is_reported_in_one_line() -> None:
    done = bench("throughput", "--quick", path="/nowhere")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "bench: redis-server is not installed: apt-get install redis-server"
    )


def test_a_server_that_does_not_start_is_reported_with_its_own_words() -> None:
    command = (sys.executable, "-c", "import sys; sys.exit('no such setting')")
    with (
        pytest.raises(ServerError, match=r"(?s)did not start.*status 1.*no such setting"),
        disque_server(command=command),
    ):
        pass


def test_a_server_that_dies_under_load_is_reported() -> None:
    with redis_server() as server:
        server.process.kill()
        server.process.wait()
        with pytest.raises(ServerError, match=r"redis: .*ended with status -9"):
            Bench(server, 100).fill(10)


def test_a_server_without_memory_left_does_no_work() -> None:
    with redis_server() as server:
        subject = Bench(server, 100)
        assert ask_once(server.port, b"CONFIG SET maxmemory 1\r\n") == b"+OK"
        with pytest.raises(ServerError, match="OOM"):
            subject.steps(Setting(0, 4, 2), 100)


def test_the_cpu_time_agrees_with_the_kernels_statistics() -> None:
    with redis_server() as server:
        Bench(server, 100).fill(100_000)
        fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        assert abs(server.cpu_seconds() - ticks / os.sysconf("SC_CLK_TCK")) < 0.05
        assert server.cpu_seconds() > 0.02


def test_a_server_ends_with_its_context() -> None:
    with redis_server() as server:
        assert server.process.poll() is None
    assert server.process.returncode is not None
    assert not server.log.exists()


# ---- clusters --------------------------------------------------------------------------------


def test_jobs_held_stay_and_measured_ones_go() -> None:
    with cluster([DISQUE_COMMAND] * 3) as nodes:
        bench = ClusterBench(nodes, 100)
        bench.fill(100, 3)
        assert nodes.held() == 300
        for step in ("add", "cycle", "cycle across"):
            found = bench.measure(Way(step, 3, False, 4, 6), 50)
            assert found.jobs == 50
            assert found.usage.cpu > 0
            assert found.usage.packets >= 8  # those of up to 24 jobs share some
            assert nodes.held() == 300


def test_a_node_that_dies_is_named() -> None:
    with cluster([DISQUE_COMMAND] * 2) as nodes:
        bench = ClusterBench(nodes, 100)
        nodes.servers[1].process.kill()
        nodes.servers[1].process.wait()
        with pytest.raises(ServerError, match=r"node-1: .*ended with status -9"):
            bench.measure(Way("cycle", 2, False, 1, 2), 50)


# ---- stops and latencies ---------------------------------------------------------------------


def test_a_node_that_stops_is_seen_from_outside_and_from_inside() -> None:
    command = (*DISQUE_COMMAND, *WITH_DEBUG)
    with watches(1) as (watch,), disque_server(command=watch.command(command)) as server:
        filler = Filler(server, 20)
        with pinger(server.port) as pings:
            pings.ask()
            watch.reset()
            filler.command(b"DEBUG", b"SLEEP", b"0.3")
            filler.command(b"PING")  # the reply leaves before the turn has ended
            stops = watch.read(pings.ask())
    assert stops.wall >= 300
    assert stops.cpu < stops.wall
    assert stops.gap >= 200


@pytest.mark.nightly
@pytest.mark.parametrize(
    "situations", ["no file,everysec", "always,rewrites", "mass expiry", "federation"]
)
def test_a_situation_is_measured_with_all_its_cycles(situations: str, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    done = bench("latency", "--quick", "--situations", situations, "--json", str(output))
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())["results"]
    assert [result["situation"] for result in results] == situations.split(",")
    for result in results:
        measured = result["measured"]
        order, load, watched = (measured[name] for name in ("order", "load", "watched"))
        assert len(load["cycles"]) == round(order["rate"] * order["seconds"])
        assert order["rate"] == result["peak"] / 2
        assert load["seconds"] > 0.5
        assert watched["pings"] > 10
        assert 0 < watched["short"] < 10
        assert f"\n| {result['situation']}" in done.stdout
    assert "written: build/latency.svg" in done.stderr


def test_a_node_that_refuses_the_work_is_reported_with_its_own_words() -> None:
    with disque_server() as server:
        assert ask_once(server.port, encode(b"CONFIG", b"SET", b"maxmemory", b"1")) == b"+OK"
        with pytest.raises(LoadError, match="OOM"):
            generate(Order(server.port, server.port, 100, 0.1, clients=1))


def test_closed_loop_begins_the_next_cycle_when_one_has_ended() -> None:
    with disque_server() as server:
        done = generate(Order(server.port, server.port, 0, 0.3, clients=2))
    assert len(done.cycles) > 2  # more than one for each client
    assert done.seconds >= 0.3
    assert done.rate == len(done.cycles) / done.seconds


def test_a_sync_of_this_disk_takes_some_time() -> None:
    found = sync_times(5)
    assert len(found) == 5
    assert found[-1] > 0
