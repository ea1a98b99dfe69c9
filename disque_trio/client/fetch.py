"""GETJOB, which may block for a long time.

If the caller is cancelled while a job is on its way, the job is put back with ENQUEUE, since no
consumer has seen it.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypedDict

from disque_trio.client import replies, tracing
from disque_trio.client.job import Job
from disque_trio.client.jobs import HeldJob
from disque_trio.client.requests import milliseconds
from disque_trio.client.router import Router
from disque_trio.client.session import Session
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import library
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.delivery import InFlight
from disque_trio.respclient.errors import ReplyError
from disque_trio.respclient.values import Name


class GetOptions(TypedDict, total=False):
    """Options of ``Client.get``.

    Keys:
        timeout: seconds to wait for the first job; None, the default, waits forever, 0 does not
            wait.
        count: how many jobs to take, if there are that many; 1 by default. A call that had to wait
            gets one.
        nohang: do not wait.
        withcounters: fill in the job's ``nacks``, ``additional_deliveries``, ``priority`` and
            ``letter``; True by default.
        withheaders: fill in the job's ``headers``. C nodes do not support this.
        pattern: treat the names as patterns (``mail.*``) and take jobs from all queues that match,
            including queues created during the wait. C nodes do not support this.
    """

    timeout: float | None
    count: int
    nohang: bool
    withcounters: bool
    withheaders: bool
    pattern: bool


async def fetch(
    router: Router,
    queues: tuple[Name, ...],
    *,
    timeout: float | None = None,
    count: int = 1,
    nohang: bool = False,
    withcounters: bool = True,
    withheaders: bool = False,
    pattern: bool = False,
) -> tuple[Session, list[Job]]:
    """Fetch jobs and return them with the session of the node that gave them.

    Arguments and errors are those of ``Client.get``. There is no checkpoint between the arrival of
    the reply and the return.
    """
    if not queues:
        raise ValueError("at least one queue is needed")
    deadline = None if timeout is None else library().current_time() + timeout
    best_for = () if pattern else queues
    waits = not nohang and timeout != 0
    more = False  # to ask, maybe at another node

    async def get(session: Session) -> tuple[Session, list[Job]]:
        nonlocal more
        hints = router.hints
        command: list[Argument] = ["GETJOB"]
        if waits:
            left = None if deadline is None else deadline - library().current_time()
            patience = None if hints is None else hints.patience(session, best_for)
            more = patience is not None and (left is None or patience < left)
            left = patience if more else left
            if left is not None:
                command += ["TIMEOUT", milliseconds(left)]
        else:
            command.append("NOHANG")
            more = hints is not None and hints.is_guest(session)
        command += ["COUNT", count]
        if withcounters:
            command.append("WITHCOUNTERS")
        traced = tracing.tracer is not None and session.knows_headers
        if withheaders or traced:
            command.append("WITHHEADERS")
        if pattern:
            command.append("PATTERN")
        command += ["FROM", *queues]
        try:
            reply = await session.blocking.execute(command, partial(_put_back, router, session))
        except ReplyError as error:
            if withheaders or not traced or error.code != "ERR":
                raise
            session.knows_headers = False
            return await get(session)
        return session, replies.jobs(reply)

    while True:
        session, jobs = await router.wait_at(get, best_for)
        if jobs or not more:
            return session, jobs
        if not waits:
            best_for = ()  # what was added before the best node was known is at the node in use


async def fetch_traced(
    tracer: tracing.Tracer,
    queues: tuple[Name, ...],
    fetching: Callable[[], Awaitable[tuple[Session, list[Job]]]],
) -> list[Job]:
    """Fetch jobs, and report them to the tracer."""
    began = time.time_ns()
    try:
        session, jobs = await fetching()
    except Exception as error:
        tracer.received(queues, [], None, began, error)
        raise
    tracer.received(queues, jobs, session.address, began)
    return jobs


async def take(
    router: Router,
    in_flight: InFlight,
    queues: tuple[Name, ...],
    withheaders: bool = False,
    pattern: bool = False,
) -> HeldJob:
    """Wait for a job and hold it. There is no checkpoint between its arrival and the return."""
    while True:
        session, jobs = await fetch(router, queues, withheaders=withheaders, pattern=pattern)
        if jobs:
            return hold(router, session, in_flight, jobs[0])


def hold(
    router: Router,
    session: Session,
    in_flight: InFlight,
    job: Job,
    kind: Callable[..., HeldJob] = HeldJob,
) -> HeldJob:
    """Keep a job that was fetched from being delivered again, until it is settled."""
    session.job_taken()
    held = kind(router, session, job, partial(_settled, in_flight, session))
    in_flight.add(held)
    return held


def _settled(in_flight: InFlight, session: Session, job: HeldJob) -> None:
    session.job_settled()
    in_flight.discard(job)


async def _put_back(router: Router, session: Session, reply: Reply) -> None:
    jobs = replies.jobs(reply)
    if jobs:
        command = ["ENQUEUE", *[job.id for job in jobs]]
        await router.run_one("control", command, repeat=False, pinned=session)
