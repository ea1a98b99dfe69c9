"""Every benchmark on real servers, in runs of a second or two."""

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks import queues, queues_paths, tenants
from benchmarks.cores import Part, drive
from tests.support.commands import run_command
from tools.bench.load import LoadError
from tools.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.live


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_command("benchmarks.__main__", *arguments, cwd=ROOT, text=True)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scenario", "rows"), [("ways", 3 * 2 * 2), ("nodes", 3 * 2 * 2), ("held", 3 * 2 * 2)]
)
def test_a_cluster_is_measured_in_all_ways(scenario: str, rows: int) -> None:
    done = bench(*f"cluster --quick --clients 6 --work 0.01 --scenario {scenario}".split())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n| ") == 2 + rows


def test_the_cores_are_measured_in_all_ways() -> None:
    done = bench(*["cores", "--quick", "--pipelines", "4", "--seconds", "0.05", "--clients", "8"])
    assert done.returncode == 0, done.stderr
    rows = done.stdout.partition("\n| ")[2].splitlines()[2:]
    assert len(rows) == 1 + 2 * 2 + 1 + 1
    assert all(float(row.split("|")[-2]) > 0 for row in rows)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("run", "rows"),
    [
        ("push", ["GETJOB, ACKJOB", "CONSUME CREDIT 1,", "CONSUME CREDIT 100,"]),
        ("frameworks", ["send |", "work |", "DisqueBroker |", "RedisBroker |"]),
        # Only one of them: each is a program that has to start in valgrind.
        ("client --ways asyncio", ["qlen, asyncio", "add, asyncio", "a turn of the loop"]),
        ("eventlog", ["ADDJOB", "GETJOB", "ACKJOB"]),
        ("tls", ["PING |", "PING, pipelined by 16 |", "ECHO of 100 KB |", "a connection"]),
        ("sizing", ["100 B, in memory", "100 B, paging", "100,000 B, paging"]),
        ("trailers", ["plain |", "`HEADERS 2", "`UNIQUE key", "delivered once, in a queue"]),
        (
            "bananaq --consumers 2 --pipelines 16",
            ["QADD, Redis Streams", "QADD, bananaq, redis", "QGET+QACK, bananaq, embedded"],
        ),
        (
            "pressure --elements 30",
            ["LPUSH, BRPOP", "put, get, roles held", "put_many, get_many of 100"],
        ),
    ],
)
def test_all_rows_are_measured(run: str, rows: list[str]) -> None:
    done = bench(*run.split(), "--quick")
    assert done.returncode == 0, done.stderr
    for row in rows:
        assert f"\n| {row}" in done.stdout


def test_rewrites_and_the_loading_of_the_file_are_measured() -> None:
    done = bench("persistence", "--quick", "--seconds", "0.5")
    assert done.returncode == 0, done.stderr
    for begin in ("5000 jobs of 100 bytes", "without a rewrite:", "during ", "loading: "):
        assert f"\n{begin}" in done.stdout


def test_the_jobs_of_both_tenants_are_all_delivered_with_groups_and_without(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    done = bench("tenants", "--quick", "--jobs", "200", "--json", str(output))
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())["results"]
    assert [one["way"] for one in results] == [tenants.AGE, tenants.FAIR]
    for one in results:
        waits = one["result"]["quiet"]
        assert waits
        assert all(job["wait"] > 0 and 0 <= job["overtaken"] <= 200 for job in waits)
        assert f"\n| {one['way']} |" in done.stdout
    assert "written: build/tenants.svg" in done.stderr


def test_queues_of_all_kinds_are_measured_with_few_jobs_and_with_more() -> None:
    done = bench("queues", "--quick", "--compiled", "/nowhere/python")
    assert done.returncode == 0, done.stderr
    assert "form pure Python" in done.stdout
    for name in queues.NAMES.values():
        for command in queues_paths.COMMANDS:
            assert f"\n| {name} | {command} |" in done.stdout


def test_a_generator_that_finds_no_node_says_so() -> None:
    part = Part(free_port(), frozenset({0}), 1, 2, True, 20)
    with pytest.raises(LoadError, match="cannot connect"):
        drive([part, part], 0.1)


def test_tasks_of_celery_are_measured_beside_its_redis_transport(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    done = bench("celery", "--quick", "--results", "--pool", "solo", "--json", str(output))
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())["results"]
    assert [result["transport"] for result in results] == ["disque", "redis"]
    for result in results:
        assert min(result[what] for what in ("rate", "program", "worker", "server")) > 0
