"""Drivers of ``process`` killed with -9 at random, as a service and with a stream: acknowledged
jobs are done and have their results, and in the end, that is every job."""

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from packages.spark.tests.live.test_kills_once import LONG, SESSION, START, Program, length
from tests.support.harness import LiveNode, NodeFactory, wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(2000),
    pytest.mark.skipif(not LONG, reason="starts several Sparks; set DISQUE_SPARK_LONG"),
]
JOBS = 3000
KILLS = int(os.environ.get("DISQUE_SPARK_KILLS", "5"))
SEED = int(os.environ.get("DISQUE_SPARK_SEED", "0")) or time.time_ns()

FUNCTION = """
import os, signal, threading
from disque_spark import Failed
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
def function(job):
    time.sleep(0.003)
    if int(job.body) % 50 == 7 and not job.nacks:
        raise Failed("the first time", delay=0)
    done = os.open(directory + "/done", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(done, job.body + b"\\n")
    os.close(done)
    return job.body
"""
SERVICE = (
    SESSION
    + FUNCTION
    + """
more = dict(results="r", until_empty=False, restarts=None, stop=stop)
process("q", function, nodes=nodes, **more)
"""
)
STREAM = (
    SESSION
    + FUNCTION
    + """
register(spark)
options = {"nodes": nodes, "queue": "q", "acks": "process", "maxJobsPerBatch": "200"}
options["leaseQueue"] = "process"
jobs = spark.readStream.format("disque").options(**options).load()
def work(frame, number):
    process(frame, function, nodes=nodes, results="r", restarts=None)
writer = jobs.writeStream.foreachBatch(work)
query = writer.option("checkpointLocation", directory + "/checkpoint").start()
while not stop.wait(0.2) and not query.awaitTermination(0.2):
    pass
query.stop()
"""
)


class Run:
    """The jobs of a run, and what became of them."""

    def __init__(self, node: LiveNode, directory: Path) -> None:
        self._node = node
        self._directory = directory
        self.bodies = {b"%d" % n for n in range(JOBS)}

    def results(self) -> Counter[bytes]:
        return Counter(self._scan("r"))

    def acknowledged(self) -> set[bytes]:
        return self.bodies - set(self._scan("q"))

    def done(self) -> set[bytes]:
        file = self._directory / "done"
        return set(file.read_bytes().split()) if file.exists() else set()

    def moments(self, random: Random) -> list[Callable[[], bool]]:
        """What to wait for before a kill: a few more results, calls, or Spark's records of batches
        (for a stream) than now."""
        notes = [self._directory / "checkpoint" / name for name in ("offsets", "commits")]
        results = length([self._node], "r") + random.randrange(JOBS // KILLS)
        done = len(self.done()) + random.randrange(1, JOBS // KILLS)
        moments = [
            lambda: length([self._node], "r") >= results,
            lambda: len(self.done()) >= done,
        ]
        for place in notes:
            if place.exists():
                count = len(list(place.iterdir())) + 2 * random.randrange(1, 4)  # with checksums
                moments.append(lambda place=place, count=count: len(list(place.iterdir())) >= count)  # type: ignore[misc]
        return moments

    def _scan(self, queue: str) -> list[bytes]:
        reply = self._node.ask("JSCAN", 0, "BUSYLOOP", "QUEUE", queue, "REPLY", "all")
        assert isinstance(reply, list)
        return [job[job.index(b"body") + 1] for job in reply[1]]


@pytest.mark.parametrize("program", [SERVICE, STREAM], ids=["service", "stream"])
def test_what_is_acknowledged_was_done_over_kills_of_the_driver(
    program: str, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    random = Random(SEED)
    for n in range(JOBS):
        node.ask("ADDJOB", "q", str(n), 0, "RETRY", 2)
    run = Run(node, tmp_path)
    for _ in range(KILLS):
        driver = Program(program, [node], tmp_path)
        moment = random.choice(run.moments(random))
        try:
            wait_until(lambda moment=moment: moment() or not length([node]), START)  # type: ignore[misc]
        finally:
            driver.kill()
        acknowledged, results = run.acknowledged(), run.results()
        assert acknowledged <= set(results) <= run.done(), SEED
        assert max(results.values(), default=1) == 1, SEED
    driver = Program(program, [node], tmp_path)
    try:
        wait_until(lambda: run.acknowledged() == run.bodies, START)
        driver.stop()
        assert driver.ended() == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        driver.kill()
    assert run.done() == run.bodies
    assert run.results() == Counter(run.bodies), SEED
