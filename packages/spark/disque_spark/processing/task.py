"""A task of a run: takes jobs on an executor, calls the function, and settles the jobs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from disque_spark.client import RefusedError, accepted, by_ids
from disque_spark.leases.fetch import FETCH_BYTES
from disque_spark.options import text
from disque_spark.processing.calls import Calls, InFrames, Singly
from disque_spark.processing.heart import Heart
from disque_spark.processing.job import Job, Outcome
from disque_spark.processing.limit import limited
from disque_spark.processing.options import WorkOptions
from disque_spark.processing.settle import Settled, settle
from disque_spark.sink.adder import Adder
from disque_trio.respclient.blocking import Reply

ROUND = 2.0  # s that the jobs of one GETJOB should take, if the function takes single jobs
SETTLE = 1.0  # s after which finished jobs are settled, though others are still in hand
FIRST = 16  # jobs in the first GETJOB, to learn how long they take and how large they are
LONGEST_WAIT = 1.0  # s that a GETJOB waits at most


class Task:
    """Processes jobs, GETJOB by GETJOB.

    Args:
        options: the options of the run.
        partition: the partition of the task; selects the node to begin with.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        options: WorkOptions,
        partition: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._clock = clock
        first = partition % len(options.nodes)
        nodes = options.nodes[first:] + options.nodes[:first]
        self._link = Adder(
            nodes, options.login, timeout=options.timeout, failover=options.failover, discover=False
        )
        self._heart = Heart(nodes, options.login, options.timeout)
        function = options.function
        if options.limit is not None:
            function = limited(function, options.limit)
        self._calls: Calls = (
            InFrames(function, options.results is not None)
            if options.frames
            else Singly(
                function,
                lambda job: job.id in self._heart.ended,
                options.results is not None,
            )
        )
        self._end: float | None = None
        self.settled = Settled()

    def take(self) -> Settled:
        """Process jobs from the queues.

        Raises:
            WireError: no node can be reached. Jobs in hand will be delivered again.
            RefusedError: a node refused a request.
        """
        options = self._options
        count = options.size if options.frames else min(FIRST, options.size)
        with self._working():
            idle = self._clock()
            while (jobs := self._fetch(count)) is not None:
                now = self._clock()
                if jobs:
                    self._do(jobs)
                    count = self._next_count(jobs, self._clock() - now)
                    idle = self._clock()
                elif options.until_empty and now - idle >= options.wait:
                    break
        return self.settled

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Settled:
        """Process the jobs in rows.

        Raises:
            WireError, RefusedError: as ``take``.
        """
        with self._working():
            if self._options.leased:
                batches = self._held(batches)
            for batch in batches:
                jobs = jobs_of(batch)
                for at in range(0, len(jobs), self._options.size):
                    if self._over():
                        return self.settled
                    some = jobs[at : at + self._options.size]
                    ids = [job.id for job in some]
                    self._heart.hold(ids)
                    there = self._heart.still(ids)
                    self._heart.release([id for id in ids if id not in there])
                    self._do([job for job in some if job.id in there])
        return self.settled

    def _held(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same rows; from now on, their jobs are kept from being delivered again."""
        rows = list(batches)
        place = rows[0].schema.get_field_index("id") if rows else 0
        for some in rows:
            self._heart.hold(some.column(place).to_pylist())
        return iter(rows)

    @contextmanager
    def _working(self) -> Iterator[None]:
        seconds = self._options.seconds
        self._end = None if seconds is None else self._clock() + seconds
        self._heart.start()
        try:
            yield
        finally:
            self._heart.close()
            self._link.close()

    def _over(self) -> bool:
        return self._end is not None and self._clock() >= self._end

    def _fetch(self, count: int) -> list[Job] | None:
        """Get some jobs, or an empty list if none arrive for a while; None: time is up."""
        options = self._options
        wait = LONGEST_WAIT if not options.until_empty else min(options.wait, LONGEST_WAIT)
        if self._over():
            return None
        if self._end is not None:
            wait = min(wait, self._end - self._clock())
        how = ("TIMEOUT", max(1, int(wait * 1000)), "COUNT", count, "WITHCOUNTERS", "WITHHEADERS")
        [reply] = self._link.send([("GETJOB", *how, "FROM", *options.queues)])
        try:
            found = accepted(reply)
        except RefusedError as refused:
            if refused.code != "LEAVING":
                raise
            self._link.turn()
            time.sleep(min(wait, 0.1))
            return []
        replies = found if isinstance(found, list) else []
        jobs = [job_of(reply) for reply in replies if isinstance(reply, list)]
        return list({job.id: job for job in jobs}.values())

    def _do(self, jobs: Sequence[Job]) -> None:
        """Process and settle jobs. When time is up, the rest go back to their queues."""
        self._heart.hold([job.id for job in jobs])
        outcomes: list[Outcome] = []
        told = self._clock()
        left = dict.fromkeys([job.id for job in jobs])
        for outcome in self._calls(jobs):
            left.pop(outcome.job.id)
            outcomes.append(outcome)
            if self._clock() - told >= SETTLE:
                self._settle(outcomes)
                outcomes = []
                told = self._clock()
            if left and self._over():
                break
        else:
            left.clear()
        self._settle(outcomes)
        self._heart.release([job.id for job in jobs])
        if left and self._options.queues:
            self._link.send(by_ids("ENQUEUE", list(left)))

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        if outcomes:
            self.settled = self.settled.plus(settle(self._link, self._options, outcomes))
            self._heart.release([outcome.job.id for outcome in outcomes])

    def _next_count(self, jobs: Sequence[Job], seconds: float) -> int:
        """How many jobs to ask for next, given that ``jobs`` took ``seconds``."""
        size = max(sum(len(job.body) for job in jobs) // len(jobs), 1)
        most = max(1, min(self._options.size, FETCH_BYTES // size))
        if self._options.frames:
            return most
        fits = ROUND * len(jobs) / max(seconds, 1e-6)
        return max(1, min(most, int(fits), 4 * len(jobs) + FIRST))


def job_of(reply: Sequence[Reply]) -> Job:
    """The job in an element of a GETJOB reply."""
    queue, id, body, *names = reply
    values = dict(zip(names[::2], names[1::2], strict=True))
    headers = values.get(b"headers")
    pairs = headers if isinstance(headers, list) else []
    return Job(
        _word(id),
        _word(queue),
        _bytes(body),
        _count(values.get(b"nacks")),
        _count(values.get(b"additional-deliveries")),
        tuple((_word(k), _bytes(v)) for k, v in zip(pairs[::2], pairs[1::2], strict=True)),
    )


def jobs_of(rows: pa.RecordBatch) -> list[Job]:
    """The jobs in rows with ``id`` and ``body``, and optionally ``queue``, ``nacks``,
    ``additional_deliveries`` and ``headers``."""
    columns = {name: rows.column(at).to_pylist() for at, name in enumerate(rows.schema.names)}
    count = rows.num_rows
    queue, nacks, again, headers = (
        columns.get(name, [missing] * count)
        for name, missing in (
            *(("queue", ""), ("nacks", 0), ("additional_deliveries", 0)),
            ("headers", None),
        )
    )
    pairs = [tuple((pair["key"], pair["value"]) for pair in some or ()) for some in headers]
    bodies = [body.encode() if isinstance(body, str) else body or b"" for body in columns["body"]]
    return [
        Job(*row) for row in zip(columns["id"], queue, bodies, nacks, again, pairs, strict=True)
    ]


def _word(value: Reply) -> str:
    return text(_bytes(value))


def _bytes(value: Reply) -> bytes:
    assert isinstance(value, bytes)
    return value


def _count(value: Reply) -> int:
    return value if isinstance(value, int) else 0
