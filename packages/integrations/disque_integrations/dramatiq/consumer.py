"""The messages of a queue, for one of Dramatiq's consumer threads."""

import queue
import threading
from base64 import b64encode
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import trio
from dramatiq.broker import Consumer, MessageProxy
from dramatiq.errors import ConnectionClosed, DecodeError
from dramatiq.message import Message

from disque_integrations.alone import Alone, Died, NotAloneError
from disque_integrations.crashes import give_back, past_of, runs_alone
from disque_integrations.dramatiq.taken import TakenMessage, reason_of
from disque_trio.client.client import Client as AsyncClient
from disque_trio.client.jobs import HeldJob, Jobs
from disque_trio.client.requests import addjob
from disque_trio.client.sync import Client
from disque_trio.job_past import Past
from disque_trio.respclient.consumer import run_handlers
from disque_trio.respclient.errors import DisqueError, ReplyError
from disque_trio.respclient.log import library_log

_log = library_log("disque.dramatiq")

_GRACE: Final = 30.0
"""Seconds that processes with a message of their own have to end when a worker stops."""


class DisqueMessage(TakenMessage):
    """A message being processed, and its job. Except ``settle``, all is for the loop's thread.

    Attributes:
        job: the job, kept by WORKING until the message is settled.
        outcome: what becomes of the job: ``ack``, ``dead`` or ``back``.
        reason: why the message became a dead letter.
    """

    def __init__(self, message: Message[Any], job: HeldJob) -> None:
        super().__init__(message)
        self.job = job
        self.outcome = "back"
        self.reason = ""
        self._token = trio.lowlevel.current_trio_token()
        self._settled = trio.Event()

    def settle(self, outcome: str) -> None:
        """Acknowledge the job, bury it or give it back, in the background."""
        try:
            self._token.run_sync_soon(self._settle, outcome)
        except trio.RunFinishedError:
            pass  # the connection is closed, so the node has given the job to somebody else

    def _settle(self, outcome: str) -> None:
        if not self._settled.is_set():
            self.outcome = outcome
            # The client reads this if it is closed at this moment.
            self.job.processed = outcome == "ack"
            self._settled.set()

    async def settled(self) -> str:
        """Wait for the outcome."""
        await self._settled.wait()
        return self.outcome


class DisqueConsumer(Consumer):
    """The messages of a queue.

    Args:
        client: a client that stays connected, or keeps trying to connect.
        name: the name of the queue on the nodes.
        dead: the queue for its dead letters.
        prefetch: how many messages may be in hand.
        timeout: how long to wait for a message, in milliseconds.
        dead_ttl: how long a dead letter lives, in seconds, unless the queue has a policy.
    """

    def __init__(
        self, client: Client, name: str, dead: str, prefetch: int, timeout: int, dead_ttl: int
    ) -> None:
        self._name = name
        self._dead = dead
        self._dead_ttl = dead_ttl
        self._prefetch = prefetch
        self._timeout = timeout / 1000
        self._ready: queue.SimpleQueue[DisqueMessage | None] = queue.SimpleQueue()
        self._failure: DisqueError | None = None
        self._stop = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._closed = False
        self._alone: Alone | None = None
        self._running_alone = 0
        self._none_alone = threading.Event()
        self._none_alone.set()
        # The loop runs in the client's thread; this thread waits for its end.
        target = partial(self._run, client)
        self._thread = threading.Thread(target=target, name=f"disque {name}", daemon=True)
        self._thread.start()

    def __next__(self) -> DisqueMessage | None:
        try:
            message = self._ready.get(timeout=self._timeout)
        except queue.Empty:
            return None
        if message is None:
            self._ready.put(None)
            raise ConnectionClosed(self._failure or "the consumer is closed")
        return message

    def ack(self, message: MessageProxy) -> None:
        if isinstance(message, DisqueMessage):
            message.settle("ack" if message.unsent is None else "back")

    def nack(self, message: MessageProxy) -> None:
        if isinstance(message, DisqueMessage):
            message.reason = reason_of(message)
            message.settle("dead")

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        for message in messages:
            if isinstance(message, DisqueMessage):
                message.settle("back")

    def close(self) -> None:
        """Take no more messages, and give back those that nobody has seen. Those that were handed
        out are kept until they are settled. Wait a while for those in processes of their own."""
        self._closed = True
        if self._token is not None:
            try:
                self._token.run_sync_soon(self._stop.set)
            except trio.RunFinishedError:
                pass
        self._give_back()
        self._none_alone.wait(_GRACE)

    def _give_back(self) -> None:
        while True:
            try:
                message = self._ready.get_nowait()
            except queue.Empty:
                return
            if message is not None:
                message.settle("back")

    def _run(self, client: Client) -> None:
        try:
            client.run(self._take)
        except DisqueError as error:
            self._failure = error
        finally:
            self._ready.put(None)

    async def _take(self, client: AsyncClient) -> None:
        self._token = trio.lowlevel.current_trio_token()
        if self._closed:
            return
        loops = client.loops(self._name, count=self._prefetch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_when_closed, loops)
            failure = await run_handlers(loops, self._hand_out, HeldJob.nack)
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _stop_when_closed(self, loops: list[Jobs]) -> None:
        await self._stop.wait()
        async with trio.open_nursery() as nursery:
            for loop in loops:
                nursery.start_soon(loop.stop)

    async def _hand_out(self, job: HeldJob) -> None:
        """Give the job to Dramatiq, and wait until Dramatiq has settled it."""
        try:
            message = DisqueMessage(Message.decode(job.body), job)
        except DecodeError as error:
            await self._bury(job, str(error))
            return
        if (past := await past_of(job)).is_guilty:
            await self._bury(job, past.said)
        elif not runs_alone(past) or not await self._run_alone(job, message, past):
            self._ready.put(message)
            if self._closed:
                self._give_back()
            await self._settle(message, await message.settled(), message.reason)
        # Asking for the next job acknowledges this one.

    async def _settle(self, message: DisqueMessage, outcome: str, reason: str) -> None:
        if outcome == "dead":
            await self._bury(message.job, reason)
        elif outcome == "back" and message.unsent is None:
            await give_back(message.job)
        elif outcome == "back":
            await message.job.nack(delay=message.unsent)

    async def _run_alone(self, job: HeldJob, message: DisqueMessage, past: Past) -> bool:
        """Have a message processed in a process of its own, and settle it. Returns False if the
        program cannot do that."""
        if self._alone is None:
            self._alone = Alone("disque_integrations.dramatiq.solo")
        self._running_alone += 1
        self._none_alone.clear()
        try:
            _log.info("a message runs in a process of its own", job=job.id)
            said = await self._alone.run(body=b64encode(job.body).decode())
        except NotAloneError as error:
            _log.warning("a message cannot run in a process of its own", error=str(error))
            return False
        finally:
            self._running_alone -= 1
            if not self._running_alone:
                self._none_alone.set()
        if not isinstance(said, Died):
            message.unsent = said["unsent"]
            await self._settle(message, said["outcome"], said["reason"])
            return True
        _log.warning("a message has killed its process", job=job.id, how=said.how)
        past = past.crashed(said.how, alone=True)
        if past.is_guilty:
            await self._bury(job, said.how)
        else:
            await job.nack(delay=past.pause, reason=past.reason())
        return True

    async def _bury(self, job: HeldJob, reason: str) -> None:
        try:
            # The text of an OSError may contain a path that is not UTF-8.
            await job.dead(reason=reason.encode(errors="backslashreplace")[:1000])
        except ReplyError as error:
            if error.code != "NODEAD":
                raise
            # The queue has somebody else's policy, without dead letters.
            await job.ack_behind(addjob(self._dead, job.body, 5.0, ttl=self._dead_ttl))
