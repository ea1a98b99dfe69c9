"""``process`` with rows that were read from queues: as a batch, and as a stream."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from disque_spark import Failed, Job, holding, process
from disque_spark.options import OptionError
from packages.spark.tests.live.test_processing import add, addresses, taken
from tests.support.harness import LiveNode, wait_until


def read(spark: SparkSession, directory: Path, node: LiveNode, **options: str) -> DataFrame:
    """Return a batch of the queue ``q``."""
    reader = spark.read.format("disque").options(nodes=addresses(node)[0], queue="q")
    reader = reader.options(leaseQueue=directory.name, acks="process")
    return reader.options(**options).load()


def stream(spark: SparkSession, directory: Path, node: LiveNode, **options: str) -> DataFrame:
    """Return the queue ``q`` as a stream."""
    reader = spark.readStream.format("disque").options(nodes=addresses(node)[0], queue="q")
    reader = reader.options(leaseQueue=directory.name, acks="process")
    return reader.options(**options).load()


def odd_ones_fail(job: Job) -> object:
    if int(job.text()) % 2:
        raise Failed("odd", delay=0)
    return job.text()


def left(node: LiveNode) -> list[object]:
    reply = node.ask("JSCAN", 0, "BUSYLOOP", "QUEUE", "q")
    assert isinstance(reply, list)
    return list(reply[1])


def test_of_a_held_batch_only_what_succeeded_is_acknowledged(
    spark: SparkSession, node: LiveNode, tmp_path: Path
) -> None:
    add(node, [str(n) for n in range(20)], "RETRY", 60)
    with holding(lease_queue=tmp_path.name, nodes=addresses(node)):
        frame = read(spark, tmp_path, node)
        summary = process(frame, odd_ones_fail, nodes=addresses(node), results="r")
    assert (summary.done, summary.failed, summary.results) == (10, 10, 10)
    assert sorted(int(str(job["body"])) for job in taken(node, "r")) == list(range(0, 20, 2))
    failed = taken(node, "q")
    assert sorted(int(str(job["body"])) for job in failed) == list(range(1, 20, 2))
    assert {job["nacks"] for job in failed} == {1}


def test_a_batch_whose_worker_is_killed_is_done_and_what_was_done_is_not_done_again(
    spark: SparkSession, node: LiveNode, tmp_path: Path
) -> None:
    add(node, [str(n) for n in range(20)], "RETRY", 60)
    calls = tmp_path / "calls"

    def function(job: Job) -> object:
        with calls.open("a") as file:
            file.write(f"{job.text()}\n")
        if job.body == b"12" and calls.read_text().split().count("12") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return job.text()

    with holding(lease_queue=tmp_path.name, nodes=addresses(node)):
        summary = process(
            read(spark, tmp_path, node), function, nodes=addresses(node), results="r", size=5
        )
    assert summary.restarts == 1
    assert left(node) == []
    assert sorted(int(str(job["body"])) for job in taken(node, "r")) == list(range(20))
    # Of the five in hand, at most four were done but not acknowledged.
    assert len(calls.read_text().split()) <= 25


def test_rows_of_a_read_that_acknowledges_by_itself_are_refused(
    spark: SparkSession, node: LiveNode, tmp_path: Path
) -> None:
    for options in {"acks": "commit"}, {"ackOnRead": "all", "acks": "commit"}:
        frame = (
            read(spark, tmp_path, node, **options)
            if len(options) == 1
            else (
                spark.read.format("disque").options(nodes=addresses(node)[0], queue="q", **options)
            ).load()
        )
        with pytest.raises(OptionError, match="acks=process"):
            process(frame.where("nacks = 0"), len, nodes=addresses(node))
    with pytest.raises(OptionError, match="foreachBatch"):
        process(stream(spark, tmp_path, node), len, nodes=addresses(node))


def test_a_stream_acknowledges_what_succeeded_and_goes_on_where_it_failed(
    spark: SparkSession, node: LiveNode, tmp_path: Path
) -> None:
    node.ask("QSET", "q", "ATTEMPTS", 2, "DEAD", "letters")
    add(node, [str(n) for n in range(40)], "RETRY", 60)
    done, failed = [], []

    def run(fails: int) -> None:
        """Run the stream until it has processed what was there, or the given batch fails."""

        def work(frame: DataFrame, number: int) -> None:
            summary = process(frame, odd_ones_fail, nodes=addresses(node), results="r")
            done.append(summary.done)
            failed.append(summary.failed)
            if number == fails:
                raise RuntimeError("after its jobs were done, before it is committed")

        writer = stream(spark, tmp_path, node, maxJobsPerBatch="10").writeStream.foreachBatch(work)
        writer = writer.trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()

    with pytest.raises(StreamingQueryException, match="before it is committed"):
        run(fails=1)
    assert [sum(batch) for batch in zip(done, failed, strict=True)] == [10, 10]
    while left(node):
        run(fails=-1)
    # Of the batch that comes again, what succeeded is left out.
    assert done[2] == 0
    assert sum(done) == 20
    assert sorted(int(str(job["body"])) for job in taken(node, "r")) == list(range(0, 40, 2))
    letters = taken(node, "letters")
    assert sorted(int(str(job["body"])) for job in letters) == list(range(1, 40, 2))
    assert {job["dead-reason"] for job in letters} == {b"odd"}


def test_a_service_works_in_rounds_until_it_is_stopped(
    spark: SparkSession, node: LiveNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disque_spark.processing.run.ROUND_SECONDS", 0.3)
    stop = threading.Event()
    numbers = list(range(30))

    def look() -> None:
        wait_until(lambda: node.ask("QLEN", "r") == len(numbers))
        stop.set()

    looking = threading.Thread(target=look)
    looking.start()

    add(node, [str(n) for n in numbers], "RETRY", 60)
    summary = process(
        "q",
        lambda job: {"n": job.text()},
        nodes=addresses(node),
        results="r",
        until_empty=False,
        stop=stop,
    )
    looking.join()
    assert (summary.done, summary.results) == (30, 30)
    assert sorted(int(json.loads(str(job["body"]))["n"]) for job in taken(node, "r")) == numbers
    assert left(node) == []
