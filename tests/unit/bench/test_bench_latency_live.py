"""The latency benchmark on real nodes, with tiny amounts of work."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.bench.latency.generator import Order, generate
from tools.bench.latency.situations import sync_times
from tools.bench.load import LoadError, ask, connections
from tools.bench.servers import disque_server

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.live


def latency(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, "-m", "tools.bench.latency", "--quick", *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(
    "situations", ["no file,everysec", "always,rewrites", "mass expiry", "federation"]
)
def test_a_situation_is_measured_with_all_its_cycles(situations: str, tmp_path: Path) -> None:
    output, picture = tmp_path / "results.json", tmp_path / "latency.svg"
    done = latency(
        *("--situations", situations, "--json", str(output), "--svg", str(picture)),
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())["results"]
    assert [result["situation"] for result in results] == situations.split(",")
    for result in results:
        order = result["order"]
        cycles = sum(result["cycles"]["counts"].values())
        assert cycles == round(order["rate"] * order["seconds"])
        assert order["rate"] == result["peak"] / 2
        assert result["seconds"] > 0.5
        assert sum(result["pings"]["counts"].values()) > 10
        assert 0 < result["longest_own"] < 10
        assert f"\n| {result['situation']}" in done.stdout
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_a_node_that_refuses_the_work_is_reported_with_its_own_words() -> None:
    with disque_server() as server:
        with connections(server.port, 1) as (control,):
            control.setblocking(True)
            assert ask(control, b"CONFIG SET maxmemory 1\r\n") == b"+OK"
        with pytest.raises(LoadError, match="OOM"):
            generate(Order(server.port, server.port, 100, 0.1, clients=1))


def test_closed_loop_begins_the_next_cycle_when_one_has_ended() -> None:
    with disque_server() as server:
        done = generate(Order(server.port, server.port, 0, 0.3, clients=2))
    assert done.cycles.total > 10
    assert done.seconds >= 0.3
    assert done.rate == done.cycles.total / done.seconds


def test_a_sync_of_this_disk_takes_some_time() -> None:
    found = sync_times(5)
    assert found.total == 5
    assert found.worst > 0
