"""``process``: runs a Python function for each job, on Spark's executors."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from disque_spark.client import Arg, WireError
from disque_spark.datasources.queues import ACKS, PROCESS
from disque_spark.defaults import DEFAULT_NODES
from disque_spark.nodes import Nodes
from disque_spark.options import OptionError, nodes_of
from disque_spark.processing.calls import COLUMNS
from disque_spark.processing.job import MAX_DELAY
from disque_spark.processing.task import Summary, Task, WorkOptions
from disque_spark.restarts import Restarts
from disque_spark.restarts import wait as pause_for
from disque_trio.job_options import ScheduleOptions, check, check_names, encode
from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import Tls

ROUND_SECONDS = 10.0  # length of a round of a run without an end
SUMMARY = ", ".join(f"{name} long" for name in Summary._fields)
TASK_SEEDS = 10_000  # rows of the range that tasks come from: there can be no more tasks


def process(  # noqa: PLR0913
    jobs: DataFrame | str | Sequence[str],
    function: Callable[[Any], object],
    *,
    nodes: str | Sequence[str] = DEFAULT_NODES,
    results: str | None = None,
    batches: bool = False,
    partitions: int | None = None,
    size: int = 100,
    until_empty: bool = True,
    wait: float = 2.0,
    seconds: float | None = None,
    delay: float | None = 30.0,
    attempts: int | None = None,
    result_options: ScheduleOptions | None = None,
    unique_for: int = 3600,
    restarts: int | None = 10,
    limit: float | None = None,
    stop: threading.Event | None = None,
    username: str | None = None,
    password: str | None = None,
    tls: Tls | bool | None = None,
    discover: bool = True,
    timeout: float = 60.0,
    failover: float = 30.0,
    spark: SparkSession | None = None,
) -> Summary:
    """Process jobs on Spark's executors: call ``function`` for each job, and acknowledge the job
    when its result has been sent. If ``function`` raises, the job goes back to its queue.

    Each job is processed at least once but gives at most one result, because results are added
    with the job's id as key.

    Args:
        jobs: a queue or several; or a DataFrame with the columns ``id`` and ``body``. A DataFrame
            read from the source ``disque`` needs its option ``acks=process``. For a stream, call
            ``process`` in its ``foreachBatch``.
        function: takes a ``Job`` and returns its result: bytes, a string, a value for JSON, or
            None for no result. With ``batches``, it takes a pandas DataFrame and returns the
            results in the same order; see ``in_frames``. It may run more than once for a job.
        nodes: addresses ``host:port``, as a list or separated by commas.
        results: queue for the results; None: results are not sent.
        batches: pass pandas DataFrames to ``function`` instead of single jobs.
        partitions: number of tasks that take jobs from queues; None: as many as Spark runs at once.
        size: the most jobs that a task holds at once; with ``batches``, the most rows of a
            DataFrame.
        until_empty: end when no job has arrived for ``wait`` seconds. Otherwise only ``seconds``
            and ``stop`` end the run.
        seconds: how long to take jobs; those already begun are finished. None: no limit.
        limit: seconds after which a call of ``function`` fails; None: no limit.
        stop: ends a run without ``until_empty`` when set, within a few seconds.
        delay: seconds until a failed job is delivered again; None: as the policy of its queue
            says, or at once.
        attempts: deliveries after which a job that fails becomes a dead letter, if its queue has
            a dead-letter queue; None: as the policy of its queue says.
        result_options: options of ADDJOB for results.
        unique_for: seconds during which a job that is delivered again gives no second result.
        restarts: how often to start over when tasks have died; None: any number of times.
        username, password, tls: how to connect.
        timeout: seconds to wait for a reply.
        failover: seconds to look for another node when none answers.
        discover: use all nodes of the cluster, not only ``nodes``.
        spark: the session; None: that of the DataFrame, or the active one.

    Raises:
        OptionError: an argument is invalid.
        WireError: no node can be reached.
        Exception: what Spark raises when tasks fail for a reason that is not transient.
    """
    queues = _queues_of(jobs)
    if not callable(function):
        raise OptionError(f"function: expected a function, got {function!r}")
    seeds = nodes_of({"nodes": nodes if isinstance(nodes, str) else ",".join(nodes)})
    for name, value in (("size", size), ("partitions", partitions), ("attempts", attempts)):
        if value is not None and value < 1:
            raise OptionError(f"{name}: expected a number of at least 1, got {value}")
    times = {"wait": wait, "seconds": seconds, "delay": delay, "unique_for": unique_for}
    for name, given in (times | {"limit": limit}).items():
        if given is not None and not 0 <= given <= MAX_DELAY:
            raise OptionError(f"{name}: expected a number of seconds, got {given}")
    if limit == 0:
        raise OptionError("limit: expected more than 0 seconds")
    login = Login(username, password, tls)

    def reached() -> tuple[str, ...]:
        with closing(Nodes(seeds, login, discover, timeout)) as found:
            return tuple(found.ask([("PING",)]))

    first = reached()
    if not first:
        raise WireError("no node can be reached: " + ", ".join(seeds))
    options = WorkOptions(
        function=function,
        frames=batches,
        queues=queues,
        nodes=first,
        login=login,
        results=results,
        add=_add_options(result_options or {}, unique_for),
        size=size,
        wait=wait,
        until_empty=until_empty,
        seconds=seconds,
        delay=delay,
        attempts=attempts,
        timeout=timeout,
        failover=failover,
        limit=limit,
        leased=isinstance(jobs, DataFrame) and _acks(jobs) == PROCESS,
    )

    def tasks(seconds: float | None) -> DataFrame:
        if isinstance(jobs, DataFrame):
            rows = jobs.select(*[name for name in COLUMNS if name in jobs.columns])
            return rows.mapInArrow(_task(options), SUMMARY)
        chosen = replace(options, seconds=seconds, nodes=reached() or first)
        session = spark or SparkSession.active()
        return session.range(0, TASK_SEEDS, 1, partitions).mapInArrow(_task(chosen), SUMMARY)

    once = until_empty or isinstance(jobs, DataFrame)
    return _run(tasks, once, seconds, Restarts(restarts), stop or threading.Event())


def _run(
    tasks: Callable[[float | None], DataFrame],
    once: bool,
    seconds: float | None,
    again: Restarts,
    stop: threading.Event,
) -> Summary:
    """Run tasks; if ``once`` is not set, in rounds until the run is over.

    Args:
        tasks: makes a frame whose tasks take jobs for some seconds (None: forever), and whose rows
            say what they have done.
    """
    total = Summary()
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = None if end is None else max(0.0, end - time.monotonic())
        try:
            short = left is not None and left < ROUND_SECONDS
            for row in tasks(left if once or short else ROUND_SECONDS).collect():
                total = total.plus(row)
            if once:
                break
            again.progress()
        except Exception as failure:  # from PySpark, the JVM, or a Spark Connect server
            # If the JVM or the server is gone, its text cannot be asked for.
            lost = isinstance(failure, ConnectionError) or "NetworkError" in type(failure).__name__
            text = "" if lost else str(failure).strip()
            pause = None if lost else again.pause(text, " ".join(text.splitlines()[:2]))
            if pause is None:
                raise
            pause_for(pause, stop.is_set)
        if stop.is_set() or (not once and end is not None and time.monotonic() >= end):
            break
    return total._replace(restarts=again.count)


def _acks(jobs: DataFrame) -> str | None:
    """Who acknowledges the jobs of a DataFrame; None if it is not from the source ``disque``."""
    found: str | None = jobs.schema["id"].metadata.get(ACKS)
    return found


def _queues_of(jobs: DataFrame | str | Sequence[str]) -> tuple[str, ...]:
    """The queues to take jobs from; empty if ``jobs`` is a DataFrame.

    Raises:
        OptionError: ``jobs`` is neither queues nor a suitable DataFrame.
    """
    if isinstance(jobs, DataFrame):
        if jobs.isStreaming:
            raise OptionError("jobs: a stream; call process in its foreachBatch")
        if not {"id", "body"} <= set(jobs.columns):
            raise OptionError("jobs: expected a frame with the columns id and body")
        if _acks(jobs) not in (None, PROCESS):
            raise OptionError(
                f"jobs: expected a frame that was read with the option acks={PROCESS}; otherwise"
                " jobs that failed would be acknowledged like the others"
            )
        return ()
    queues = (jobs,) if isinstance(jobs, str) else tuple(jobs)
    if not queues or not all(isinstance(queue, str) and queue for queue in queues):
        raise OptionError(f"jobs: expected a queue, queues or a frame, got {jobs!r}")
    return queues


def _task(
    options: WorkOptions,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that tasks run, for ``mapInArrow``."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = Task(options, context.partitionId() if context else 0)
        if options.queues:
            for _ in batches:
                pass
            summary = task.take()
        else:
            summary = task.rows(batches)
        yield pa.RecordBatch.from_pylist([summary._asdict()])

    return run


def _add_options(given: ScheduleOptions, kept: int) -> tuple[Arg, ...]:
    try:
        check_names(given, ScheduleOptions.__annotations__)
        check(given)
    except (TypeError, ValueError) as error:
        raise OptionError(f"result_options: {error}") from error
    return (*(("FOR", kept) if kept else ()), *encode(given))
