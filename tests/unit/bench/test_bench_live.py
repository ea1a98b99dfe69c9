"""The whole benchmark on real servers, in runs of a second or two."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.bench.load import ask
from tools.bench.measure import Bench, Setting
from tools.bench.servers import ServerError, disque_server, redis_server

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.live


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, "-m", "tools.bench", "--quick", *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90)


@pytest.mark.parametrize("subject", ["redis", "disque"])
def test_every_command_is_measured_on_both_servers(subject: str, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    done = bench("--subject", subject, "--json", str(output))
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())["results"]
    # 4 steps, pipelined by 1 and 16, with 1 and 50 clients, on 2 servers.
    assert len(results) == 4 * 2 * 2 * 2
    assert len({(r["server"], r["step"], str(r["setting"])) for r in results}) == len(results)
    for result in results:
        assert result["commands"] > 0
        assert result["cpu"] > 0
        assert 0 < result["p50"] <= result["p99"] <= result["p999"] <= result["worst"]
    assert done.stdout.count("\n| ") == 2 + 4 * 2 * 2


@pytest.mark.parametrize("scenario", ["held", "idle"])
def test_the_other_scenarios_report_on_both_servers(scenario: str) -> None:
    done = bench("--scenario", scenario, "--held", "100,1000", "--idle", "100")
    assert done.returncode == 0, done.stderr
    assert "\n| disque" in done.stdout
    assert "\n| redis" in done.stdout


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
        with subject.connected(1) as socks:
            socks[0].setblocking(True)
            assert ask(socks[0], b"CONFIG SET maxmemory 1\r\n") == b"+OK"
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
