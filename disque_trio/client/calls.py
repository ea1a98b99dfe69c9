"""Calls: a request goes into a queue, and its answer comes to a queue of the caller.

Requests and answers of all calls of a client share one connection, on which the answers are
pushed. If that connection is lost, calls continue at another node, where the answers arrive from
wherever they are. If the node itself was lost, the request is added again, since no other node may
have had it.
"""

import time
from functools import partial
from typing import Final

from disque_trio.client import tracing
from disque_trio.client.errors import CallError
from disque_trio.client.job import Job
from disque_trio.client.messages import Answer, read_answer, request
from disque_trio.client.pushes import Own, Pushes, open_pushes
from disque_trio.client.requests import new_key
from disque_trio.client.router import Router
from disque_trio.client.session import Session
from disque_trio.job_options import Headers
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import fail_after, library
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.delivery import InFlight
from disque_trio.respclient.errors import ConnectionLost, DisqueError, NoExtError
from disque_trio.respclient.values import Name, text

_ANSWERS: Final = 1000
"""How many unacknowledged answers the node may push."""


class _Call:
    """A call that has not been answered yet.

    Attributes:
        answer: its answer, once that has arrived.
        news: set when the answer arrives or the connection is lost.
        jobs: the ids of its requests.
        line: where the last request was added.
    """

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.news = library().Event()
        self.jobs: list[str] = []
        self.line: _Line | None = None


class _Line(Pushes):
    """A connection on which requests are added and answers are pushed.

    Args:
        own: see ``Pushes``.
        reply_to: the queue of the answers.
        calls: the unanswered calls, by id.
    """

    def __init__(self, *own: *Own, reply_to: str, calls: dict[str, _Call]) -> None:
        super().__init__(*own)
        self._reply_to = reply_to
        self._calls = calls

    def consume(self) -> list[Argument]:
        return ["CONSUME", self._reply_to, "CREDIT", _ANSWERS, "WITHHEADERS"]

    def arrived(self, job: Job) -> None:
        answer = read_answer(job)
        call = self._calls.get(answer.id)
        if call is not None and call.answer is None:
            call.answer = answer
            call.news.set()
        # Acknowledge late and repeated answers, too.
        self.connection.submit([["ACKJOB", job.id]])

    def finished(self) -> None:
        """Answers on their way will come again, at another node."""
        for call in self._calls.values():
            call.news.set()

    async def add(self, command: list[Argument]) -> Reply:
        """Add a request and return the reply. Raises ReplyError, ConnectionLost."""
        tracer = tracing.tracer
        if tracer is None:
            return await self.connection.execute(*command)
        run = self.connection.execute_many
        [reply] = await tracing.send(tracer, run, [command], self.session.address)
        if isinstance(reply, DisqueError):
            raise reply
        return reply


class Calls:
    """The calls of a client.

    Args:
        router: chooses the node.
        in_flight: runs the connection.
    """

    def __init__(self, router: Router, in_flight: InFlight) -> None:
        self._router = router
        self._in_flight = in_flight
        self._reply_to = f"reply.{new_key()}"
        self._calls: dict[str, _Call] = {}
        self._lines: dict[str, _Line] = {}  # by node
        self._opening = library().Lock()

    async def call(
        self, queue: Name, body: Name, headers: Headers | None, replicate: int, limit: float
    ) -> bytes:
        """See ``Client.call``; ``limit`` is its timeout."""
        if limit <= 0:
            raise ValueError("the timeout must be positive")
        id = new_key()
        call = self._calls[id] = _Call()
        add = partial(request, queue, body, headers, replicate, reply_to=self._reply_to, id=id)
        deadline = library().current_time() + limit

        async def ask(session: Session) -> Answer:
            line = await self._open(session)
            if call.line is None or call.line.session.node_id != session.node_id:
                left = max(deadline - library().current_time(), 0.001)
                command = add(left, time.time())
                call.jobs.append(text(await line.add(command)))
            call.line = line
            return await _answered(call, line)

        try:
            with fail_after(limit):
                answer = await self._router.wait_at(ask, (queue,))
        finally:
            del self._calls[id]
            over = call.answer is not None and len(call.jobs) == 1
            if call.line is not None and not over:
                call.line.connection.submit([["CANCEL", *call.jobs]])
        if answer.failed:
            raise CallError(answer.body.decode(errors="replace"))
        return answer.body

    async def _open(self, session: Session) -> _Line:
        """Return the connection to this node; open it if necessary."""
        async with self._opening:
            line = self._lines.get(session.node_id)
            if line is not None and line.session is session and not line.over:
                return line
            for line in list(self._lines.values()):
                if line.over or not line.session.current or line.session.node_id == session.node_id:
                    del self._lines[line.session.node_id]
                    line.retire()
            make = partial(_Line, reply_to=self._reply_to, calls=self._calls)
            line = await open_pushes(self._router, session, self._in_flight, make)
            if line is not None:
                self._lines[session.node_id] = line
                return line
            raise NoExtError("NOEXT", f"{session.address} cannot push jobs, which calls need")


async def _answered(call: _Call, line: _Line) -> Answer:
    """Wait for the answer. Raises ConnectionLost if the connection is lost first."""
    while call.answer is None:
        if line.over:
            raise ConnectionLost(f"{line.session.address}: connection lost", maybe_executed=True)
        call.news = library().Event()
        await call.news.wait()
    return call.answer
