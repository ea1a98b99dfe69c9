"""Settles jobs: adds their results first, then sends ACKJOB, and NACK for those that failed."""

from collections.abc import Sequence
from typing import NamedTuple

import hiredis

from disque_spark.client import Arg, RefusedError, accepted, by_ids
from disque_spark.processing.job import Failed, Job, Outcome
from disque_spark.processing.options import WorkOptions
from disque_spark.sink.adder import Adder, code_of
from disque_trio.respclient.blocking import Reply

ADD_TIMEOUT = 5000  # ms that the ADDJOB of a result waits for its copies
AT_ONCE = 500
AT_ONCE_BYTES = 4 << 20


class Settled(NamedTuple):
    """Counts of jobs that are done, that failed, and that became dead letters (``failed`` includes
    these), and of results."""

    done: int = 0
    failed: int = 0
    dead: int = 0
    results: int = 0

    def plus(self, other: "Settled") -> "Settled":
        """The sum of both."""
        return Settled(*(a + b for a, b in zip(self, other, strict=True)))


def settle(link: Adder, options: WorkOptions, outcomes: Sequence[Outcome]) -> Settled:
    """Send the outcomes of jobs. If the process dies meanwhile, jobs with results already added are
    delivered again; the results have the jobs' ids as keys, so they are not added twice.

    Raises:
        WireError: no node can be reached.
        RefusedError: a node refuses an ACKJOB, or does not support UNIQUE.
    """
    failed = {at: outcome.failed for at, outcome in enumerate(outcomes) if outcome.failed}
    with_result = [
        (at, result_of(outcome, options))
        for at, outcome in enumerate(outcomes)
        if options.results is not None and outcome.result is not None and at not in failed
    ]
    for part in _parts(with_result):
        for place, error in link.add([request for _, request in part]):
            if code_of(error) in ("NOEXT", "NOPERM"):  # all others would fail in the same way
                raise RefusedError(error)
            failed[part[place][0]] = Failed(f"result: {error}")
    done = [outcome.job.id for at, outcome in enumerate(outcomes) if at not in failed]
    for reply in link.send(by_ids("ACKJOB", done)):
        accepted(reply)
    dead = hand_back(link, options, [(outcomes[at].job, why) for at, why in failed.items()])
    results = sum([at not in failed for at, _ in with_result])
    return Settled(len(done), len(failed), dead, results)


def result_of(outcome: Outcome, options: WorkOptions) -> tuple[Arg, ...]:
    """The ADDJOB for a result."""
    queue, id = options.results, outcome.job.id
    assert queue is not None
    assert outcome.result is not None
    headers = ("HEADERS", 1, "job", id)
    return ("ADDJOB", queue, outcome.result, ADD_TIMEOUT, *headers, "UNIQUE", id, *options.add)


def hand_back(link: Adder, options: WorkOptions, failed: Sequence[tuple[Job, Failed]]) -> int:
    """Send NACK for jobs that failed; returns how many of them became dead letters."""
    letters = [(job, why) for job, why in failed if _is_dead(job, why, options)]
    others = [(job, why) for job, why in failed if not _is_dead(job, why, options)]
    replies = _nack(link, [_nack_of(job, why, ("DEAD",)) for job, why in letters])
    dead = 0
    for (job, why), reply in zip(letters, replies, strict=True):
        if isinstance(reply, hiredis.ReplyError) and code_of(str(reply)) == "NODEAD":
            others.append((job, why))  # there is no dead-letter queue: deliver it again
        elif accepted(reply):
            dead += 1
    requests = []
    for job, why in others:
        delay = options.delay if why.delay is None else why.delay
        requests.append(_nack_of(job, why, () if delay is None else ("DELAY", f"{delay:.3f}")))
    for reply in _nack(link, requests):
        accepted(reply)
    return dead


def _is_dead(job: Job, why: Failed, options: WorkOptions) -> bool:
    deliveries = job.nacks + job.additional_deliveries + 1
    return why.dead or (options.attempts is not None and deliveries >= options.attempts)


def _nack_of(job: Job, why: Failed, how: Sequence[Arg]) -> tuple[Arg, ...]:
    return ("NACK", job.id, *how, "REASON", why.text())


def _nack(link: Adder, requests: Sequence[tuple[Arg, ...]]) -> list[Reply]:
    """Send NACKs, to all nodes in turn, since only a node that holds the job accepts one. Returns
    the replies."""
    replies: list[Reply] = [0] * len(requests)
    for _ in link.nodes:
        left = [place for place, reply in enumerate(replies) if reply == 0]
        for at in range(0, len(left), AT_ONCE):
            part = left[at : at + AT_ONCE]
            for place, reply in zip(part, link.send([requests[n] for n in part]), strict=True):
                replies[place] = reply
        if 0 not in replies:
            break
        link.turn()
    return replies


def _parts(
    requests: Sequence[tuple[int, tuple[Arg, ...]]],
) -> list[list[tuple[int, tuple[Arg, ...]]]]:
    """Split requests into parts that are sent at once."""
    parts: list[list[tuple[int, tuple[Arg, ...]]]] = [[]]
    size = 0
    for request in requests:
        body = request[1][2]
        if len(parts[-1]) == AT_ONCE or size > AT_ONCE_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(request)
        size += len(body) if isinstance(body, bytes | str) else 0
    return parts
