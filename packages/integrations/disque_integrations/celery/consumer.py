"""Jobs pushed by a node, as many at once as the credit allows.

Lives in the client's loop. Nobody waits here for a job, and settling a job does not wait either:
Celery has a loop of its own, which must not be blocked. If the connection is lost, or the node
leaves its cluster, jobs come from another node; jobs in hand remain in hand if possible.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog
import trio

from disque_trio.client import replies
from disque_trio.client.jobs import HEARTBEAT_FRACTION, Job
from disque_trio.client.router import Router
from disque_trio.client.session import Session
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Batch, Connection, Reply
from disque_trio.respclient.errors import (
    ConnectionLost,
    DisqueError,
    LeavingError,
    NoExtError,
    ReplyError,
)

_log = structlog.get_logger("disque.celery")

MAX_CREDIT: Final = 65_535
_TICK: Final = 0.25
"""Seconds between two checks for jobs that need WORKING; shorter tasks need none."""
_CLOSING: Final = 2.0
"""Seconds to give back jobs at the end."""


class _Line:
    """A connection on which jobs are pushed, and on which these jobs are settled."""

    def __init__(self, connection: Connection, session: Session) -> None:
        self.connection = connection
        self.session = session
        self.unanswered: deque[tuple[Batch, list[Argument]]] = deque()

    def send(self, command: list[Argument]) -> None:
        """Send a command that must reach a node, and keep it until it is answered."""
        unanswered = self.unanswered
        while unanswered and unanswered[0][0].done.is_set():
            unanswered.popleft()
        unanswered.append((self.connection.submit([command]), command))

    def lost(self) -> list[list[Argument]]:
        """Return the commands that were sent but not answered. The connection must be closed."""
        return [
            command
            for batch, command in self.unanswered
            if any(isinstance(reply, ConnectionLost) for reply in batch.replies)
        ]


class _Held:
    """A job in hand: the connection it came from, and when the next WORKING is due."""

    __slots__ = ("due", "line")

    def __init__(self, line: _Line | None, due: float) -> None:
        self.line = line
        self.due = due


class Consumer:
    """Takes the jobs of ``queues`` while fewer than ``credit`` are in hand.

    Args:
        router: chooses the node.
        on_job: called with each job.
        on_end: called with the error that ended the consumer; not when it was retired.

    Attributes:
        ended: set when the consumer has ended.
    """

    def __init__(
        self,
        router: Router,
        on_job: Callable[[Job], object],
        on_end: Callable[[DisqueError], object],
    ) -> None:
        self.ended = trio.Event()
        self._router = router
        self._on_job = on_job
        self._on_end = on_end
        self._queues: tuple[str, ...] = ()
        self._credit = 1
        self._line: _Line | None = None
        self._held: dict[str, _Held] = {}
        self._unread: dict[str, str] = {}  # queues by ids of jobs passed on and not yet taken
        self._news = trio.Event()  # for the task that keeps the connection
        self._hurry = trio.Event()  # for the task that sends WORKING
        self._idle = False  # that task waits for a job
        self._lines_open: set[_Line] = set()
        self._retired = False
        self._nursery: trio.Nursery | None = None

    def want(self, queues: Sequence[str], credit: int) -> None:
        """Take jobs of these queues, at most ``credit`` at a time, from now on. No queues: none."""
        changed = tuple(queues) != self._queues
        self._queues, self._credit = tuple(queues), min(max(credit, 1), MAX_CREDIT)
        if changed:
            self._give_back_unread()
        line = self._line
        if line is None:
            self._news.set()
        elif changed:
            line.connection.submit([self._consume() if self._queues else ["CONSUME", "STOP"]])
        elif self._queues:
            line.connection.submit([["CREDIT", self._credit]])

    def take(self, id: str) -> bool:
        """Take a job that was passed to ``on_job``, in the thread that works on it. Returns False
        if it was given back meanwhile, because its queue is no longer wanted."""
        return self._unread.pop(id, None) is not None

    def _give_back_unread(self) -> None:
        """Give back jobs that nobody took while their queue was wanted: nobody may ever look."""
        unread = list(self._unread)  # copied, since another thread takes jobs
        unwanted = [id for id in unread if self._unread.get(id) not in self._queues]
        self.settle("ENQUEUE", filter(self.take, unwanted))

    def keep(self, id: str) -> None:
        """Send WORKING for a job that was fetched elsewhere, until it is settled."""
        self._hold(id, None)

    def _hold(self, id: str, line: _Line | None) -> None:
        self._held[id] = _Held(line, trio.current_time() + _TICK)
        if self._idle:
            self._hurry.set()

    def settle(self, command: str, ids: Iterable[str]) -> None:
        """Settle jobs with ACKJOB, NACK or ENQUEUE."""
        lines: dict[_Line | None, list[str]] = {}
        for id in ids:
            held = self._held.pop(id, None)
            line = None if held is None or held.line is None else held.line
            if line is not None and line.connection.closed:
                line = None
            lines.setdefault(line, []).append(id)
        for line, mine in lines.items():
            if line is not None:
                line.send([command, *mine])
            else:
                self._soon([command, *mine])

    def refuse(self, id: str) -> None:
        """Refuse a job for good: it goes to the dead letters, or is acknowledged without any."""
        self._held.pop(id, None)
        if self._nursery is not None:
            self._nursery.start_soon(self._refuse, id)

    async def _refuse(self, id: str) -> None:
        for command in (["NACK", id, "DEAD"], ["ACKJOB", id]):
            try:
                await self._router.run_one("control", command, repeat=True)
            except ReplyError:
                continue  # its queue has no dead letters
            except DisqueError as error:
                _log.warning("job not refused", job=id, error=str(error))
            return

    def retire(self) -> None:
        """Take no more jobs, give back those in hand, and end."""
        self._retired = True
        self._news.set()

    async def run(self) -> None:
        """Run the consumer, as a task of the client."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._heartbeats)
                try:
                    await self._lines()
                except DisqueError as error:
                    self._on_end(error)
                with trio.move_on_after(_CLOSING, shield=True):
                    await self._wind_up()
                nursery.cancel_scope.cancel()
        finally:
            self._nursery = None
            for line in self._lines_open:
                line.connection.close()
            self.ended.set()

    # ---- the connection -------------------------------------------------------------------------

    async def _lines(self) -> None:
        """Keep a connection as long as jobs are wanted. Raises DisqueError if that fails."""
        retry = self._router.retry()
        while not self._retired:
            self._news = trio.Event()
            if not self._queues:
                await self._news.wait()
                continue
            try:
                session = await self._router.session(retry)
                line = await self._open(session)
            except (ConnectionLost, LeavingError) as error:
                if isinstance(error, LeavingError):
                    self._router.leave(session)
                if not await retry.again():
                    raise
                continue
            retry.reset()
            await self._use(line)

    async def _use(self, line: _Line) -> None:
        """Take jobs on this connection until it is lost or no longer to be used."""

        async def watch() -> None:
            await line.connection.ended.wait()
            self._news.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            # News that arrived while it was opened has already been taken into account.
            while self._line is line and not line.connection.closed and not self._retired:
                self._news = trio.Event()
                await self._news.wait()
            nursery.cancel_scope.cancel()
        if line.connection.closed:
            self._after(line)

    async def _open(self, session: Session) -> _Line:
        connection = await session.open_for_pushes()
        if connection is None:
            raise NoExtError("NOEXT", f"{session.address} cannot push jobs, which Celery needs")
        line = _Line(connection, session)
        connection.on_push = lambda message: self._pushed(line, message)
        self._lines_open.add(line)
        asked = self._consume()
        try:
            if not await session.asks(connection, *asked):
                raise NoExtError("NOEXT", f"{session.address} cannot push jobs, which Celery needs")
        except BaseException:
            connection.close()
            self._after(line)
            raise
        if not self._queues:
            connection.submit([["CONSUME", "STOP"]])
        elif asked != self._consume():
            connection.submit([self._consume()])
        self._line = line
        return line

    def _consume(self) -> list[Argument]:
        return ["CONSUME", *self._queues, "CREDIT", self._credit, "WITHCOUNTERS"]

    def _pushed(self, line: _Line, message: list[Reply]) -> None:
        if message[0] == b"job":
            job = replies.job(message[1:])
            if job.queue not in self._queues:  # it crossed the last CONSUME
                line.send(["ENQUEUE", job.id])
                return
            self._hold(job.id, line)
            self._unread[job.id] = job.queue
            self._on_job(job)
        elif message[0] == b"stopped" and self._line is line:
            # Its jobs are settled on it, so it stays open until the node closes it.
            self._router.leave(line.session)
            self._line = None
            assert self._nursery is not None
            self._nursery.start_soon(self._until_gone, line)
            self._news.set()

    async def _until_gone(self, line: _Line) -> None:
        await line.connection.ended.wait()
        self._after(line)

    def _after(self, line: _Line) -> None:
        """Recover from a lost connection. The node queues its jobs again unless it quickly hears
        that somebody has them, so hurry."""
        self._lines_open.discard(line)
        if self._line is line:
            self._line = None
        for held in self._held.values():
            if held.line is line:
                held.line = None
                held.due = 0.0
        self._hurry.set()
        for command in line.lost():
            self._soon(command)

    def _soon(self, command: list[Argument]) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._control, command)

    async def _control(self, command: list[Argument]) -> None:
        try:
            await self._router.run_one("control", command, repeat=True)
        except DisqueError as error:
            _log.warning("jobs not settled", command=command[0], error=str(error))

    async def _wind_up(self) -> None:
        """Give back jobs in hand. No more arrive once CONSUME STOP is answered."""
        line = self._line
        if line is not None:
            await line.connection.execute_many([["CONSUME", "STOP"]])
        if self._held:
            command: list[Argument] = ["ENQUEUE", *self._held]
            self._held.clear()
            if line is None or line.connection.closed:
                await self._control(command)
            else:
                await line.connection.execute_many([command])
        if line is not None and line.unanswered:
            # Answers come in order, so wait for the last one.
            await line.unanswered[-1][0].done.wait()

    # ---- WORKING --------------------------------------------------------------------------------

    async def _heartbeats(self) -> None:
        while True:
            self._hurry = trio.Event()
            now = trio.current_time()
            due = [id for id, held in self._held.items() if held.due <= now]
            if due:
                await self._working(due)
            self._idle = not self._held
            with trio.move_on_after(float("inf") if self._idle else _TICK):
                await self._hurry.wait()
            self._idle = False

    async def _working(self, ids: list[str]) -> None:
        """Send WORKING for these jobs. If a job is lost, its task is not told: it acknowledges the
        job in the end, which is right if nobody else has got it."""
        lines: dict[_Line | None, list[str]] = {}
        for id in ids:
            lines.setdefault(self._held[id].line, []).append(id)
        for line, mine in lines.items():
            commands: list[list[Argument]] = [["WORKING", id] for id in mine]
            if line is not None and not line.connection.closed:
                # Use its connection, since a NACK that follows must not overtake WORKING.
                answers = await line.connection.execute_many(commands)
            else:
                pinned = None if line is None else line.session
                answers = await self._router.run("control", commands, repeat=True, pinned=pinned)
            now = trio.current_time()
            for id, answer in zip(mine, answers, strict=True):
                held = self._held.get(id)
                if held is None:
                    continue
                if isinstance(answer, int) and answer > 0:
                    held.due = now + answer * HEARTBEAT_FRACTION
                else:
                    held.due = now + 1 if isinstance(answer, ConnectionLost) else float("inf")
