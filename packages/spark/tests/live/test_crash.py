"""Real processes killed with -9 while Spark reads queues or writes into them: no produced job is
missing, and duplicates occur only where the tables of docs/spark-queues.md allow them.

A few kills of each kind, one after the other with one checkpoint, always run. Every kill at every
point, each with its own Spark, runs only if ``DISQUE_SPARK_CRASHES`` is set.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from disque_spark import ack
from packages.spark.tests.support.crash_app import ROWS, CrashingSource, Points
from packages.spark.tests.support.crash_application import (
    LATE,
    LONG_ONLY,
    SOON,
    TWO_EXECUTORS,
    Application,
    Starting,
    bodies,
    bodies_at,
    jobs_at,
    kill,
)
from tests.support.harness import DRIVER_SECONDS, HANG_SECONDS, ClusterFactory, LiveNode, wait_until


@pytest.fixture
def starting(tmp_path: Path, cluster: ClusterFactory) -> Iterator[Starting]:
    """Makes the application that does ``what``; the test starts it."""
    applications: list[Application] = []

    def make(what: str, **options: str) -> Application:
        applications.append(Application(tmp_path / "application", cluster(3), what, **options))
        return applications[0]

    yield make
    for application in applications:
        application.close()


@pytest.mark.timeout(1200)
def test_nothing_is_lost_when_workers_drivers_and_a_node_are_killed(
    starting: Starting,
) -> None:
    """Kills a worker after GETJOB, another one during a read together with the node that most jobs
    came from, the driver's reader between two ACKJOBs, the driver after the sink's write, and the
    next driver's JVM during a read; then restarts it."""
    application = starting("archive")
    first, second, third = application.nodes
    application.points.arm("got")
    application.produce(first, SOON)
    application.start()
    application.kill_at("got")
    application.points.arm("reading")
    application.produce(second, SOON)
    application.kill_at("reading", application.node, kill)
    application.points.arm("acking")
    application.produce(third, SOON)
    application.kill_at("acking")
    application.points.arm("sunk")
    application.produce(third, SOON)
    application.kill_at("sunk", application.driver)
    application.ended()
    application.points.arm("reading")
    application.start()
    application.kill_at("reading", application.java)
    application.ended()
    application.start()
    application.finish(application.is_archived)
    assert set(application.archived()) == bodies(application.produced)


@pytest.fixture
def points(spark: SparkSession, tmp_path: Path) -> Points:
    """For workers of the session that all tests share."""
    spark.dataSource.register(CrashingSource)
    return Points(tmp_path)


def killing(points: Points, point: str) -> "Future[None]":
    """Kill the process that reaches the point, whenever that happens."""

    def wait_and_kill() -> None:
        wait_until(partial(points.waiting, point), DRIVER_SECONDS)
        kill(points.waiting(point))
        points.release(point)

    points.arm(point)
    pool = ThreadPoolExecutor(1)
    future = pool.submit(wait_and_kill)
    pool.shutdown(wait=False)
    return future


@pytest.mark.parametrize("point", ["got", "reading"])
def test_a_worker_that_dies_in_a_batch_read_loses_nothing(
    spark: SparkSession, points: Points, node: LiveNode, point: str
) -> None:
    for n in range(100):
        node.ask("ADDJOB", "q", f"body {n}", 0, "RETRY", 1)
    options = {"nodes": f"127.0.0.1:{node.port}", "queue": "q", "leaseQueue": "test"}
    reader = spark.read.format(CrashingSource.name())
    frame = reader.options(points=str(points.directory), fetch="10", **options).load()
    killed = killing(points, point)
    with pytest.raises(Py4JJavaError):
        frame.collect()
    killed.result(HANG_SECONDS)
    if point == "got":  # in no lease: Disque delivers them again
        wait_until(lambda: node.ask("QLEN", "q") == 100)
    found = [bytes(row.body).decode() for row in frame.collect()]
    assert sorted(found) == sorted(bodies(100))
    assert ack(nodes=options["nodes"], lease_queue="test") == 100
    assert jobs_at(node) == 0


def test_a_worker_that_dies_in_a_write_leaves_what_it_added(
    spark: SparkSession, points: Points, node: LiveNode
) -> None:
    rows = spark.range(100).selectExpr("concat('body ', id) as body").coalesce(1)
    options = {"nodes": f"127.0.0.1:{node.port}", "queue": "q", "points": str(points.directory)}
    writer = rows.write.format(CrashingSource.name()).mode("append")
    killed = killing(points, "adding")
    with pytest.raises(Py4JJavaError):
        writer.options(pipeline="10", **options).save()
    killed.result(HANG_SECONDS)
    assert node.ask("QLEN", "q") == 10
    writer.options(pipeline="10", **options).save()
    added = list(bodies_at(node).values())
    assert set(added) == bodies(100)
    assert len(added) == 110


# Jobs taken from a node that dies may be delivered by another one that has not heard of that.
MAYBE_TWICE = ("node",)


def long(test: Callable[..., None]) -> Callable[..., None]:
    """For a test that starts a separate Spark for each of its many cases."""
    marked: Callable[..., None] = pytest.mark.timeout(420)(LONG_ONLY(test))
    return marked


def killer(application: Application, what: str) -> Callable[[int], None]:
    """Return what kills ``what``; ``process``: the one that waits at the point, whatever it is."""
    return kill if what == "process" else getattr(application, what)  # type: ignore[no-any-return]


@long
@pytest.mark.parametrize(
    ("what", "point"),
    [
        # At "sunk", the process that waits is the driver.
        *(("process", point) for point in ("planned", "got", "reading", "acking")),
        *(
            (what, point)
            for what in ("driver", "java", "node")
            for point in ("planned", "got", "reading", "sunk", "acking")
        ),
    ],
)
def test_a_stream_loses_nothing_at_any_point(starting: Starting, what: str, point: str) -> None:
    application = starting("archive")
    application.points.arm(point)
    # Jobs that are in no lease, or queued on a dead node, come back after their retry time.
    retry = SOON if point == "got" or what == "node" else LATE
    application.produce(application.nodes[0], retry)
    application.start()
    application.kill_at(point, killer(application, what))
    if what in ("driver", "java"):
        application.ended()
        application.start()
    application.produce(application.nodes[1], retry)
    application.finish(application.is_archived)
    archived = application.archived()
    assert set(archived) == bodies(application.produced)
    if what not in MAYBE_TWICE:
        assert len(archived) == application.produced


@long
@pytest.mark.parametrize("point", ["got", "reading", "sunk"])
def test_a_stream_goes_on_with_the_other_executor(starting: Starting, point: str) -> None:
    """The query does not fail: another executor repeats the task, from its lease if there is
    one."""
    application = starting("archive", master=TWO_EXECUTORS)
    application.points.arm(point)
    application.produce(application.nodes[0], SOON if point == "got" else LATE)
    application.start()
    application.kill_at(point, application.executor)
    application.produce(application.nodes[1], LATE)
    application.finish(application.is_archived)
    assert sorted(application.archived()) == sorted(bodies(application.produced))


@long
@pytest.mark.parametrize(
    ("what", "point"),
    [
        # At "sunk" and "acking", the process that waits is the driver.
        *(("process", point) for point in ("planned", "got", "reading")),
        *(("driver", point) for point in ("planned", "got", "reading", "sunk", "acking")),
        *(("java", point) for point in ("reading", "sunk")),
        *(("node", point) for point in ("got", "reading", "acking")),
    ],
)
def test_a_batch_read_loses_nothing_at_any_point(starting: Starting, what: str, point: str) -> None:
    application = starting("drain")
    application.points.arm(point)
    # While one task is at these points, others may have taken jobs that are in no lease yet.
    taking = point in ("got", "reading")
    application.produce(application.nodes[0], SOON if taking or what == "node" else LATE)
    application.start()
    application.kill_at(point, killer(application, what))
    if what in ("driver", "java"):
        application.ended()
        application.start()
    application.finish(application.is_archived)
    archived = application.archived()
    assert set(archived) == bodies(application.produced)
    if not taking and what not in MAYBE_TWICE:
        # Even without its JVM, the driver acknowledges what is written.
        written_before = (what, point) == ("driver", "sunk")
        assert len(archived) == application.produced * (2 if written_before else 1)


@long
@pytest.mark.parametrize("kind", ["fill", "sink"])
@pytest.mark.parametrize(
    ("what", "point"),
    [
        # At "added", the process that waits is a child of the driver.
        *((what, "adding") for what in ("process", "driver", "java", "node")),
        *((what, "added") for what in ("process", "driver")),
    ],
)
def test_a_write_adds_all_rows_whatever_dies(
    starting: Starting, kind: str, point: str, what: str
) -> None:
    application = starting(kind)
    source = application.directory / "in"
    source.mkdir()
    lines = [f"body {n}" for n in range(ROWS)]
    for part in range(2):
        (source / f"{part}.txt").write_text("\n".join(lines[part::2]))
    application.points.arm(point)
    application.start()
    application.kill_at(point, killer(application, what))
    if what in ("driver", "java"):
        application.ended()
        application.start()
    application.finish(application.is_added)
    # A stream that repeats a batch adds nothing twice; saving a frame again is another write.
    assert len(application.added()) <= (2 * ROWS if kind == "fill" or what == "node" else ROWS)
