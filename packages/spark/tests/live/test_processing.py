"""``process``: jobs of real nodes, processed by Spark's workers."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from disque_spark import Failed, Job, process
from disque_spark.client import RefusedError, WireError
from disque_spark.options import OptionError
from disque_spark.processing.task import Task, WorkOptions
from disque_trio.respclient.login import Login
from tests.support.harness import ClusterFactory, LiveNode, free_port, wait_until


def add(node: LiveNode, bodies: Iterator[str] | list[str], *options: str | int) -> list[str]:
    return [str(node.ask("ADDJOB", "q", body, 0, *options), "utf-8") for body in bodies]  # type: ignore[call-overload]


def addresses(*nodes: LiveNode) -> list[str]:
    return [f"127.0.0.1:{node.port}" for node in nodes]


def taken(node: LiveNode, queue: str) -> list[dict[str, object]]:
    """Return all queued jobs: id, body, counters and headers."""
    found = []
    while jobs := node.ask(
        "GETJOB", "NOHANG", "COUNT", 1000, "WITHCOUNTERS", "WITHHEADERS", "FROM", queue
    ):
        assert isinstance(jobs, list)
        for _, id, body, *more in jobs:
            names = {
                name.decode(): value for name, value in zip(more[::2], more[1::2], strict=True)
            }
            found.append({"id": id.decode(), "body": body.decode(), **names})
    return found


def halves_or_fails(job: Job) -> object:
    n = int(job.text())
    if n % 10 == 3:
        raise Failed("not threes", delay=0)
    return {"half": n / 2}


def test_jobs_are_done_and_failed_and_each_has_one_result(
    spark: SparkSession, node: LiveNode
) -> None:
    node.ask("QSET", "q", "ATTEMPTS", 2, "DEAD", "letters")
    ids = add(node, [str(n) for n in range(200)])
    summary = process("q", halves_or_fails, nodes=addresses(node), results="r", wait=0.3)
    assert (summary.done, summary.failed, summary.dead, summary.results) == (180, 40, 0, 180)
    results = taken(node, "r")
    of = {ids[n]: {"half": n / 2} for n in range(200) if n % 10 != 3}
    assert {job["headers"][1].decode(): json.loads(str(job["body"])) for job in results} == of  # type: ignore[index]
    assert len(results) == 180
    letters = taken(node, "letters")
    assert Counter(str(job["dead-reason"], "utf-8") for job in letters) == {"not threes": 20}  # type: ignore[call-overload]
    assert node.ask("JSCAN", 0, "BUSYLOOP", "QUEUE", "q") == [b"0", []]


def test_rows_are_acknowledged_by_their_ids(spark: SparkSession, node: LiveNode) -> None:
    add(node, ["a", "b", "c"])
    jobs = spark.read.format("disque-jobs").option("nodes", addresses(node)[0]).load()
    summary = process(jobs.where("body != 'b'"), lambda job: None, nodes=addresses(node))
    assert (summary.done, summary.failed) == (2, 0)
    assert [job["body"] for job in taken(node, "q")] == ["b"]


def test_a_worker_that_is_killed_loses_no_job_and_gives_no_result_twice(
    spark: SparkSession, node: LiveNode, tmp_path: Path
) -> None:
    add(node, [str(n) for n in range(40)], "RETRY", 1)
    mark = tmp_path / "killed"

    def function(job: Job) -> object:
        if job.body == b"20" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return job.body

    summary = process("q", function, nodes=addresses(node), results="r", wait=3, partitions=1)
    assert mark.exists()
    assert summary.restarts == 1
    assert sorted(int(str(job["body"])) for job in taken(node, "r")) == list(range(40))
    assert node.ask("JSCAN", 0, "BUSYLOOP", "QUEUE", "q") == [b"0", []]


def task(function: object, *nodes: LiveNode, **changes: object) -> Task:
    wanted = {
        "function": function,
        "frames": False,
        "queues": ("q",),
        "nodes": tuple(addresses(*nodes)),
        "login": Login(),
        "results": None,
        "add": (),
        "size": 100,
        "wait": 0.3,
        "until_empty": True,
        "seconds": None,
        "delay": None,
        "attempts": None,
        "timeout": 10.0,
        "failover": 10.0,
    } | changes
    return Task(WorkOptions(**wanted), 0)  # type: ignore[arg-type]


def test_frames_of_jobs(node: LiveNode) -> None:
    add(node, [str(n) for n in range(250)])

    def function(frame):  # type: ignore[no-untyped-def]
        if (frame["body"] == b"77").any():
            raise ValueError("seventy-seven")
        return frame["body"].astype(int) * 2

    settled = task(function, node, frames=True, results="r", size=60, delay=30.0).take()
    assert (settled.done, settled.failed, settled.results) == (249, 1, 249)
    numbers = sorted(int(str(job["body"])) for job in taken(node, "r"))
    assert numbers == [2 * n for n in range(250) if n != 77]
    assert node.ask("QLEN", "q") == 0  # it comes back in 30 s


def test_a_job_that_takes_longer_than_its_retry_time_is_done_once(node: LiveNode) -> None:
    [id] = add(node, ["long"], "RETRY", 2)
    done = []

    def function(job: Job) -> None:
        until = [float("inf")]

        def time_of_next_delivery() -> bool:
            fields = node.ask("SHOW", id)
            assert isinstance(fields, list)
            until.append(fields[fields.index(b"next-requeue-within") + 1])
            return until[-1] > until[-2]  # a WORKING has come in between

        for _ in range(3):
            wait_until(time_of_next_delivery)
            until[:] = until[-1:]
        done.append(job.body)

    assert task(function, node).take().done == 1
    assert done == [b"long"]


def test_one_task_drains_all_nodes_also_when_its_own_dies(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    for at, other in enumerate(nodes):
        copies = ("REPLICATE", 2 if at == 0 else 1)
        add(other, [f"{at} {n}" for n in range(30)], *copies, "RETRY", 1)
    seen = set()

    def function(job: Job) -> None:
        seen.add(job.body)
        if len(seen) == 45:
            nodes[0].kill()

    task(function, *nodes, wait=4).take()
    assert len(seen) == 90


def test_rows_are_kept_and_handed_back_at_nodes_that_hold_them(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    wanted = {}  # RETRY 2, and each is on one node, two of which are not the task's
    for at, other in enumerate(nodes):
        for name in ("good", "bad", "gone"):
            [wanted[f"{name} {at}"]] = add(other, [name], "REPLICATE", 1, "RETRY", 2)
            other.ask("GETJOB", "FROM", "q")
            if name == "gone":
                other.ask("ACKJOB", wanted[f"{name} {at}"])
    seen = []

    def function(job: Job) -> None:
        seen.append(job.id)
        if job.text() == "bad":
            raise Failed("bad", delay=1000)
        left = [None]

        def is_kept() -> bool:
            """Return whether a WORKING has arrived since the last call."""
            at = next(key for key, id in wanted.items() if id == job.id)[-1]
            fields = nodes[int(at)].ask("SHOW", job.id)
            assert isinstance(fields, list)
            left.append(fields[fields.index(b"next-requeue-within") + 1])
            return len(left) > 2 and left[-1] > left[-2]

        wait_until(is_kept)

    rows = pa.RecordBatch.from_pydict(
        {"id": list(wanted.values()), "body": [key.split()[0] for key in wanted]}
    )
    settled = task(function, *nodes, queues=(), leased=True).rows(iter([rows]))
    assert (settled.done, settled.failed) == (3, 3)
    assert sorted(seen) == sorted(id for key, id in wanted.items() if "gone" not in key)
    for key, id in wanted.items():
        fields = nodes[int(key[-1])].ask("SHOW", id)
        if key.startswith("bad"):
            assert isinstance(fields, list)
            assert fields[fields.index(b"next-requeue-within") + 1] > 100_000
        else:
            assert fields is None


def test_invalid_arguments_are_refused_before_spark_starts(node: LiveNode) -> None:
    for jobs, changes in [
        ("", {}),
        ([], {}),
        ("q", {"size": 0}),
        ("q", {"partitions": 0}),
        ("q", {"result_options": {"unique": 3}}),
        (b"q", {}),
        ("q", {"wait": -1}),
        ("q", {"delay": float("nan")}),
    ]:
        with pytest.raises(OptionError):
            process(jobs, len, nodes=addresses(node), **changes)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="function"):
        process("q", None, nodes=addresses(node))  # type: ignore[arg-type]
    with pytest.raises(WireError):
        process("q", len, nodes=f"127.0.0.1:{free_port()}")


def test_a_user_may_be_confined_to_the_queue_and_its_results(node: LiveNode) -> None:
    commands = ["getjob", "ackjob", "nack", "working", "enqueue", "addjob"]
    rules = ["on", ">secret", "%R~q", "%W~r", *[f"+{name}" for name in commands]]
    node.ask("ACL", "SETUSER", "worker", *rules)
    login = Login("worker", "secret")
    add(node, ["1", "x"])
    settled = task(lambda job: int(job.text()), node, login=login, results="r", delay=9.0).take()
    assert (settled.done, settled.failed, settled.results) == (1, 1, 1)
    add(node, ["2"])
    with pytest.raises(RefusedError, match="NOPERM"):
        task(lambda job: job.body, node, login=login, results="other").take()
    assert node.ask("QLEN", "other") == 0


def test_large_bodies_are_taken_but_none_while_the_queue_is_paused(node: LiveNode) -> None:
    large = "x" * (3 << 20)
    add(node, [large] * 8)
    node.ask("PAUSE", "q", "out")
    assert task(len, node).take().done == 0
    node.ask("PAUSE", "q", "none")
    settled = task(lambda job: job.body, node, results="r", size=4).take()
    assert (settled.done, settled.results) == (8, 8)
    assert node.ask("QLEN", "r") == 8
