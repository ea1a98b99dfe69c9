"""A task of a run: takes jobs on an executor, calls the function, and settles the jobs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import hiredis
import pyarrow as pa

from disque_spark.client import Arg, RefusedError, accepted, by_ids
from disque_spark.leases.fetch import FETCH_BYTES, headers_of
from disque_spark.options import text
from disque_spark.processing.calls import in_frames, singly
from disque_spark.processing.heart import Heart
from disque_spark.processing.job import Failed, Job, Outcome
from disque_spark.processing.limit import limited
from disque_spark.sink.adder import Adder, code_of
from disque_trio.respclient.blocking import Reply
from disque_trio.respclient.login import Login

ROUND = 2.0  # s that the jobs of one GETJOB should take, if the function takes single jobs
SETTLE = 1.0  # s after which finished jobs are settled, though others are still in hand
FIRST = 16  # jobs in the first GETJOB, to learn how long they take and how large they are
LONGEST_WAIT = 1.0  # s that a GETJOB waits at most
ADD_TIMEOUT = 5000  # ms that the ADDJOB of a result waits for its copies
AT_ONCE_BYTES = 4 << 20  # of results


@dataclass(frozen=True)
class WorkOptions:
    """A run, as its tasks see it: as the arguments of ``process``, and these.

    Attributes:
        frames: whether the function takes DataFrames instead of single jobs.
        queues: queues to take jobs from; empty: jobs come in rows.
        nodes: all known nodes.
        add: options of ADDJOB for results.
        leased: the jobs in rows are not kept from being delivered again by anybody else.
    """

    function: Callable[[Any], object]
    frames: bool
    queues: tuple[str, ...]
    nodes: tuple[str, ...]
    login: Login
    results: str | None
    add: tuple[Arg, ...]
    size: int
    wait: float
    until_empty: bool
    seconds: float | None
    delay: float | None
    attempts: int | None
    timeout: float
    failover: float
    limit: float | None = None
    leased: bool = False


class Summary(NamedTuple):
    """What a task or a run has done. Does not count the work of tasks that died.

    Attributes:
        done: jobs acknowledged.
        failed: jobs handed back, including those that became dead letters.
        dead: jobs that became dead letters.
        results: results sent.
        restarts: how often the run had to start over.
    """

    done: int = 0
    failed: int = 0
    dead: int = 0
    results: int = 0
    restarts: int = 0

    def plus(self, other: Sequence[int]) -> "Summary":
        """The sum of both."""
        return Summary(*(a + b for a, b in zip(self, other, strict=True)))


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
        self._end: float | None = None
        self.summary = Summary()

    def take(self) -> Summary:
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
        return self.summary

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Summary:
        """Process the jobs in rows.

        Raises:
            WireError, RefusedError: as ``take``.
        """
        with self._working():
            if self._options.leased:  # from now on, keep all jobs from being delivered again
                kept = list(batches)
                for rows in kept:
                    self._heart.hold(rows.to_pydict()["id"])
                batches = iter(kept)
            for rows in batches:
                jobs = jobs_of(rows)
                for at in range(0, len(jobs), self._options.size):
                    if self._over():
                        return self.summary
                    some = jobs[at : at + self._options.size]
                    ids = [job.id for job in some]
                    self._heart.hold(ids)
                    there = self._heart.still(ids)
                    self._heart.release([id for id in ids if id not in there])
                    self._do([job for job in some if job.id in there])
        return self.summary

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
        if not jobs:
            return
        self._heart.hold([job.id for job in jobs])
        outcomes: list[Outcome] = []
        told = self._clock()
        left = dict.fromkeys([job.id for job in jobs])
        for outcome in self._outcomes(jobs):
            left.pop(outcome.job.id, None)
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

    def _outcomes(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        function = self._options.function
        if self._options.limit is not None:
            function = limited(function, self._options.limit)
        wanted = self._options.results is not None
        if self._options.frames:
            return in_frames(function, jobs, wanted)
        return singly(function, jobs, wanted, lambda job: job.id in self._heart.ended)

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        """Add results first, then send ACKJOB, and NACK for jobs that failed. If the process dies
        meanwhile, jobs with results already added are delivered again; the results have the jobs'
        ids as keys, so they are not added twice."""
        failed = {outcome.job.id: outcome for outcome in outcomes if outcome.failed}
        with_result = [outcome for outcome in outcomes if outcome.result is not None]
        for part in _parts(with_result):
            for place, error in self._link.add([self._result(outcome) for outcome in part]):
                if code_of(error) in ("NOEXT", "NOPERM"):  # all others would fail in the same way
                    raise RefusedError(error)
                job = part[place].job
                failed[job.id] = Outcome(job, failed=Failed(f"result: {error}"))
        done = [outcome.job.id for outcome in outcomes if outcome.job.id not in failed]
        for reply in self._link.send(by_ids("ACKJOB", done)):
            accepted(reply)
        dead = self._hand_back([(job, why) for job, _, why in failed.values() if why])
        results = sum(outcome.job.id not in failed for outcome in with_result)
        self.summary = self.summary.plus((len(done), len(failed), dead, results, 0))
        self._heart.release([outcome.job.id for outcome in outcomes])

    def _result(self, outcome: Outcome) -> tuple[Arg, ...]:
        """The ADDJOB for a result."""
        id, queue = outcome.job.id, self._options.results
        assert queue is not None
        assert outcome.result is not None
        how = ("HEADERS", 1, "job", id, "UNIQUE", id, *self._options.add)
        return ("ADDJOB", queue, outcome.result, ADD_TIMEOUT, *how)

    def _hand_back(self, failed: Sequence[tuple[Job, Failed]]) -> int:
        """Send NACK for jobs that failed; returns how many of them became dead letters."""
        letters = [(job, why) for job, why in failed if self._is_dead(job, why)]
        others = [(job, why) for job, why in failed if not self._is_dead(job, why)]
        dead = 0
        replies = self._nack([(job.id, "DEAD", "REASON", why.text()) for job, why in letters])
        for letter, reply in zip(letters, replies, strict=True):
            if isinstance(reply, hiredis.ReplyError) and code_of(str(reply)) == "NODEAD":
                others.append(letter)  # there is no dead-letter queue: deliver it again
            elif accepted(reply):
                dead += 1
        requests: list[tuple[Arg, ...]] = []
        for job, why in others:
            delay = self._options.delay if why.delay is None else why.delay
            how = () if delay is None else ("DELAY", f"{delay:.3f}")
            requests.append((job.id, *how, "REASON", why.text()))
        for reply in self._nack(requests):
            accepted(reply)
        return dead

    def _is_dead(self, job: Job, why: Failed) -> bool:
        deliveries = job.nacks + job.additional_deliveries + 1
        most = self._options.attempts
        return why.dead or (most is not None and deliveries >= most)

    def _nack(self, requests: Sequence[tuple[Arg, ...]]) -> list[Reply]:
        """Send NACKs, to all nodes in turn, since only a node that holds the job accepts one.
        Returns the replies."""
        replies: list[Reply] = [0] * len(requests)
        for _ in self._link.nodes:
            left = [place for place, reply in enumerate(replies) if reply == 0]
            if not left:
                break
            found = self._link.send([("NACK", *requests[place]) for place in left])
            for place, reply in zip(left, found, strict=True):
                replies[place] = reply
            if 0 in found:
                self._link.turn()
        return replies

    def _next_count(self, jobs: Sequence[Job], seconds: float) -> int:
        """How many jobs to ask for next, given that ``jobs`` took ``seconds``."""
        size = max(sum(len(job.body) for job in jobs) // len(jobs), 1)
        most = max(1, min(self._options.size, FETCH_BYTES // size))
        if self._options.frames:
            return most
        fits = ROUND * len(jobs) / max(seconds, 1e-6)
        return max(1, min(most, int(fits), 4 * len(jobs) + FIRST))


def _parts(outcomes: Sequence[Outcome]) -> Iterator[list[Outcome]]:
    """Split outcomes into parts whose results are sent at once."""
    part: list[Outcome] = []
    size = 0
    for outcome in outcomes:
        part.append(outcome)
        size += len(outcome.result or b"")
        if size >= AT_ONCE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def job_of(reply: list[Reply]) -> Job:
    """The job in an element of a GETJOB reply."""
    queue, id, body, _, nacks, _, again, *_ = reply
    assert isinstance(queue, bytes)
    assert isinstance(id, bytes)
    assert isinstance(body, bytes)
    assert isinstance(nacks, int)
    assert isinstance(again, int)
    headers = tuple((str(one["key"]), one["value"]) for one in headers_of(reply) or ())
    return Job(text(id), text(queue), body, nacks, again, headers)  # type: ignore[arg-type]


def jobs_of(rows: pa.RecordBatch) -> list[Job]:
    """The jobs in rows with ``id`` and ``body``, and optionally ``queue``, ``nacks``,
    ``additional_deliveries`` and ``headers``."""
    jobs = []
    for row in rows.to_pylist():
        body = row["body"] or b""
        row["body"] = body.encode() if isinstance(body, str) else body
        pairs = row.get("headers") or ()
        jobs.append(Job(**row | {"headers": tuple((one["key"], one["value"]) for one in pairs)}))
    return jobs
